"""Simulated applications: the papers' workloads, storms, replays and scenario files."""
