"""The report of a run: from rows to curves, figures, tables and one page.

================  ===============================================================
`data`            the input of a report
`curves`          rows as the curves of figures; `paper_marks`: the papers' numbers
`figures`         drawings, in `curve_styles`, `axes` and `plots`
`verdict_tables`  the only module that asks for verdicts
`page`            the page; `markdown_and_csv`: the files beside it
`wording`         numbers and names as people read them
================  ===============================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cubecast.lab.report.curve_styles import WidthName
    from cubecast.lab.report.data import Findings


def write(
    findings: Findings,
    out: Path,
    *,
    formats: Sequence[str] = ("png", "svg"),
    width: WidthName = "page",
    with_page: bool = True,
) -> Path:
    """Write the report into the folder `out`; return the path of its page, or of report.md.

    Needs matplotlib and jinja2 (``pip install 'cubecast[lab]'``).
    """
    from cubecast.lab.report.write_files import write_report

    return write_report(findings, out, formats, width, with_page)
