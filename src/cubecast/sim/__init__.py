"""A deterministic simulator that runs the very protocol objects a live node runs."""
