"""What a benchmark refuses or finds wrong with itself."""


class BenchError(Exception):
    """A benchmark did not do what it is meant to measure."""
