"""Who is subscribed to what: membership of topics, waves, and the links that carry them."""
