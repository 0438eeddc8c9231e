"""[T] as printed: what its text says, and where the text is lost, what its proofs need."""
