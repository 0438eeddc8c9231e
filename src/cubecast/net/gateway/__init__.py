"""Light clients as their node sees them: who is attached, and what each may make it hold."""
