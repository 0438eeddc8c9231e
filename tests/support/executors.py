"""The package `support` at the executors of a Spark session, which do not see these files."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from support.paths import SUPPORT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def send_support(session: SparkSession, folder: Path) -> None:
    """Have executors import `support`.

    Spark refuses two archives of one name from two places: all tests of a process name one folder.
    """
    packed = folder / "support.zip"
    if not packed.exists():
        with zipfile.ZipFile(packed, "w") as archive:
            for path in sorted(SUPPORT.glob("*.py")):
                archive.write(path, Path("support") / path.name)
    session.sparkContext.addPyFile(str(packed))
