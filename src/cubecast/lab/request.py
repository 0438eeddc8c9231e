"""The request of a run: which experiments, in which form, and which details are kept."""

from __future__ import annotations

import platform
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from cubecast.lab.cells import Cell
from cubecast.lab.experiment import Experiment, ExperimentError, find, parse, shipped
from cubecast.lab.sources import code_digest, own_modules
from cubecast.lab.workload import WorkloadError
from cubecast.lab.workloads import WORKLOADS
from cubecast.plugins import source_of
from cubecast.version import __version__

MAX_CELLS = 1_000_000
"""Of one request: every cell is a file, and their list is in memory."""
OWN_NAMES = ("workload", "protocol")
"""Settings that may name an object of the user's own."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Experiments, their form, and the details to keep of each run."""

    experiments: tuple[Experiment, ...]
    quick: bool = False
    seeds: int | None = None
    keep: tuple[str, ...] = ()
    until_decided: int | None = None
    """Add seeds where a verdict is undecided, up to this many at a point."""

    def cells(self) -> list[Cell]:
        """Every point of every grid with every seed."""
        return [
            cell
            for experiment in self.experiments
            for cell in experiment.cells(quick=self.quick, seeds=self.seeds)
        ]


def ask(
    names: Sequence[str | Path | Experiment],
    *,
    quick: bool = False,
    seeds: int | None = None,
    keep: Collection[str] = (),
    until_decided: int | None = None,
) -> Asked:
    """Find the experiments; raises `ExperimentError` for unknown ones or an impossible request."""
    chosen = choose(names)
    for key, count in (("seeds", seeds), ("until_decided", until_decided)):
        if count is not None and (type(count) is not int or count < 1):
            raise ExperimentError(f"{key}: must be a whole number of at least 1, not {count!r}")
    if until_decided is not None and quick:
        raise ExperimentError("until_decided: goes with the full grid, not with the quick form")
    kept = tuple(dict.fromkeys([keep] if isinstance(keep, str) else keep))
    if seeds is not None:
        cells = seeds * sum(len(experiment.points(quick=quick)) for experiment in chosen)
        if cells > MAX_CELLS:
            raise ExperimentError(f"seeds: {cells:,} cells are too many; at most {MAX_CELLS:,}")
    for experiment in chosen:
        try:
            WORKLOADS[experiment.workload].refuse_to_keep(kept)
        except WorkloadError as error:
            raise ExperimentError(f"keep, {experiment.id}: {error.problem}") from None
        _refuse_folders(experiment, quick)
    return Asked(tuple(chosen), quick, seeds, kept, until_decided)


def _refuse_folders(experiment: Experiment, quick: bool) -> None:
    """Refuse a package without ``__init__.py``: nothing would tell that its sources changed."""
    points = experiment.points(quick=quick)
    for module in {module for point in points for module in own_modules(point)}:
        spec = find_spec(module)
        if spec is not None and spec.origin is None:
            raise ExperimentError(
                f"{experiment.path}: {module} is a folder without __init__.py: add one, so that it "
                "is sent to executors and its changes are noticed"
            )


def choose(names: Sequence[str | Path | Experiment]) -> list[Experiment]:
    """The named experiments, each once, in the order asked for."""
    found: dict[str, Experiment] = {}
    for name in names:
        for experiment in _named(name):
            known = found.setdefault(experiment.id, experiment)
            if known != experiment:
                raise ExperimentError(
                    f"{known.path} and {experiment.path} have the same id {known.id!r}; "
                    "change one, or run them one after the other with different --out"
                )
    if not found:
        raise ExperimentError(f"name an experiment; there are: {', '.join(shipped())}, or: all")
    return list(found.values())


def _named(name: str | Path | Experiment) -> list[Experiment]:
    """All experiments, those of a workload and of its variants, or one by its id or file."""
    if isinstance(name, Experiment):
        return [name]
    name, known = str(name), shipped()
    of_workload = [
        one for one in known.values() if one.workload == name or one.workload.startswith(f"{name}-")
    ]
    if name == "all":
        return list(known.values())
    return of_workload if of_workload and name not in known else [find(name)]


def text_of(experiment: Experiment) -> str:
    """The file of an experiment, as it was read: a shipped one or the user's."""
    text = experiment.text
    known = shipped().get(experiment.id) == experiment
    if not known and (not text or parse(text, experiment.path) != experiment):
        raise ExperimentError(
            f"{experiment.path}: the experiment was changed after it was read, or never read; "
            "write it into a file, as the results keep that beside their numbers"
        )
    return text


def versions() -> dict[str, str]:
    """The versions of everything that may change a result or its cost."""
    found = {"cubecast": __version__, "code": code_digest()}
    found["python"] = platform.python_version()
    for name in ("pyspark", "pyarrow", "numpy", "numba"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def own_sources(cells: Sequence[Cell]) -> list[Path]:
    """The modules that "module:object" in the settings names and that are not installed."""
    names = {
        str(cell.settings[name])
        for cell in cells
        for name in OWN_NAMES
        if ":" in str(cell.settings.get(name, ""))
    }
    found = {source_of(name) for name in names}
    return sorted(path for path in found if path is not None)
