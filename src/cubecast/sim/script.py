"""Scenario files: a run told step by step, in TOML.

about = "a newcomer waits for ever for a message sent before it came"

[params]                    # any field of `Params`
nodes = 4

[topics]
t = [0, 1, 2]               # subscribed from the start

[[do]]
at = 100                    # or: after = "question", once that is delivered at the node
node = 3
act = "subscribe"           # publish, subscribe, unsubscribe, register
topic = "t"                 # may be left out if there is one topic

[[do]]
at = 300
node = 0
act = "publish"
label = "question"

[[hold]]                    # make one link slow for some messages
from = 0
to = 3
delay = 500
kind = "pub"                # and, if wanted: publisher = 0, nth = 0

[expect]                    # which properties each protocol breaks here
vcube-ps = ["completeness"]
cubecast = []
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.sim.faults import Hold
from cubecast.sim.params import ParamError, Params
from cubecast.sim.scenarios import Scenario
from cubecast.sim.world import World
from cubecast.trace import ALL


class ScriptError(ValueError):
    """A scenario file cannot be read or does not make sense."""


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One command of the application at one node."""

    node: NodeId
    act: Literal["publish", "subscribe", "unsubscribe", "register"]
    at: Time | None = None
    after: str | None = None
    topic: Topic = ""
    label: str | None = None


class HoldEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `Hold` as it is written in a file."""

    source: NodeId = msgspec.field(name="from")
    to: NodeId
    delay: Time
    kind: str = "pub"
    publisher: NodeId | None = None
    nth: int | None = None


class ScriptFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole scenario file."""

    about: str
    params: dict[str, Any] = {}
    topics: dict[Topic, list[NodeId]] = {}
    steps: list[Step] = msgspec.field(name="do", default_factory=list)
    holds: list[HoldEntry] = msgspec.field(name="hold", default_factory=list)
    expect: dict[str, list[str]] = {}


@dataclass(frozen=True, slots=True)
class Script:
    """A scenario read from a file, and what the file expects of each protocol."""

    scenario: Scenario
    expect: dict[str, list[str]]


def read_script(path: Path) -> Script:
    """Read and check a scenario file; `ScriptError` says in one line what is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScriptError(f"cannot read {path}: {_reason(error)}") from error
    try:
        script = msgspec.convert(tomllib.loads(text), ScriptFile)
        return _checked(path, script)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, ParamError, ScriptError) as error:
        raise ScriptError(f"{path}: {error}") from error


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _checked(path: Path, script: ScriptFile) -> Script:
    defaults = dict(script.params)
    defaults["holds"] = tuple(
        Hold(hold.source, hold.to, hold.delay, hold.kind, hold.publisher, hold.nth)
        for hold in script.holds
    )
    params = Params().with_(defaults)
    if not script.topics:
        raise ScriptError("no topics: say who is subscribed from the start in [topics]")
    _check_ids(script, params.nodes)
    _check_steps(script)
    for protocol, properties in script.expect.items():
        for name in properties:
            if name not in ALL:
                raise ScriptError(
                    f"expect.{protocol}: unknown property {name!r}; there are: {', '.join(ALL)}"
                )

    def plan(world: World, params: Params, rng: Random) -> None:
        Performance(world, script).start()

    return Script(Scenario(path.stem, script.about, plan, defaults), script.expect)


def _check_ids(script: ScriptFile, nodes: int) -> None:
    named = [node for members in script.topics.values() for node in members]
    named += [step.node for step in script.steps]
    named += [node for hold in script.holds for node in (hold.source, hold.to)]
    for node in named:
        if not 0 <= node < nodes:
            raise ScriptError(f"there is no node {node} among 0 to {nodes - 1}")


def _check_steps(script: ScriptFile) -> None:
    labels = {step.label for step in script.steps if step.label is not None}
    for number, step in enumerate(script.steps, 1):
        where = f"step {number} ({step.act} at node {step.node})"
        if (step.at is None) == (step.after is None):
            raise ScriptError(f"{where}: say either `at` or `after`")
        if step.after is not None and step.after not in labels:
            raise ScriptError(f"{where}: nothing is labelled {step.after!r}")
        if step.topic and step.topic not in script.topics:
            raise ScriptError(f"{where}: topic {step.topic!r} is not in [topics]")
        if not step.topic and len(script.topics) > 1:
            raise ScriptError(f"{where}: say which topic")


class Performance:
    """The application of a scenario file."""

    def __init__(self, world: World, script: ScriptFile) -> None:
        self._world = world
        self._script = script
        self._only_topic = next(iter(script.topics))
        self._label_of: dict[int, str] = {}
        self._waiting: dict[tuple[NodeId, str], list[Step]] = {}

    def start(self) -> None:
        """Establish the topics and plan every step."""
        world = self._world
        world.application = self
        for topic, members in self._script.topics.items():
            world.establish(topic, members)
        for step in self._script.steps:
            if step.at is not None:
                world.post(step.at, self._perform, step)
            elif step.after is not None:
                self._waiting.setdefault((step.node, step.after), []).append(step)

    def _perform(self, step: Step, _: None, now: Time) -> None:
        topic = step.topic or self._only_topic
        match step.act:
            case "publish":
                ident = self._world.publish(step.node, topic)
                if step.label is not None:
                    self._label_of[ident] = step.label
            case "subscribe":
                self._world.subscribe(step.node, topic)
            case "unsubscribe":
                self._world.unsubscribe(step.node, topic)
            case "register":
                self._world.register(step.node, topic)

    def on_deliver(self, world: World, node: NodeId, topic: Topic, ident: int) -> None:
        label = self._label_of.get(ident)
        if label is not None:
            for step in self._waiting.pop((node, label), ()):
                self._perform(step, None, world.now)

    def on_joined(self, world: World, node: NodeId, topic: Topic) -> None:
        """Steps wait for times and deliveries only."""
