"""Workloads: settings with defaults, metrics, a cost, and how a cell is measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from cubecast.lab.cells import Measurement, Settings, Trace, Value
from cubecast.plugins import PluginError

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


class WorkloadError(ValueError):
    """A setting has a value that cannot be measured."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


def anything(settings: Settings) -> None:
    """Accept all settings."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of run, and its settings.

    `measure` is a pure function: all chance comes from the settings and the seed.
    """

    name: str
    about: str
    defaults: Mapping[str, Value]
    metrics: tuple[str, ...]
    measure: Callable[[Settings, int], Measurement]
    cost: Callable[[Settings], float]
    """About how many seconds one run takes."""
    histograms: tuple[str, ...] = ()
    choices: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Settings that are one of a few words."""
    check: Callable[[Settings], None] = anything
    """Raises `WorkloadError` for settings that cannot be run."""
    traced: Callable[[Settings, int], tuple[Measurement, Trace]] | None = None
    """The same as `measure`, with the trace; None: no trace can be kept."""
    keeps: tuple[str, ...] = ()
    """The details of a run that can be kept beside its numbers."""

    def refuse_to_keep(self, keep: Collection[str]) -> None:
        """Raise `WorkloadError` if something of `keep` cannot be kept."""
        for what in keep:
            if what not in self.keeps:
                there = " and ".join(self.keeps) or "nothing"
                raise WorkloadError("keep", f"{self.name} keeps {there}, not {what!r}")

    def settings(self) -> list[str]:
        """The names of the settings of an experiment."""
        return [name for name in self.defaults if name != "workload"]

    def complete(self, point: Settings) -> Settings:
        """The settings with the defaults filled in, in a fixed order, and checked."""
        for name in point:
            if name not in self.defaults and name != "workload":
                there = ", ".join(self.settings())
                raise WorkloadError(name, f"unknown setting; there are: {there}")
        settings: dict[str, Value] = {"workload": str(point.get("workload", self.name))}
        settings |= {name: self._value(name, point) for name in self.settings()}
        self.check(settings)
        return settings

    def _value(self, name: str, point: Settings) -> Value:
        default = self.defaults[name]
        value = point.get(name, default)
        if type(default) is float and type(value) is int:
            value = float(value)
        if type(value) is not type(default):
            raise WorkloadError(name, f"must be {_KINDS[type(default)]}, not {value!r}")
        allowed = self.choices.get(name)
        try:
            known = allowed is None or value in allowed
        except PluginError as error:  # a choice of the user's own
            raise WorkloadError(name, str(error)) from None
        if not known:
            raise WorkloadError(name, f"must be one of {', '.join(allowed or ())}, not {value!r}")
        return value


def number(settings: Settings, name: str) -> float:
    """A setting that is a number."""
    value = settings[name]
    assert isinstance(value, int | float)
    return float(value)


def whole(settings: Settings, name: str) -> int:
    """A setting that is a whole number."""
    value = settings[name]
    assert isinstance(value, int)
    return value
