"""Connections: addresses, the network below, one connection, and all connections of a node."""
