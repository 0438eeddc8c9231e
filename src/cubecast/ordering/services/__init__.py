"""Adapters to real event services; each needs its own client library."""
