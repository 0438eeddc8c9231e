"""The lab: experiments as small files, the cells of their grids, and verdicts on the results.

Nothing here knows of Spark: `cubecast.lab.cells.measure` is a pure function of a cell, and whoever
runs the cells (a loop, or `cubecast.spark`) may do so anywhere and in any order.
"""
