"""Bytes: packets between nodes, of views, of light clients, headers, handshakes (docs/wire.md)."""
