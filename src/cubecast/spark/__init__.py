"""The lab on Spark: a quiet session, tables with declared schemas, sweeps that can be resumed.

`cubecast.lab` knows experiments, cells and how to measure one; this package runs many of them, on
the cores of one machine or on a cluster, and aggregates their measurements (docs/spark.md).
"""
