"""How a node is set up: every bound and delay, presets, and where a setting comes from."""
