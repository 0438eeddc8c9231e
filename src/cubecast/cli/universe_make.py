"""``cubecast universe generate``, ``draw`` and ``describe``: universes from nothing, or smaller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from cubecast.cli.on_spark import (
    ConfOption,
    JsonOption,
    MasterOption,
    spark_errors,
    spark_settings,
    steps,
)
from cubecast.cli.output import console, refuse

if TYPE_CHECKING:
    from cubecast.spark.universe.describe import Description, Distribution
    from cubecast.spark.universe.draw import Draws
    from cubecast.spark.universe.generate import Shape

ReplaceOption = Annotated[
    bool, typer.Option("--replace", help="Put it in place of another universe.")
]
RunOption = Annotated[
    int, typer.Option(min=0, help="The same run gives the same universe, another run another one.")
]
UniverseArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="A universe, as `ingest` or `generate` made it.")
]


# -- generate --------------------------------------------------------------------------------------


def generate(
    shape: Annotated[
        str, typer.Argument(metavar="L0..L8|W0..W8|grid|bipartite", help="What to generate.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the universe goes.")],
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes (grid, bipartite).")] = None,
    topics: Annotated[int | None, typer.Option(min=1, help="Topics (grid, bipartite).")] = None,
    pairs: Annotated[int | None, typer.Option(min=1, help="Subscriptions (bipartite).")] = None,
    smallest: Annotated[
        int | None, typer.Option(min=1, help="The least subscribers of a topic (bipartite).")
    ] = None,
    busiest: Annotated[
        int | None, typer.Option(min=1, help="The most topics of a node, about (bipartite).")
    ] = None,
    correlation: Annotated[
        float | None,
        typer.Option(help="0: only busy nodes are shared, to 1: communities (all but grid)."),
    ] = None,
    run: RunOption = 0,
    replace: ReplaceOption = False,
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Generate a universe: a table of who subscribes to what, of any size.

    L0 to L8 and W0 to W8 have the topics and nodes of Table 1 of the StaN paper: LiveJournal and
    Wikipedia, whole (0) and drawn smaller and smaller (8). `bipartite` is their generator with
    sizes of your own: power laws of subscribers per topic and of topics per node. `grid` is the
    paper's two-dimensional grid: nodes at random places follow topics within a power-law radius.

    \b
    Examples:
      cubecast universe generate L8 --out l8
      cubecast universe generate W1 --out w1          20 million subscriptions, in a minute or two
      cubecast universe generate grid --nodes 100 --topics 16 --out grid
      cubecast universe generate bipartite --nodes 5000 --topics 300 --pairs 20000 --out mine
    """
    command = "universe generate"
    given = {
        "nodes": nodes, "topics": topics, "pairs": pairs, "smallest": smallest,
        "busiest": busiest, "correlation": correlation,
    }  # fmt: skip
    with _one_line(command):
        wanted = _shape(shape, {name: value for name, value in given.items() if value is not None})
        with steps() as tell, _session(master, spark_settings(command, conf)) as session:
            from cubecast.spark.universe.jobs import generate_universe

            made = generate_universe(session, wanted, out, run=run, replace=replace, tell=tell)
    if as_json:
        facts = {"out": str(out), "topics": made.topics, "nodes": made.nodes, "pairs": made.pairs}
        typer.echo(json.dumps(facts))
        return
    console.print(
        f"{made.nodes:,} nodes x {made.topics:,} topics, {made.pairs:,} subscriptions in {out}",
        highlight=False, soft_wrap=True, markup=False,
    )  # fmt: skip


def _shape(name: str, given: dict[str, Any]) -> Shape:
    """The shape by the argument and the options."""
    from dataclasses import replace

    from cubecast.overlay.universes.presets import BipartiteParameters, preset
    from cubecast.spark.universe.generate import Grid

    if name == "grid":
        _only(name, given, {"nodes", "topics"})
        return Grid(**given)
    if name == "bipartite":
        missing = [f"--{one}" for one in ("nodes", "topics", "pairs") if one not in given]
        if missing:
            raise ValueError(f"bipartite needs {', '.join(missing)}")
        return BipartiteParameters(**given)
    _only(name, given, {"correlation"})
    known = preset(name)
    return replace(known, **given) if given else name


