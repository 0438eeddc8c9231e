"""The progress of a sweep: cells done, cells left, time left.

Time left comes from the estimated costs of the cells, in seconds: at first as they are, shared by
the cores; later by the time that finished cells took per unit of cost.
An estimate that has run out before any cell has ended (compiling, a slow cluster) is not shown.
(Cells are not alike, and the expensive ones come first: their number would mislead.)
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn
from rich.progress import Progress as RichProgress

from cubecast.lab.cells import Cell
from cubecast.spark.results import Failure

LINE_EVERY_S = 15.0


class Progress(ABC):
    """Shows every cell that ends."""

    @contextmanager
    def shown(self, cells: Sequence[Cell], kept: int, cores: int) -> Iterator[None]:
        """For the time of a sweep over these cells; `kept` were finished before."""
        yield

    @abstractmethod
    def tell(self, text: str) -> None:
        """Show a note to the user who runs the sweep."""

    @abstractmethod
    def finished(self, cell: Cell) -> None: ...

    @abstractmethod
    def failed(self, cell: Cell, failure: Failure) -> None: ...

    @abstractmethod
    def refresh(self) -> None:
        """Called a few times a second."""


class Silence(Progress):
    """Shows nothing."""

    def tell(self, text: str) -> None:
        pass

    def finished(self, cell: Cell) -> None:
        pass

    def failed(self, cell: Cell, failure: Failure) -> None:
        pass

    def refresh(self) -> None:
        pass


class CellTally:
    """Counts cells and costs, and estimates the time left."""

    def __init__(
        self,
        cells: Sequence[Cell],
        kept: int,
        cores: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cores = cores
        self._clock = clock
        self._begun = clock()
        self.kept = kept
        self.cells = len(cells)
        self.done = 0
        self.failed = 0
        self._cost = sum(cell.cost for cell in cells)
        self._cost_done = 0.0

    def add(self, cell: Cell, *, failed: bool = False) -> None:
        self.done += 1
        self.failed += failed
        self._cost_done += cell.cost

    @property
    def left(self) -> int:
        return self.cells - self.done

    @property
    def share(self) -> float:
        """The finished share of the work, by cost."""
        return min(1.0, self._cost_done / self._cost) if self._cost > 0 else 1.0

    def seconds_left(self) -> float | None:
        """The estimated time left; None if it is not known yet."""
        if not self.left:
            return 0.0
        elapsed = self._clock() - self._begun
        if self._cost_done <= 0:
            expected = self._cost / self._cores - elapsed
            return expected if expected > 0 else None
        return elapsed * max(0.0, self._cost - self._cost_done) / self._cost_done

    def told(self) -> str:
        """ "12 of 40 cells, 28 left, about 1:05 to go"."""
        parts = [f"{self.done} of {self.cells} cells", f"{self.left} left"]
        if self.kept:
            parts.append(f"{self.kept} kept from before")
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.left:
            seconds = self.seconds_left()
            if seconds is None:
                parts.append("time left not known yet")
            else:
                parts.append(f"about {clock(seconds)} to go")
        return ", ".join(parts)


def clock(seconds: float) -> str:
    """65 is "1:05", 3665 is "1:01:05"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _OnConsole(Progress):
    """Counts the cells that end, and prints notes; `shown` makes the tally."""

    _tally: CellTally

    def __init__(self, console: Console) -> None:
        self._console = console

    def tell(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def finished(self, cell: Cell) -> None:
        self._tally.add(cell)

    def failed(self, cell: Cell, failure: Failure) -> None:
        self._tally.add(cell, failed=True)
        self.tell(f"failed: {failure}")


class Bar(_OnConsole):
    """A bar on a terminal."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._bar = RichProgress(
            SpinnerColumn("line"), BarColumn(), TextColumn("{task.description}"),
            console=console, transient=True,
        )  # fmt: skip

    @contextmanager
    def shown(self, cells: Sequence[Cell], kept: int, cores: int) -> Iterator[None]:
        self._tally = CellTally(cells, kept, cores)
        with self._bar:
            self._task: TaskID = self._bar.add_task(self._tally.told(), total=1.0)
            yield

    def refresh(self) -> None:
        told = self._tally.told()
        self._bar.update(self._task, completed=self._tally.share, description=told)


class LineProgress(_OnConsole):
    """A line now and then, without a terminal: in a log, in a pipe."""

    def __init__(self, console: Console, every_s: float = LINE_EVERY_S) -> None:
        super().__init__(console)
        self._every_s = every_s

    @contextmanager
    def shown(self, cells: Sequence[Cell], kept: int, cores: int) -> Iterator[None]:
        self._tally = CellTally(cells, kept, cores)
        self._last = time.monotonic()
        yield
        self.tell(self._tally.told())

    def refresh(self) -> None:
        now = time.monotonic()
        if now - self._last >= self._every_s:
            self._last = now
            self.tell(self._tally.told())


def progress_on(console: Console) -> Progress:
    """A bar on a terminal, lines elsewhere."""
    return Bar(console) if console.is_terminal else LineProgress(console)
