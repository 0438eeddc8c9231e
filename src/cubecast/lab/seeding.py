"""Which points of a grid need more seeds before their verdicts are decided.

Seeds are added in few large steps, never one by one: looking again and again until a verdict falls
makes wrong verdicts likelier.  A point is looked at with the seeds it has, and then with 1, 4 and
16 times those that its experiment asks for: `LOOKS` looks at most.  Each look decides by intervals
of confidence 1 - 0.05 / `LOOKS` (`cubecast.lab.verdicts`), so that all looks together are wrong in
at most 5 % of the cases.

Pure: it computes what is wanted, and runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cubecast.lab.cells import Cell, Settings
from cubecast.lab.comparisons import PaperNumber
from cubecast.lab.experiment import Experiment, matches
from cubecast.lab.verdicts import LOOKS, Row, judge
from cubecast.lab.workloads import WORKLOADS

STEPS = tuple(4**k for k in range(LOOKS - 1))
"""Seeds at the later looks, in multiples of the experiment's own number."""


def more_seeds(
    experiment: Experiment, rows: Sequence[Row], limit: int, *, quick: bool = False
) -> dict[int, int]:
    """{position in the grid: seeds wanted in all} for every point of an undecided verdict.

    Limits of the experiment's file on seeds do not apply here: `limit` does.  Empty if all is
    decided, or if the points of undecided verdicts have `limit` seeds or had the last look.
    """
    own = [row for row in rows if row.experiment == experiment.id]
    seeds = {_identity(row.settings): row.n for row in own}
    points = experiment.points(quick=quick)
    wanted: dict[int, int] = {}
    for number, verdict in zip(experiment.paper, judge(experiment, own), strict=True):
        if verdict.verdict != "undecided":
            continue
        for position in _points_of(number, points):
            has = seeds.get(_identity(points[position]), 0)
            count = _next(experiment.seeds.full, has, limit)
            if count > has:
                wanted[position] = count
    return dict(sorted(wanted.items()))


def cells_of(
    experiment: Experiment, wanted: Mapping[int, int], *, quick: bool = False
) -> list[Cell]:
    """The cells of these points with so many seeds each, including those that were run already."""
    work, points = WORKLOADS[experiment.workload], experiment.points(quick=quick)
    return [
        Cell(experiment.id, position, points[position], seed, work.cost(points[position]))
        for position, count in sorted(wanted.items())
        for seed in range(count)
    ]


def _next(full: int, has: int, limit: int) -> int:
    """Seeds at the next look; the present number if this was the last."""
    later = [full * step for step in STEPS if full * step > has]
    return min(later[0], limit) if later else has


def _points_of(number: PaperNumber, points: Sequence[Settings]) -> Iterable[int]:
    """The positions of all points that the comparison uses."""
    sides: list[Settings] = [number.at]
    if number.versus:
        sides.append({**number.at, **number.versus})
    for position, point in enumerate(points):
        if any(matches(point, side) for side in sides) and _within(number, point):
            yield position


def _within(number: PaperNumber, point: Settings) -> bool:
    axes = [number.along] if number.along else number.over
    x = point.get(axes[0]) if axes else None
    if not isinstance(x, int | float):
        return True
    return number.since <= x <= (number.until or x)


def _identity(settings: Settings) -> str:
    return repr(sorted(settings.items()))
