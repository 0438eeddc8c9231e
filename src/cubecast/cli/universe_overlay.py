"""``cubecast universe overlay``: StaN on a universe, and the links that it saves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cubecast.cli.on_spark import (
    ConfOption,
    JsonOption,
    MasterOption,
    spark_errors,
    spark_settings,
    steps,
)
from cubecast.cli.output import console

if TYPE_CHECKING:
    from cubecast.overlay.rounds import RoundConfig
    from cubecast.spark.universe.align import Alignment

COMMAND = "universe overlay"


def overlay(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A universe.")],
    mode: Annotated[
        str,
        typer.Option(
            metavar="faithful|repairing",
            help="Algorithm 2 as printed, or so that no node is forgotten.",
        ),
    ] = "faithful",
    rounds: Annotated[
        str, typer.Option(metavar="N,...", help="After which rounds sizes are told.")
    ] = "0,8",
    ttl: Annotated[int, typer.Option(min=0, help="Further hops of a walk after its first.")] = 5,
    smallest: Annotated[
        int, typer.Option(min=1, help="Leave out topics with fewer subscribers; the paper: 30.")
    ] = 1,
    loss: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="The chance that a message is lost.")
    ] = 0.0,
    run: Annotated[int, typer.Option(help="Names all chance: the same run, the same views.")] = 0,
    shapes: Annotated[
        bool, typer.Option(help="Measure overlays too: clustering, distances, unknown nodes.")
    ] = True,
    best: Annotated[
        bool, typer.Option("--optimum/--no-optimum", help="Look for the omniscient optimum.")
    ] = True,
    out: Annotated[
        Path | None,
        typer.Option(metavar="NEW_DIR", help="Keep the tables sizes, by_initial and overlays."),
    ] = None,
    memory: Annotated[
        int | None, typer.Option(metavar="MIB", help="For Spark; else half of this machine's.")
    ] = None,
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play StaN on the overlays of all topics, and tell what it saves and what it changes.

    Each topic has an overlay of random links. StaN aligns them: a node prefers the same neighbours
    in all of its topics, so that links of several topics share a connection. Logical links stay,
    physical links (different neighbours) fall. How far they can fall is told beside: the optimum,
    for nodes that know everyone.

    \b
    Examples:
      cubecast universe generate W8 --out w8 && cubecast universe overlay w8
          a universe of the paper's size, before and after 8 rounds
      cubecast universe overlay w8 --mode repairing --rounds 0,1,2,4,8,16
          round by round, and no node is forgotten
      cubecast universe overlay youtube --smallest 30 --out youtube-overlays
          a trace that was ingested, without its small topics; tables are kept
    """
    with spark_errors(COMMAND):
        config = _config(mode, ttl, loss)
        found = _run(
            directory, config, _rounds(rounds), smallest, run, shapes, best, out, memory, master,
            spark_settings(COMMAND, conf),
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(found.facts()))
    else:
        _tell(found)


def _config(mode: str, ttl: int, loss: float) -> RoundConfig:
    from cubecast.overlay.rounds import RoundConfig
    from cubecast.spark.universe.errors import UniverseError

    try:
        return RoundConfig(ttl=ttl, mode=mode, loss=loss)  # type: ignore[arg-type]  # it checks
    except ValueError as error:
        raise UniverseError(str(error)) from None


def _rounds(text: str) -> list[int]:
    from cubecast.spark.universe.errors import UniverseError

    try:
        found = [int(one) for one in text.split(",")]
    except ValueError:
        raise UniverseError(f"--rounds are numbers with commas, as in 0,4,8: {text!r}") from None
    if min(found) < 0:
        raise UniverseError(f"--rounds start at 0: {text!r}")
    return found


def _run(
    directory: Path,
    config: RoundConfig,
    rounds: list[int],
    smallest: int,
    run: int,
    shapes: bool,
    best: bool,
    out: Path | None,
    memory: int | None,
    master: str,
    conf: dict[str, str],
) -> Alignment:
    from cubecast.spark.large import large_session
    from cubecast.spark.universe.align import align, at_least
    from cubecast.spark.universe.store import new_folder, open_universe

    universe = open_universe(directory)
    with (
        new_folder(out) as scratch,
        steps() as tell,
        large_session(master, memory_mib=memory, conf=conf) as session,
    ):
        subscriptions = universe.read(session, "subscriptions")
        if smallest > 1:
            subscriptions = at_least(subscriptions, smallest).cache()
        return align(
            subscriptions, config, rounds=rounds, run=run, shapes=shapes, best=best, out=scratch,
            tell=tell,
        )  # fmt: skip


def _tell(found: Alignment) -> None:
    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    config = found.config
    say(f"{found.users:,} users x {found.topics:,} topics, {found.pairs:,} subscriptions")
    say(f"StaN, {config.mode}, ttl {config.ttl}, loss {config.loss:g}")
    say("  round   logical links   physical links   (means per user)")
    for one in found.sizes:
        say(f"  {one.round:>5}   {one.logical:>13.2f}   {one.physical:>14.2f}")
    if found.optimum is not None and found.optimum_final is not None:
        scanned = f"of {found.optimum_users:,} users, who have {found.optimum_final:.2f}"
        say(f"  optimum {found.optimum:>31.2f}   {scanned}")
    gain = found.improvement
    say(
        f"improvement per user: {gain.mean:.1%} on average; {gain.much_share:.1%} of users improve "
        f"by more than 40 %, {gain.better_share:.1%} at all, {gain.worse_share:.1%} get worse"
    )
    if found.overlays is not None:
        _tell_overlays(found)


def _tell_overlays(found: Alignment) -> None:
    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    shaped = found.overlays
    assert shaped is not None
    say(f"{shaped.overlays:,} overlays, of which {shaped.complete:,} link everyone with everyone")
    say("  of the others      before      after   difference (95 %)        effect")
    for name, change in shaped.changes.items():
        difference = change.after - change.before
        say(
            f"  {name:<14} {change.before:>10.4f} {change.after:>10.4f}   "
            f"{difference:>+9.4f} ± {change.interval:<9.4f} {change.effect:>+6.3f} sd"
        )
    say(f"  parts that no link joins: at most {shaped.parts_most}")
    say(
        f"  overlays with a node that no view names: {shaped.unknown_before:,} before, "
        f"{shaped.unknown_after:,} after ({shaped.unknown_nodes:,} nodes); "
        f"nodes outside the strong core: {shaped.outside_nodes:,}"
    )
