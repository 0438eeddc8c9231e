"""The papers' evaluation as a library: experiments, cells, measurements and verdicts.

Everything here works without Spark, except `run`: it runs experiments on Spark, as ``cubecast lab
run`` does, and gives their table, figures and verdicts (`cubecast.lab.running`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cubecast.lab.finished_run import Ran
    from cubecast.lab.running import Interrupted, run

__all__ = ["Interrupted", "Ran", "run"]


def __getattr__(name: str) -> Any:
    """Load the module that runs experiments on demand: importing the lab stays cheap."""
    if name in __all__:
        from cubecast.lab import running

        return getattr(running, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
