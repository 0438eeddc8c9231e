"""Public traces that need no mapping from the user: each has a name and a mapping.

The columns are those that the sources document; docs/universes.md names the sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cubecast.spark.universe.errors import UniverseTraceError
from cubecast.spark.universe.mapping import WHITESPACE, Mapping, RowCondition
from cubecast.spark.universe.simplices import import_askubuntu

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cubecast.spark.universe.ingest import Manifest, Tell


class Own(Protocol):
    """An importer whose files are no rows of cells."""

    def __call__(
        self,
        session: SparkSession,
        paths: Sequence[Path],
        out: Path,
        *,
        replace: bool,
        tell: Tell,
    ) -> Manifest: ...


@dataclass(frozen=True, slots=True)
class Importer:
    """A known trace: its title, and how it is read."""

    title: str
    mapping: Mapping | None = None
    subscribe: bool = False
    own: Own | None = None


REGISTERED_2025 = (
    RowCondition(2, "revision"), RowCondition(3, "create"),
    RowCondition(33, "0"), RowCondition(21, "true"),
)  # fmt: skip
"""Revisions of articles (namespace 0) by permanent accounts: neither anonymous nor temporary."""
REGISTERED_2019 = (
    RowCondition(1, "revision"), RowCondition(2, "create"),
    RowCondition(28, "0"), RowCondition(17, "false"),
)  # fmt: skip
"""The same where there were no temporary accounts yet."""

IMPORTERS: dict[str, Importer] = {
    "youtube": Importer(
        "YouTube groups: user, group",
        Mapping("subscriptions", {"user": (0,), "topic": (1,)}, "tsv", width=2),
    ),
    "wikipedia-edits": Importer(
        "edits of Wikipedia pages: user, page, seconds",
        Mapping(
            "publications", {"user": (0,), "topic": (1,), "time": (2,)}, "ssv", width=3,
            time_unit="s",
        ),
        subscribe=True,
    ),
    "askubuntu": Importer("Ask Ubuntu threads and tags", own=import_askubuntu),
    "irc": Importer(
        "IRC conversations with reply links",
        Mapping(
            "publications",
            {
                "post": ("channel", "log", "line"),
                "time": ("second",),
                "user": ("channel", "user"),
                "topic": ("channel",),
                "reply_to": ("channel", "log", "reply_to"),
            },
            "csv",
            header=True,
            list_separator=";",
            nothing="-",
            names=frozenset({"topic"}),
            time_unit="s",
        ),
        subscribe=True,
    ),
    "snap-communities": Importer(
        "SNAP communities: one per line, members", Mapping("subscriptions", format="lists")
    ),
    "snap-edges": Importer(
        "SNAP edges: a user follows a journal",
        Mapping(
            "subscriptions", {"user": (0,), "topic": (1,)}, "text", separator=WHITESPACE,
            comment="#", width=2,
        ),
    ),
    "snap-temporal": Importer(
        "SNAP edges with seconds: who wrote to what",
        Mapping(
            "publications", {"user": (0,), "topic": (1,), "time": (2,)}, "text",
            separator=WHITESPACE, comment="#", width=3,
        ),
        subscribe=True,
    ),
    "wiki-meta": Importer(
        "SNAP's Wikipedia edits, REVISION lines of registered editors",
        Mapping(
            "publications", {"post": (2,), "time": (4,), "user": (6,), "topic": (1,)}, "ssv",
            width=7, time_unit="iso",
            conditions=(RowCondition(0, "REVISION"), RowCondition(6, "ip:.*", negated=True)),
        ),
        subscribe=True,
    ),
    "mediawiki-history": Importer(
        "Wikimedia's history dumps, layout with event_log_id (since 2025)",
        Mapping(
            "publications", {"post": (60,), "time": (4,), "user": (6,), "topic": (28,)}, "tsv",
            width=78, time_unit="iso", conditions=REGISTERED_2025,
        ),
        subscribe=True,
    ),
    "mediawiki-history-2019": Importer(
        "Wikimedia's history dumps, the layout before",
        Mapping(
            "publications", {"post": (52,), "time": (3,), "user": (5,), "topic": (23,)}, "tsv",
            time_unit="iso", conditions=REGISTERED_2019,
        ),
        subscribe=True,
    ),
}  # fmt: skip


def find_importer(name: str) -> Importer:
    """The importer of a name; an unknown name is refused with a list of the known ones."""
    try:
        return IMPORTERS[name]
    except KeyError:
        raise UniverseTraceError(f"--from {name}: there are {', '.join(IMPORTERS)}") from None
