"""``cubecast universe gossip``: spreads events over the overlays of a universe."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

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
    from cubecast.spark.universe.gossip import GossipPlan, GossipTotals

COMMAND = "universe gossip"
T = TypeVar("T")


def gossip(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A universe.")],
    events: Annotated[
        str,
        typer.Option(
            metavar="N|all", help="A sample of the posts, or so many made ones if it has none."
        ),
    ] = "1000",
    mode: Annotated[
        str,
        typer.Option(metavar="start|faithful|repairing,...", help="Which views carry the events."),
    ] = "start,faithful,repairing",
    loss: Annotated[
        str, typer.Option(metavar="SHARE,...", help="The chance that a message is lost.")
    ] = "0",
    dead: Annotated[
        str, typer.Option(metavar="SHARE,...", help="Nodes that are dead while events spread.")
    ] = "0",
    dead_ids: Annotated[
        str,
        typer.Option(
            metavar="kept|removed|refilled,...",
            help="What views do with dead ids; refilled: overlays are those of the living.",
        ),
    ] = "kept",
    back: Annotated[
        str,
        typer.Option(metavar="N,...", help="So many members of each view send to its owner, too."),
    ] = "0",
    rounds: Annotated[int, typer.Option(min=0, help="Rounds of StaN before events.")] = 8,
    smallest: Annotated[
        int, typer.Option(min=1, help="Leave out topics with fewer subscribers; the paper: 30.")
    ] = 30,
    run: Annotated[int, typer.Option(help="Names all chance: the same run, the same counts.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="NEW_DIR", help="Keep the counts of every event, and the summary."),
    ] = None,
    memory: Annotated[
        int | None, typer.Option(metavar="MIB", help="For Spark; else half of this machine's.")
    ] = None,
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish events over the overlays of a universe; count who gets them, and what they cost.

    A node that receives an event sends it once to its views in those of the event's topics that it
    subscribes to. A link that several of these topics share is crossed once (messages); without
    sharing it would be crossed once per topic (topic messages). The views are those before StaN
    (start), and after its rounds. All combinations of the lists are measured.

    On a cluster give --out: networks are kept beside it, where all executors must see them.

    \b
    Examples:
      cubecast universe gossip askubuntu --loss 0,0.01,0.05,0.1
          real posts, before and after StaN, with messages lost
      cubecast universe gossip askubuntu --dead 0.1 --dead-ids kept,removed,refilled
          a tenth of the nodes has died
      cubecast universe gossip w8 --smallest 1 --mode repairing --back 0,1 --events 5000
          a generated universe, with made events
    """
    with spark_errors(COMMAND):
        plan = _plan(events, mode, loss, dead, dead_ids, back, rounds, smallest, run)
        found = _run(directory, plan, out, memory, master, spark_settings(COMMAND, conf))
    if as_json:
        typer.echo(json.dumps({"outcomes": [one.facts() for one in found]}))
    else:
        _tell(found)


def _plan(
    events: str,
    mode: str,
    loss: str,
    dead: str,
    dead_ids: str,
    back: str,
    rounds: int,
    smallest: int,
    run: int,
) -> GossipPlan:
    from cubecast.spark.universe.gossip import GossipPlan

    return GossipPlan(
        views=_listed("mode", mode, str),  # type: ignore[arg-type]  # the plan checks
        losses=_listed("loss", loss, float),
        deads=_listed("dead", dead, float),
        dead_ids=_listed("dead-ids", dead_ids, str),  # type: ignore[arg-type]
        backs=_listed("back", back, int),
        rounds=rounds,
        smallest=smallest,
        events=_events(events),
        run=run,
    )


def _events(text: str) -> int | None:
    from cubecast.spark.universe.errors import UniverseError

    try:
        return None if text == "all" else int(text)
    except ValueError:
        raise UniverseError(f"--events is one whole number or all, not {text!r}") from None


def _listed(option: str, text: str, kind: Callable[[str], T]) -> list[T]:
    from cubecast.spark.universe.errors import UniverseError

    try:
        return [kind(one.strip()) for one in text.split(",")]
    except ValueError:
        raise UniverseError(f"--{option} is a list of numbers with commas, not {text!r}") from None


def _run(
    directory: Path,
    plan: GossipPlan,
    out: Path | None,
    memory: int | None,
    master: str,
    conf: dict[str, str],
) -> list[GossipTotals]:
    from cubecast.spark.large import large_session
    from cubecast.spark.universe import gossip as job
    from cubecast.spark.universe.store import new_folder, open_universe

    universe = open_universe(directory)
    with (
        new_folder(out) as scratch,
        steps() as tell,
        large_session(master, memory_mib=memory, conf=conf) as session,
    ):
        found = job.gossip(session, universe, plan, folder=scratch, keep=scratch, tell=tell)
        if scratch is not None:
            text = json.dumps({"outcomes": [one.facts() for one in found]}, indent=1)
            (scratch / "summary.json").write_text(text + "\n", encoding="utf-8")
    return found


def _tell(found: list[GossipTotals]) -> None:
    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    if not found:
        return
    say(_heading(found))
    say(
        "  views      back  loss  dead  ids        delivered  complete        messages"
        "  topic messages  shared  duplicates  round  last"
    )
    for one in found:
        variant, facts = one.variant, one.facts()
        ids = variant.dead_ids if variant.dead else ""
        say(
            f"  {variant.views:<10} {variant.back:>4} {variant.loss:>5.0%} {variant.dead:>5.0%}"
            f"  {ids:<9} {_cell(one.delivered, '.4%'):>10} {_cell(one.complete, '.2%'):>9}"
            f" {facts['messages']:>15,} {facts['topic_messages']:>15,}"
            f" {_cell(one.shared, '.2%'):>7} {_cell(facts['duplicates_per_delivery'], '.2f'):>11}"
            f" {_cell(facts['mean_round'], '.2f'):>6} {_cell(facts['mean_last_round'], '.2f'):>5}"
        )
    say(
        "delivered: pairs of event and live subscriber; complete: events that miss none; duplicates"
        " per delivery; round: mean of deliveries; last: mean of events"
    )


def _heading(found: list[GossipTotals]) -> str:
    """How many events every variant got, their origin, and those that are not counted."""
    first = found[0]
    heading = f"{first.counts['events'] + first.counts['without_topic']:,} events"
    if first.made:
        heading += ", made: the universe has no publications"
    if first.left_out:
        heading += f" ({first.left_out:,} posts without a topic that is measured left out)"
    # Overlays of the living alone may lack a topic.
    if lost := max(one.counts["without_topic"] for one in found):
        heading += f"; up to {lost:,} not counted where no subscriber of their topics is alive"
    return heading


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
