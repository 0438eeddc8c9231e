"""Executors of a Spark session: the package `support` there, and what they have no use for."""

from __future__ import annotations

import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from support.paths import SUPPORT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARED = {
    "clock", "links", "links.address", "message", "node", "node.value_keeper", "reading",
    "reading.patterns", "security", "security.keys", "topics", "wire", "wire.headers", "wire.hello",
    "wire.packets", "wire.parts", "wire.views",
}  # fmt: skip
"""The encoders and the keeper of retained values, which the simulator uses too: they know no
sockets."""
OF_NO_USE = {"asyncio", "typer", "click", "rich", "matplotlib", "cubecast.cli"}


def needless(modules: Collection[str]) -> set[str]:
    """Modules that no executor needs, among those that one has imported."""
    allowed = {f"cubecast.net.{name}" for name in SHARED}
    network = {name for name in modules if name.startswith("cubecast.net.")}
    return (network - allowed) | (OF_NO_USE & set(modules))


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
