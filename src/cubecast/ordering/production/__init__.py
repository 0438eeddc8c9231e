"""Total notification order with the holes of [T] closed (docs/design.md, "Order across topics")."""
