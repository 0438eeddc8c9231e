"""A live node: what an application calls, its place in the cluster, its numbers and its end."""