def _only(name: str, given: dict[str, Any], possible: set[str]) -> None:
    foreign = sorted(f"--{one}" for one in given if one not in possible)
    if foreign:
        raise ValueError(f"{name} has no option {', '.join(foreign)}; `bipartite` has all")


# -- draw ------------------------------------------------------------------------------------------


def draw(
    directory: UniverseArgument,
    seeds: Annotated[
        str, typer.Option(metavar="N,...", help="Random topics that a draw starts from.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the chosen universe goes; of several N, to DIR/seeds-N. Without it, sizes "
            "are shown and nothing is kept.",
        ),
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="Universes that are drawn for each N.")] = 100,
    smallest: Annotated[
        int, typer.Option(min=1, help="Topics with fewer subscribers inside are dropped.")
    ] = 30,
    prune_first: Annotated[
        bool,
        typer.Option("--prune-first", help="Take seeds only from topics that are large enough."),
    ] = False,
    run: RunOption = 0,
    replace: ReplaceOption = False,
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw smaller universes that are complete in themselves, and keep the median one.

    A draw takes random seed topics, their subscribers, and one more topic of each subscriber; all
    pairs between these users and topics stay. Topics with fewer than --smallest subscribers inside
    go, then nodes without topic. Of all draws the one with the median ratio of topics to nodes is
    kept (of an even number the lower median).

    In a trace with many tiny topics most seeds lead nowhere: --prune-first leaves those out.

    \b
    Examples:
      cubecast universe draw youtube --seeds 20 --prune-first --out youtube-20
      cubecast universe draw l1 --seeds 100,500,1000            sizes only
    """
    command = "universe draw"
    with _one_line(command):
        from cubecast.spark.universe.store import open_universe

        numbers = _numbers(seeds)
        source = open_universe(directory)

        def place(number: int) -> Path | None:
            return out / f"seeds-{number}" if out and len(numbers) > 1 else out

        with steps() as tell, _session(master, spark_settings(command, conf)) as session:
            from cubecast.spark.universe.jobs import draw_universes

            found = list(
                draw_universes(
                    session, source, numbers, place, draws=draws, smallest=smallest, run=run,
                    prune_first=prune_first, replace=replace, tell=tell,
                )
            )  # fmt: skip
    if as_json:
        typer.echo(json.dumps([_draw_facts(one, place(one.seeds)) for one in found]))
    else:
        _tell_draws(found)
        if out is not None:
            console.print(f"in {out}", highlight=False, soft_wrap=True, markup=False)


def _numbers(text: str) -> list[int]:
    try:
        found = [int(one.replace("_", "")) for one in text.split(",")]
    except ValueError:
        raise ValueError(f"--seeds {text}: numbers separated by commas are needed") from None
    if len(set(found)) < len(found):
        raise ValueError(f"--seeds {text}: a number is there twice")
    return found


def _draw_facts(found: Draws, out: Path | None) -> dict[str, Any]:
    def facts(one: Any) -> dict[str, Any]:
        return {
            "draw": one.number, "topics": one.topics, "nodes": one.nodes, "pairs": one.pairs,
            "ratio": one.ratio,
        }  # fmt: skip

    return {
        "seeds": found.seeds,
        "out": None if out is None else str(out),
        "chosen": facts(found.chosen),
        "draws": [facts(one) for one in found.sizes],
    }


def _tell_draws(found: list[Draws]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("seeds", "topics", "nodes", "pairs", "topics/nodes", "nodes of all draws"):
        table.add_column(name, justify="right")
    for one in found:
        chosen, nodes = one.chosen, [each.nodes for each in one.sizes]
        sizes = (one.seeds, chosen.topics, chosen.nodes, chosen.pairs)
        table.add_row(
            *(f"{size:,}" for size in sizes),
            f"{chosen.ratio:.3f}",
            f"{min(nodes):,} to {max(nodes):,}",
        )
    console.print(table)


# -- describe --------------------------------------------------------------------------------------


def describe(
    directory: UniverseArgument,
    plots: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw distributions and the heat map there.")
    ] = None,
    resamples: Annotated[
        int, typer.Option(min=0, max=10_000, help="Synthetic data sets to judge each fit with.")
    ] = 100,
    topics: Annotated[
        int, typer.Option(min=1, max=3_000, help="The largest topics, compared with each other.")
    ] = 600,
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what a universe looks like: sizes, power laws, correlation.

    Subscribers per topic and topics per node are fitted with a power law by maximum likelihood; the
    Kolmogorov-Smirnov distance chooses where it starts. p is the share of synthetic power laws that
    fit worse: below 0.1 the data are no power law, strictly taken. "whole" is the exponent of a law
    over all sizes that are there. Correlation is Pearson's, between the subscribers of two topics.
    --plots needs matplotlib: pip install 'cubecast[lab]'.

    \b
    Examples:
      cubecast universe describe l8
      cubecast universe describe youtube --plots pictures
    """
    command = "universe describe"
    with _one_line(command):
        from cubecast.spark.universe.store import open_universe

        draw_plots = None if plots is None else _plotter(command)
        source = open_universe(directory)
        with steps() as tell, _session(master, spark_settings(command, conf)) as session:
            from cubecast.spark.universe.describe import describe as described

            table = source.read(session, "subscriptions")
            found = described(table, resamples=resamples, topics=topics, tell=tell)
        pictures = draw_plots(found, plots, directory.name) if draw_plots else []
    if as_json:
        typer.echo(json.dumps({**found.facts(), "plots": [str(path) for path in pictures]}))
        return
    _tell_description(found)
    for path in pictures:
        console.print(f"drawn: {path}", highlight=False, soft_wrap=True, markup=False)


