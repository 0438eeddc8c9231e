"""The error of a benchmark."""


class BenchError(Exception):
    """A benchmark did not do what it is meant to measure."""
