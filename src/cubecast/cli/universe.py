"""``cubecast universe``: workloads as tables, made, drawn and described on Spark.

Each command has a module of its own, and is added to the group at the end of this one.
"""

from __future__ import annotations

import typer

from cubecast.cli.universe_gossip import gossip
from cubecast.cli.universe_ingest import ingest
from cubecast.cli.universe_make import describe, draw, generate
from cubecast.cli.universe_overlay import overlay

universe = typer.Typer(
    name="universe",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="""Make universes of users and topics: from traces, or from nothing.

    A universe is a directory of Parquet tables: who subscribes to what, and what was published
    where the trace says. docs/universes.md has the tables. Spark needs Java 17 or later.

    \b
    Start here:
      cubecast universe ingest --help              your own trace, or a public one
      cubecast universe generate L8 --out l8       one of the StaN paper's sizes, from nothing
      cubecast universe describe l8                its power laws and its correlation
      cubecast universe draw l8 --seeds 5,10,20    smaller universes out of it
      cubecast universe overlay l8                 what StaN saves in it
      cubecast universe gossip l8                  who gets events, and what that costs
    """,
)


@universe.callback()
def group() -> None:
    """A group stays one, however few commands it has."""


universe.command("ingest")(ingest)
universe.command("generate")(generate)
universe.command("draw")(draw)
universe.command("describe")(describe)
universe.command("overlay")(overlay)
universe.command("gossip")(gossip)
