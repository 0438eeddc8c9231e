"""Causally ordered publish/subscribe without a broker."""

__version__ = "0.1.0"
