"""Light clients as their node sees them: their sessions, and bounds on what it holds for them."""
