"""Virtual networks and services for order across topics: the setting of [T] 6.

`world` runs ordering modules, one object per node.  `static` and `dynamic` compute the delays of
routes without them, for thousands of nodes; a test holds both against each other.
"""
