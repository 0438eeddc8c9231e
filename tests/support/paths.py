"""Where the project has its files."""

from __future__ import annotations

import os
from pathlib import Path

SUPPORT = Path(__file__).parent
"""Modules here that are programs and import no other one of `support` are run by their path."""
TESTS = SUPPORT.parent
ROOT = TESTS.parent
SOURCE = ROOT / "src"


def python_path() -> str:
    """The PYTHONPATH of a child process that imports `support`, for ``python -m support.x``."""
    return os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
