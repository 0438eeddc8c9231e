"""Light clients: their connection, their way from node to node, what they publish and read."""
