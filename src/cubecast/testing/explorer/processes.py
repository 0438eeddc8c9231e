"""One process in an exploration: its state as a number, its moves as a table.

A process is a deterministic function of its state and of what happens to it, so each pair is
computed once: the state is unpickled, the event is handed to the very protocol object, and what
it did through its port is written down.  States and messages are numbered by their canonical form
(`cubecast.testing.explorer.canonical_forms`), so that two ways to the same state meet.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from io import BytesIO
from typing import Any, NamedTuple, TypeAlias

from cubecast.protocol.cluster.views import View
from cubecast.protocol.port import (
    Accusation,
    Denial,
    Message,
    NodeId,
    Port,
    Process,
    Publication,
    Seq,
    Stream,
    Time,
    Topic,
)
from cubecast.protocol.subscriptions.patterns import Pattern
from cubecast.testing.explorer.canonical_forms import LONG, CanonicalForm, Likeness

_SETTLE_LIMIT = 1000


class ProcessCall(NamedTuple):
    """Something that happens to a process: a call with its arguments."""

    call: str  # publish, subscribe, unsubscribe, register, follow, depart, message, wake, consume,
    # suspect, trust
    topic: Topic = ""
    name: str = ""  # publish: the message's name
    sender: NodeId = -1  # of a message; or the node suspected or trusted
    message: int = -1  # the number of the message that arrives
    seal: int = -1  # the number of its sender's `Member.seal`


class Note(NamedTuple):
    """Something a process did that a trace records."""

    kind: str  # deliver, subscribe, join, left, state, gap, discard, view, accept,
    # departed, begin, crash, restart
    topic: Topic = ""
    name: str = ""
    source: NodeId = -1
    seq: int = -1
    held: int = 0
    retained: int = 0
    limit: int = 0
    members: int = 0
    life: int = 0
    """Of an ``accept``, and of a ``gap`` or ``discard`` of one message: the incarnation."""


class CallOutcome(NamedTuple):
    """What follows from an event at a process."""

    body: int  # the next state, or -1 after a crash
    sent: tuple[tuple[NodeId, int, int], ...]  # (peer, message, seal), in order
    notes: tuple[Note, ...]
    crash: str = ""


class Consumption(NamedTuple):
    """The application has taken in a stream up to and including `seq`."""

    topic: Topic
    stream: Stream
    seq: Seq


class KeptForProcess(NamedTuple):
    """What the world keeps for a process between two events."""

    clock: int = 0
    armed: bool = False
    """It has asked to be woken later."""
    backlog: tuple[tuple[Topic, str], ...] = ()
    """Publications that it refused for now."""
    unconsumed: tuple[Consumption, ...] = ()
    """What was delivered and the application has not taken in."""
    slow: bool = False
    """Whether the application takes in what is delivered later, not at once."""
    trusts: int = 0
    """The members of its view that it takes for alive, without itself, as a bit mask."""
    suspects: int = 0
    """Those that it takes for dead."""
    life: str = ""
    """The uid of its present life."""
    lives: tuple[tuple[NodeId, str], ...] = ()
    """The slots and uids of the members of its view."""


class Body(NamedTuple):
    """A process between two events."""

    state: bytes
    kept: KeptForProcess


class RecordingPort:
    """Writes down what a process does while one event is handled."""

    def __init__(
        self, number_of: Callable[[Message], int], number_of_seal: Callable[[Any], int]
    ) -> None:
        self._number_of = number_of
        self._number_of_seal = number_of_seal
        self.process: Any = None
        """The process that uses this port at the moment."""
        self.reset(KeptForProcess())

    def reset(self, kept: KeptForProcess) -> None:
        """Begin to handle an event."""
        self.now: Time = kept.clock * LONG
        self.sent: list[tuple[NodeId, int, int]] = []
        self.notes: list[Note] = []
        self.writable_topics: list[Topic] = []
        self.wake_at: Time | None = None
        self.backlog = list(kept.backlog)
        self.unconsumed = list(kept.unconsumed)
        self._slow = kept.slow

    def relay(self, peers: Sequence[NodeId], message: Message) -> None:
        number, seal = self._number_of(message), self._seal()
        self.sent.extend((peer, number, seal) for peer in peers)

    def control(self, peer: NodeId, message: Message) -> None:
        self.sent.append((peer, self._number_of(message), self._seal()))

    def reach(self, address: str, message: Message) -> None:
        """Nodes are where their number says."""
        self.control(int(address), message)

    def _seal(self) -> int:
        """The number of the sending life's `Member.seal`, if the process has lives."""
        seal = getattr(self.process, "seal", None)
        return -1 if seal is None else self._number_of_seal(seal())

    def deliver(self, publication: Publication) -> bool:
        for offset, name in enumerate(publication.body):
            self.notes.append(
                Note(
                    "deliver",
                    publication.topic,
                    str(name),
                    publication.stream.source,
                    publication.first + offset,
                )
            )
        if self._slow:
            last = publication.first + len(publication.body) - 1
            self.unconsumed.append(Consumption(publication.topic, publication.stream, last))
        return not self._slow

    def joined(self, topic: Topic) -> None:
        self.notes.append(Note("join", topic))

    def gap(self, topic: Topic, skipped: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        self._lost("gap", topic, skipped)

    def discard(self, topic: Topic, dropped: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        self._lost("discard", topic, dropped)

    def _lost(self, kind: str, topic: Topic, spans: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        """Note each message; of processes that have no lives, how many they are."""
        if not hasattr(self.process, "incarnation"):
            count = sum(last - first + 1 for first, last in spans.values())
            self.notes.append(Note(kind, topic, seq=count))
            return
        for (source, life), (first, last) in spans.items():
            for seq in range(first, last + 1):
                self.notes.append(Note(kind, topic, source=source, seq=seq, life=life))

    def view(self, epoch: int, members: int) -> None:
        self.notes.append(Note("view", seq=epoch, members=members))

    def mute(self, accusation: Accusation) -> None:
        """Not noted; what follows from it is."""

    def denied(self, denial: Denial) -> None:
        """Not noted: no node lies in an exploration."""

    def excluded(self) -> None:
        """Not noted; what follows from it is."""

    def departed(self) -> None:
        self.notes.append(Note("departed"))

    def left(self, topic: Topic) -> None:
        self.notes.append(Note("left", topic))

    def forgotten(self, topic: Topic) -> None:
        """Not noted: an application does not see it."""

    def discovered(self, topic: Topic) -> None:
        self.notes.append(Note("subscribe", topic))

    def followed(self, key: Hashable, complete: bool) -> None:
        self.notes.append(Note("join", str(key)))

    def listed(self, ticket: Hashable, topics: Sequence[tuple[Topic, int]], complete: bool) -> None:
        """Not noted: no script asks for a list of topics."""

    def writable(self, topic: Topic) -> None:
        self.writable_topics.append(topic)

    def wake(self, at: Time) -> None:
        if self.wake_at is None or at < self.wake_at:
            self.wake_at = at


MakeProcess: TypeAlias = Callable[[NodeId, Port], Process]


class Processes:
    """The numbered states of all processes, the numbered messages, and the table of moves."""

    def __init__(self, likeness: Likeness) -> None:
        self.port = RecordingPort(self.number_of, self._number_of_seal)
        self.bodies: list[Body] = []
        self._relative = likeness.relative
        self._seals: list[Any] = []
        self._seal_numbers: dict[bytes, int] = {}
        self._form = CanonicalForm(self.port, likeness)
        self._shared = _Shared(self.port, self._form.numbered, self.number_of)
        self.messages = self._shared.messages
        self._message_forms: list[bytes] = []
        self._message_numbers: dict[bytes, int] = {}
        self._copies: list[Message] = []
        """Messages sent in the current event that equal a numbered one."""
        self._by_bytes: dict[Body, int] = {}
        self._by_form: dict[tuple[bytes, KeptForProcess], int] = {}
        self._outcomes: dict[tuple[int, ProcessCall], CallOutcome] = {}

    # -- messages --------------------------------------------------------------------------------

    def number_of(self, message: Message) -> int:
        """The number of a message that is sent; it must not change any more."""
        number = self._form.numbered.get(id(message))
        if number is not None:
            return number
        form = self._form.of_content(message)
        number = self._message_numbers.get(form)
        if number is None:
            number = self._message_numbers[form] = len(self.messages)
            self.messages.append(message)
            self._message_forms.append(form)
        else:
            self._copies.append(message)
        self._form.numbered[id(message)] = number
        return number

    def _number_of_seal(self, seal: Any) -> int:
        form = self._form.of_content(seal)
        number = self._seal_numbers.get(form)
        if number is None:
            number = self._seal_numbers[form] = len(self._seals)
            self._seals.append(seal)
        return number

    def check_messages(self) -> None:
        """Assert that no message was changed after it was sent."""
        for message, form in zip(self.messages, self._message_forms, strict=True):
            assert self._form.of_content(message) == form, f"changed after it was sent: {message!r}"

    # -- states ----------------------------------------------------------------------------------

    def first(
        self, node: NodeId, make: MakeProcess, members: Iterable[tuple[Topic, int]], slow: bool
    ) -> CallOutcome:
        """A fresh process that knows the members agreed beforehand; it has sent nothing."""
        port = self.port
        kept = KeptForProcess(clock=int(self._relative), slow=slow)
        port.process = None
        port.reset(kept)
        process = make(node, port)
        for topic, mask in members:
            process.establish(topic, mask)
        assert not port.sent, "sent before anything happened"
        kept = kept._replace(armed=port.wake_at is not None)
        return CallOutcome(self._intern(process, _opinion(process, kept)), (), tuple(port.notes))

    def process(self, body: int) -> Process:
        """The protocol object in a numbered state, to look at."""
        return self._load(self.bodies[body].state)

    def after(self, body: int, event: ProcessCall) -> CallOutcome:
        """What `event` does to a process in state `body`; computed once."""
        key = (body, event)
        outcome = self._outcomes.get(key)
        if outcome is None:
            outcome = self._outcomes[key] = self._run(body, event)
        return outcome

    def _run(self, number: int, event: ProcessCall) -> CallOutcome:
        state, kept = self.bodies[number]
        if event.call == "wake":
            kept = kept._replace(clock=kept.clock + 1, armed=False)
        port = self.port
        port.reset(kept)
        while self._copies:
            del self._form.numbered[id(self._copies.pop())]
        port.process = process = self._load(state)
        try:
            self._handle(process, event)
            self._settle(process)
            load = process.load()
        except Exception as error:
            return CallOutcome(-1, (), (), f"{type(error).__name__}: {error}")
        if 0 < load.limit < load.held + load.retained:
            port.notes.append(
                Note("state", held=load.held, retained=load.retained, limit=load.limit)
            )
        kept = kept._replace(
            armed=kept.armed or port.wake_at is not None,
            backlog=tuple(port.backlog),
            unconsumed=tuple(port.unconsumed),
        )
        body = self._intern(process, _opinion(process, kept))
        return CallOutcome(body, tuple(port.sent), tuple(port.notes))

    def _handle(self, process: Process, event: ProcessCall) -> None:
        port = self.port
        now = port.now
        match event.call:
            case "message":
                message = self.messages[event.message]
                if event.seal < 0:
                    process.on_message(message, event.sender, now)
                else:
                    seal = self._seals[event.seal]
                    process.on_packet(message, event.sender, seal, now)  # type: ignore[attr-defined]
            case "suspect" | "trust" as opinion:
                getattr(process, opinion)(event.sender, now)
            case "depart":
                process.depart(now)  # type: ignore[attr-defined]
            case "wake":
                process.on_wake(now)
            case "publish":
                port.backlog.append((event.topic, event.name))
                if [topic for topic, _ in port.backlog].count(event.topic) == 1:
                    self._offer(process, event.topic)
            case "consume":
                topic, stream, seq = port.unconsumed.pop(0)
                process.consumed(topic, stream, seq, now)  # type: ignore[attr-defined]
            case "subscribe":
                process.subscribe(event.topic, now)
            case "unsubscribe":
                port.unconsumed = [one for one in port.unconsumed if one.topic != event.topic]
                process.unsubscribe(event.topic, now)
            case "register":
                process.register(event.topic, now)
            case "follow":
                process.follow(event.topic, Pattern(event.topic), now)  # type: ignore[attr-defined]
            case _:
                raise ValueError(f"no such event: {event.call!r}")

    def _settle(self, process: Process) -> None:
        """Retry what was refused and fire what is due, until nothing more happens by itself."""
        port = self.port
        for _ in range(_SETTLE_LIMIT):
            if port.writable_topics:
                self._offer(process, port.writable_topics.pop(0))
            elif port.wake_at is not None and port.wake_at <= port.now:
                port.wake_at = None
                process.on_wake(port.now)
            else:
                return
        raise RuntimeError(f"not settled after {_SETTLE_LIMIT} wakes in one instant")

    def _offer(self, process: Process, topic: Topic) -> None:
        """Offer the publications of a topic that wait, in order, as far as they are taken."""
        port = self.port
        for entry in [entry for entry in port.backlog if entry[0] == topic]:
            life: int | None = getattr(process, "incarnation", None)
            if not process.publish(topic, (entry[1],), 1, port.now):
                return
            port.backlog.remove(entry)
            if life is not None:
                port.notes.append(Note("accept", topic, entry[1], life=life))

    def _intern(self, process: Process, kept: KeptForProcess) -> int:
        body = Body(self._dump(process), kept)
        number = self._by_bytes.get(body)
        if number is None:
            self._form.now = kept.clock * LONG
            same = kept._replace(clock=0) if self._relative else kept
            key = (self._form.of(process), same)
            number = self._by_form.get(key)
            if number is None:
                number = self._by_form[key] = len(self.bodies)
                self.bodies.append(body)
            self._by_bytes[body] = number
        return number

    def _dump(self, process: Process) -> bytes:
        buffer = BytesIO()
        _Pickler(buffer, self._shared).dump(process)
        return buffer.getvalue()

    def _load(self, state: bytes) -> Process:
        process: Process = _Unpickler(BytesIO(state), self._shared).load()
        return process


def _opinion(process: Any, kept: KeptForProcess) -> KeptForProcess:
    """`kept` with the members that a process trusts and suspects, if it has views."""
    if not hasattr(process, "who"):
        return kept
    life, view = process.who.uid, process.view
    if view is None:
        return kept._replace(trusts=0, suspects=0, life=life, lives=())
    others = view.mask & ~(1 << process.node)
    suspects = process.suspects & others
    lives = tuple([(slot, who.uid) for slot, who in sorted(view.members.items())])
    return kept._replace(trusts=others & ~suspects, suspects=suspects, life=life, lives=lives)


class _Pickler(pickle.Pickler):
    """Leaves out what all states share: the port, the messages sent, frozen data, enumerations."""

    def __init__(self, file: BytesIO, shared: _Shared) -> None:
        super().__init__(file, protocol=5)
        self._shared = shared

    def reducer_override(self, obj: Any) -> Any:
        return self._shared.reduce(obj)


class _Unpickler(pickle.Unpickler):
    """Finds again what `_Pickler` left out."""

    def __init__(self, file: BytesIO, shared: _Shared) -> None:
        super().__init__(file)
        self._shared = shared

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name == _recall.__name__:
            return self._shared.recall
        return super().find_class(module, name)


def _recall(number: int) -> Any:
    """Stands in a pickle for `_Shared.recall`, which the unpickler puts in its place."""
    raise RuntimeError(f"shared object {number} read without its table")


class _Shared:
    """Objects that are one and the same in every state, by number."""

    def __init__(
        self, port: RecordingPort, numbered: dict[int, int], number_of: Callable[[Any], int]
    ) -> None:
        self._objects: list[Any] = [port]
        self._numbers: dict[int, int] = {id(port): 0}
        self._numbered = numbered
        self._number_of = number_of
        self.messages: list[Message] = []

    def reduce(self, obj: Any) -> Any:
        """How to pickle an object: as a number if it is shared, else as usual."""
        message = self._numbered.get(id(obj))
        if message is None and type(obj) is View:  # large, in many places, and never changed
            message = self._number_of(obj)
        if message is not None:
            return _recall, (-1 - message,)
        number = self._numbers.get(id(obj))
        if number is None:
            if not _is_constant(type(obj)):  # type: ignore[arg-type]  # classes are hashable
                return NotImplemented
            number = self._numbers[id(obj)] = len(self._objects)
            self._objects.append(obj)
        return _recall, (number,)

    def recall(self, number: int) -> Any:
        return self._objects[number] if number >= 0 else self.messages[-1 - number]


@cache
def _is_constant(kind: type[Any]) -> bool:
    """Whether instances are made once and never change: frozen dataclasses, enumerations."""
    parameters = getattr(kind, "__dataclass_params__", None)
    return issubclass(kind, Enum) or (parameters is not None and parameters.frozen)
