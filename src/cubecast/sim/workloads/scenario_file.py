"""Scenario files: a run told step by step, in TOML.

about = "a newcomer waits for ever for a message sent before it came"

[params]                    # any field of `Params`
nodes = 4

[topics]
t = [0, 1, 2]               # subscribed from the start

[[do]]
at = 100                    # or: after = "question", once that is delivered at the node
node = 3
act = "subscribe"           # publish, subscribe, unsubscribe, register, crash, suspect
topic = "t"                 # may be left out if there is one topic

[[do]]
at = 300
node = 0
act = "publish"
label = "question"

[[do]]
at = 400
node = 1
act = "crash"               # at once, or with copies = 2 after sending two more publications;
                            # nodes of cubecast detect it, nodes of other protocols are told
[[do]]
at = 500
node = 0
act = "suspect"             # the node is told that its peer has crashed, which is not so
peer = 2

[[hold]]                    # make one link slow for some messages
from = 0
to = 3
delay = 500
kind = "pub"                # and, if wanted: publisher = 0, nth = 0

[[partition]]               # nothing sent from start until end passes between side and the rest
start = 1000
end = 2000
side = [0, 1]

[expect]                    # which properties each protocol breaks here
vcube-ps = ["completeness"]
cubecast = []
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal, cast

import msgspec

from cubecast.baselines import best_effort, single_root
from cubecast.protocol import messages
from cubecast.protocol.cluster import detector, views
from cubecast.protocol.paper import vcube_pb, vcube_ps
from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.sim.crashes.mortal_world import MortalWorld
from cubecast.sim.faults import Hold, Partition
from cubecast.sim.params import MAX_TIME, ParamError, Params
from cubecast.sim.protocols import PROTOCOLS
from cubecast.sim.scenarios import Scenario
from cubecast.sim.world import World
from cubecast.trace import ALL

KINDS = frozenset(
    getattr(thing, "kind")  # noqa: B009 - a class of any protocol
    for module in (messages, views, detector, vcube_ps, vcube_pb, best_effort, single_root)
    for thing in vars(module).values()
    if isinstance(thing, type) and isinstance(getattr(thing, "kind", None), str)
)
"""The kinds that a `hold` can name: all kinds of messages of all protocols."""


class ScriptError(ValueError):
    """A scenario file cannot be read or does not make sense."""


class ScenarioStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One command of the application at one node."""

    node: NodeId
    act: Literal["publish", "subscribe", "unsubscribe", "register", "crash", "suspect"]
    at: Time | None = None
    after: str | None = None
    topic: Topic = ""
    label: str | None = None
    copies: int | None = None
    peer: NodeId | None = None


MORTAL = ("crash", "suspect")
"""Acts of the world, not of an application."""


class HoldEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `Hold` as it is written in a file."""

    source: NodeId = msgspec.field(name="from")
    to: NodeId
    delay: Time
    kind: str = "pub"
    publisher: NodeId | None = None
    nth: int | None = None


class PartitionEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `Partition` as it is written in a file."""

    start: Time
    end: Time
    side: list[NodeId]


class ScriptFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole scenario file."""

    about: str
    params: dict[str, Any] = {}
    topics: dict[Topic, list[NodeId]] = {}
    steps: list[ScenarioStep] = msgspec.field(name="do", default_factory=list)
    holds: list[HoldEntry] = msgspec.field(name="hold", default_factory=list)
    partitions: list[PartitionEntry] = msgspec.field(name="partition", default_factory=list)
    expect: dict[str, list[str]] = {}


@dataclass(frozen=True, slots=True)
class Script:
    """A scenario read from a file, and the verdict that the file expects of each protocol."""

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
    for name in ("holds", "partitions"):
        if name in script.params:
            raise ScriptError(f"params.{name}: write [[{name[:-1]}]] tables instead")
    defaults = dict(script.params)
    defaults["partitions"] = tuple(
        Partition(cut.start, cut.end, sum(1 << node for node in set(cut.side) if node >= 0))
        for cut in script.partitions
    )
    defaults["holds"] = tuple(
        Hold(hold.source, hold.to, hold.delay, hold.kind, hold.publisher, hold.nth)
        for hold in script.holds
    )
    if not script.topics:
        raise ScriptError("no topics: say who is subscribed from the start in [topics]")
    _check_ids(script, Params().with_(script.params).nodes)
    _check_steps(script)
    _check_links(script)
    _check_expectations(script)

    def plan(world: World, params: Params, rng: Random) -> None:
        _check_ids(script, params.nodes)
        Performance(world, script).start()

    mortal = any(step.act in MORTAL for step in script.steps)
    return Script(Scenario(path.stem, script.about, plan, defaults, mortal=mortal), script.expect)


def _check_ids(script: ScriptFile, nodes: int) -> None:
    named = [node for members in script.topics.values() for node in members]
    named += [step.node for step in script.steps]
    named += [step.peer for step in script.steps if step.peer is not None]
    named += [node for hold in script.holds for node in (hold.source, hold.to)]
    named += [node for cut in script.partitions for node in cut.side]
    for node in named:
        if not 0 <= node < nodes:
            raise ScriptError(f"there is no node {node} among 0 to {nodes - 1}")
    for topic, members in script.topics.items():
        if len(set(members)) < len(members):
            raise ScriptError(f"topics.{topic}: a node is listed twice")


def _check_steps(script: ScriptFile) -> None:
    labels = [step.label for step in script.steps if step.label is not None]
    for number, step in enumerate(script.steps, 1):
        where = _where(number, step)
        if step.label is not None and step.act != "publish":
            raise ScriptError(f"{where}: only a publication has a label")
        if step.label is not None and labels.count(step.label) > 1:
            raise ScriptError(f"{where}: another publication is labelled {step.label!r} too")
        if (step.peer is not None) != (step.act == "suspect"):
            raise ScriptError(f"{where}: a suspicion, and nothing else, has a peer")
        if step.peer == step.node:
            raise ScriptError(f"{where}: a node suspects others, not itself")
        if step.copies is not None and (step.act != "crash" or step.copies < 0):
            raise ScriptError(f"{where}: only a crash waits for copies, and for 0 or more")
        if (step.at is None) == (step.after is None):
            raise ScriptError(f"{where}: say either `at` or `after`")
        if step.after is not None and step.after not in labels:
            raise ScriptError(f"{where}: nothing is labelled {step.after!r}")
        if step.topic and step.topic not in script.topics:
            raise ScriptError(f"{where}: topic {step.topic!r} is not in [topics]")
        if not step.topic and len(script.topics) > 1 and step.act not in MORTAL:
            raise ScriptError(f"{where}: say which topic")


def _where(number: int, step: ScenarioStep) -> str:
    return f"step {number} ({step.act} at node {step.node})"


def _check_links(script: ScriptFile) -> None:
    times = [("at", step.at) for step in script.steps if step.at is not None]
    times += [("delay", hold.delay) for hold in script.holds]
    times += [("start", cut.start) for cut in script.partitions]
    times += [("end", cut.end) for cut in script.partitions]
    for name, time in times:
        if not 0 <= time <= MAX_TIME:
            raise ScriptError(f"{name} must be 0 to {MAX_TIME}, not {time}")
    for hold in script.holds:
        if hold.kind not in KINDS:
            raise ScriptError(
                f"hold: unknown kind {hold.kind!r}; there are: {', '.join(sorted(KINDS))}"
            )
    for cut in script.partitions:
        if cut.end <= cut.start:
            raise ScriptError(f"a partition ends at {cut.end} but starts at {cut.start}")


def _check_expectations(script: ScriptFile) -> None:
    for protocol, properties in script.expect.items():
        if protocol not in PROTOCOLS:
            raise ScriptError(
                f"expect: unknown protocol {protocol!r}; there are: {', '.join(PROTOCOLS)}"
            )
        for name in properties:
            if name not in ALL:
                raise ScriptError(
                    f"expect.{protocol}: unknown property {name!r}; there are: {', '.join(ALL)}"
                )


class Performance:
    """The application of a scenario file."""

    def __init__(self, world: World, script: ScriptFile) -> None:
        self._world = world
        self._script = script
        self._only_topic = next(iter(script.topics))
        self._label_of: dict[int, str] = {}
        self._waiting: dict[tuple[NodeId, str], list[ScenarioStep]] = {}

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

    def _perform(self, step: ScenarioStep, _: None, now: Time) -> None:
        try:
            self._command(step)
        except ValueError as error:  # what the protocol does not offer, such as open groups
            number = self._script.steps.index(step) + 1
            raise ScriptError(f"{_where(number, step)} at time {now}: {error}") from error

    def _command(self, step: ScenarioStep) -> None:
        topic = step.topic or self._only_topic
        mortal = cast(MortalWorld, self._world)  # where there are crashes and suspicions
        if step.node not in self._world.running():
            return
        match step.act:
            case "crash" if step.copies is not None:
                mortal.crash_after(step.node, step.copies)
            case "crash":
                mortal.crash(step.node)
            case "suspect" if step.peer is not None:
                mortal.suspect(step.node, step.peer)
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
        """Do nothing: steps wait for times and deliveries only."""
