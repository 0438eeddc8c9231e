"""Subscriptions: membership of topics, waves, and the links that carry them."""
