"""Worlds in which nodes crash: mortal processes, perfect detectors, and convergence."""
