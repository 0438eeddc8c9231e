"""StaN [N]: one random overlay per topic, aligned so that topics share physical links.

The protocol is sans-I/O.  `docs/overlays.md` says what it does and what it does not.
"""
