"""Benchmarks: the same work done by cubecast and by what one would use instead."""
