"""Workload universes on Spark: traces in, typed tables, universes, overlays and statistics out.

Each step is a function from tables to a table; only jobs touch paths and sessions
(docs/universes.md).
"""