def _plotter(command: str) -> Any:
    """The function that draws; a missing package is reported before the work."""
    try:
        import matplotlib

        from cubecast.spark.universe.plots import draw_plots

        del matplotlib
    except ImportError as error:
        refuse(command, f"--plots needs {error.name}: pip install 'cubecast[lab]'")
    return draw_plots


def _tell_description(found: Description) -> None:
    from cubecast.spark.universe.correlation import MILD, STRONG

    say = console.print
    say(
        f"{found.nodes:,} nodes x {found.topics:,} topics, {found.pairs:,} subscriptions",
        highlight=False,
    )
    table = Table("", box=None, pad_edge=False)
    for name in ("mean", "median", "p99", "most", "exponent", "from", "p", "whole"):
        table.add_column(name, justify="right")
    table.add_row("subscribers per topic", *_row(found.per_topic))
    table.add_row("topics per node", *_row(found.per_node))
    say(table)
    seen = found.correlation
    if len(seen.topics) > 1:
        say(
            f"correlation of the {len(seen.topics):,} largest topics: mean {seen.mean:.3f}, "
            f"{seen.share_above(MILD):.1%} of pairs above {MILD}, "
            f"{seen.share_above(STRONG):.1%} above {STRONG}",
            highlight=False, soft_wrap=True,
        )  # fmt: skip


def _row(distribution: Distribution) -> list[str]:
    quantiles = [f"{distribution.quantile(share):,}" for share in (0.5, 0.99, 1.0)]
    law = distribution.law
    fitted = ["-", "-", "-"]
    if law is not None:
        goodness = "-" if law.goodness is None else f"{law.goodness:.2f}"
        fitted = [f"{law.exponent:.2f} ± {law.error:.2f}", f"{law.least:,}", goodness]
    exponent = distribution.bounded_exponent
    whole = "-" if isnan(exponent) else f"{exponent:.2f}"
    return [f"{distribution.mean:,.1f}", *quantiles, *fitted, whole]


# -- shared ----------------------------------------------------------------------------------------


@contextmanager
def _one_line(command: str) -> Iterator[None]:
    """Refuse a command in one line if it fails, also for a size that cannot be."""
    with spark_errors(command):
        try:
            yield
        except ValueError as error:
            refuse(command, error)


@contextmanager
def _session(master: str, conf: dict[str, str]) -> Iterator[Any]:
    from cubecast.spark.session import spark_session

    with spark_session(master, conf=conf) as session:
        yield session
