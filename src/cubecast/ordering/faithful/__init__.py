"""[T] as printed: its text, and where the text is lost, what its proofs need."""
