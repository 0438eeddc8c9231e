"""What simulated applications do: the papers' workloads, storms, replays and scenario files."""
