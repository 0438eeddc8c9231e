"""A directory of real results that is damaged and run again, beside an undamaged one."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cubecast.lab.cell_details import KEEPABLE
from cubecast.lab.cells import Cell, measure
from cubecast.lab.experiment import load
from cubecast.spark.progress import Silence
from cubecast.spark.results import Results, cell_name
from cubecast.spark.sweep import SweepOutcome, bring_up_to_date
from support.lab_toys import HELD_FROM, at_the_gate
from support.processes import alive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPARED = (
    "grid.parquet", "experiments/toy.toml", "tables/runs.parquet", "tables/histograms.parquet",
    "tables/points.parquet", "tables/distributions.parquet",
)  # fmt: skip
"""`timings` and `busyness` say where and when cells ran."""
POINTS, SEEDS = 3, 2
WORKLOAD = "support.lab_toys:TOYS"
EXPERIMENT = f"""
id = "toy"
title = "Toys"
source = "ours"
workload = "{WORKLOAD}"
metrics = ["latency", "messages"]
seeds = {{ full = {SEEDS} }}
grid = {{ nodes = {[2**n for n in range(POINTS)]}, gate = ["%s"] }}
"""


# -- damage ----------------------------------------------------------------------------------------


def emptied(path: Path, chance: random.Random) -> None:
    path.write_bytes(b"")


def cut(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def bit_flipped(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    at = chance.randrange(8 * len(content))
    content[at // 8] ^= 1 << at % 8
    path.write_bytes(content)


def deleted(path: Path, chance: random.Random) -> None:
    path.unlink()


def foreign(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(chance.randrange(1, 5000)))


def of_a_neighbour(path: Path, chance: random.Random) -> None:
    others = sorted(path.parent.glob(f"[!.]*{path.suffix}"))
    path.write_bytes(chance.choice(others).read_bytes())


def broken_json(path: Path, chance: random.Random) -> None:
    path.write_bytes(b'{"sweep": [')


DAMAGES: tuple[Callable[[Path, random.Random], None], ...] = (
    emptied, cut, bit_flipped, deleted, foreign, of_a_neighbour, broken_json,
)  # fmt: skip


@dataclass
class Heard(Silence):
    lines: list[str] = field(default_factory=list)

    def tell(self, text: str) -> None:
        self.lines.append(text)


class Lab:
    """A directory of results that is run again and again, and an undamaged one.

    All cells keep their messages and their traces.
    """

    def __init__(self, spark: SparkSession, folder: Path, out: Path) -> None:
        self._spark = spark
        self.gate = folder / "gate"
        self.file = folder / "toy.toml"
        self.whole = folder / "whole"
        self.out = out
        if not self.file.exists():
            self.file.write_text(EXPERIMENT % self.gate, encoding="utf-8")
            self.gate.touch()
        self.cells = load(self.file).cells()
        if not self.whole.exists():
            self.run(self.whole)
        shutil.copytree(self.whole, out)

    def run(self, out: Path, cells: list[Cell] | None = None) -> tuple[SweepOutcome, list[str]]:
        results, heard = Results(out), Heard()
        with results.opened():
            results.note_experiment("toy", self.file.read_text(encoding="utf-8"))
            outcome = bring_up_to_date(
                cells or self.cells, results, lambda: nullcontext(self._spark),
                measure=partial(measure, keep=KEEPABLE), keep=KEEPABLE, progress=heard,
            )  # fmt: skip
        return outcome, heard.lines

    @property
    def held(self) -> set[str]:
        """The keys of the cells that wait at the gate."""
        return {cell.key for cell in self.cells if int(cell.settings["nodes"]) >= HELD_FROM}

    @contextmanager
    def gate_closed(self) -> Iterator[None]:
        """Sweeps that lack a cell of `held` stand still in the block."""
        for note in self.gate.parent.glob(f"{self.gate.name}-*"):
            note.unlink()
        self.gate.unlink()
        try:
            yield
        finally:
            self.gate.touch()

    def waiting(self) -> list[int]:
        """The processes that measure a cell and wait at the gate."""
        return sorted(pid for pid in at_the_gate(self.gate) if alive(pid))

    def files(self) -> dict[str, list[Path]]:
        """The files, by their folders."""
        found: dict[str, list[Path]] = {}
        for path in sorted(self.out.rglob("[!.]*")):
            if path.is_file() and path.name != "spark.log":
                found.setdefault(path.relative_to(self.out).parts[0], []).append(path)
        return found

    def contents(self, out: Path) -> dict[str, bytes]:
        """What is the same in each run: tables, and what the cells of the grid have kept."""
        kept = [f"{folder}/{cell.key}.parquet" for folder in KEEPABLE for cell in self.cells]
        return {name: (out / name).read_bytes() for name in (*COMPARED, *kept)}

    def differing(self, out: Path | None = None) -> list[str]:
        """The files that are not those of the undamaged run."""
        there, wanted = self.contents(out or self.out), self.contents(self.whole)
        return [name for name, content in wanted.items() if there[name] != content]

    def damage(self, chance: random.Random) -> list[tuple[str, Path]]:
        """Damage one to four files, of any folder alike; what was done to which."""
        done: dict[Path, str] = {}
        for _ in range(chance.randrange(1, 5)):
            files = self.files()
            path, how = chance.choice(files[chance.choice(sorted(files))]), chance.choice(DAMAGES)
            if path in done:
                continue
            before = path.read_bytes()
            how(path, chance)
            if not path.exists() or path.read_bytes() != before:
                done[path] = how.__name__
        return [(how, path) for path, how in done.items()]

    def mend(self, damaged: list[tuple[str, Path]], out: Path | None = None) -> None:
        """Run again: all is as after an undamaged run, and damaged cells are named."""
        names = {cell.key: cell_name(cell) for cell in self.cells}
        gone = {
            path.stem for how, path in damaged if (how, path.parent.name) == ("deleted", "cells")
        }
        hit = {
            names[path.stem]
            for how, path in damaged
            if path.parent.name in ("cells", *KEEPABLE) and path.stem not in gone
        }
        outcome, _ = self.run(out or self.out)
        assert set(outcome.damaged) == hit, damaged
        assert (outcome.failures, outcome.lost) == ((), ())
        assert not self.differing(out), damaged
