"""Benchmarks: the same work done by cubecast and by its alternatives."""
