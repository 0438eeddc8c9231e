"""Every number that the evaluations of the five papers print, one row each."""

from cubecast.lab.papers.table import (
    Kind,
    Paper,
    PaperError,
    Printed,
    Source,
    papers,
    row,
    rows,
)

__all__ = ["Kind", "Paper", "PaperError", "Printed", "Source", "papers", "row", "rows"]
