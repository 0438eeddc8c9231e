"""One node in an exploration: its process, its history and its place in the script, as a number.

Everything that can happen to a node is a *reaction*: from a local state, by an event, to the next
local state, with the messages sent.  Reactions are computed once and kept in a table, so a global
step costs a few look-ups however much the protocol does.
"""

from __future__ import annotations

from itertools import takewhile
from typing import NamedTuple

from cubecast.protocol.port import Load, Message, NodeId, Process
from cubecast.testing.explorer.cases import Case, Step
from cubecast.testing.explorer.histories import HistoryEntry, Past, without_end
from cubecast.testing.explorer.processes import KeptForProcess, Note, ProcessCall, Processes

TIMERS = -1
"""In the place of an item that arrives: the node's timers fire."""
CONSUMES = -2
"""In the place of an item that arrives: the application takes in what was delivered first."""
DEAD = -1
"""In the place of a process's state: there is no process."""


class LocalState(NamedTuple):
    """The number of a process's state and of a history, and how many steps were taken."""

    body: int
    past: int
    position: int


class Reaction(NamedTuple):
    """What follows from something that happens to one node, and what it sends."""

    local: int
    sent: tuple[int, ...] = ()
    urgent: tuple[int, ...] = ()
    eager: bool = False  # the node's next step follows at once
    crash: str = ""


class Item(NamedTuple):
    """A message in flight."""

    sender: NodeId
    receiver: NodeId
    message: int
    seal: int = -1


class Nodes:
    """Numbered local states, numbered items, and the table of reactions."""

    def __init__(self, case: Case) -> None:
        self.processes = Processes(case.likeness)
        self._rules = case.rules
        self._case = case
        self._scripts = [_script(case, node) for node in range(case.nodes)]
        """What each node does; after `None`, what it does if it begins again."""
        self.locals: list[LocalState] = []
        self.node: list[NodeId] = []
        """Local state: the node that it belongs to."""
        self.step: list[Step | None] = []
        """Local state: the step that may be taken now."""
        self.joins: list[int] = []
        """Local state: how often the node has joined."""
        self.reactions: list[dict[int, Reaction]] = []
        """Local state: {item that arrives, or `TIMERS`: what follows}."""
        self.dead: list[bool] = []
        """Local state: whether the node has crashed."""
        self.gone: list[bool] = []
        """Local state: whether the node has crashed or departed, so that it gets no messages."""
        self._step_reactions: dict[tuple[int, tuple[int, ...]], Reaction] = {}
        self._opinions: dict[tuple[int, str, NodeId], Reaction] = {}
        self._numbers: dict[tuple[NodeId, LocalState], int] = {}
        self._pasts: list[Past] = []
        self._past_numbers: dict[tuple[HistoryEntry, ...], int] = {}
        self.items: list[Item] = []
        self.receiver: list[NodeId] = []
        """Item: where it goes."""
        self.order: list[tuple[NodeId, NodeId, int] | None] = []
        """Item of an ordered kind: its link and its number there."""
        self.patient: list[bool] = []
        self._urgent: list[bool] = []
        self._item_numbers: dict[Item, int] = {}

    def start(self, node: NodeId, case: Case) -> int:
        """The local state in which a node begins."""
        entries: tuple[HistoryEntry, ...] = ()
        for topic, mask in case.members.items():
            if mask >> node & 1:
                entries += (
                    HistoryEntry(Note("subscribe", topic)),
                    HistoryEntry(Note("join", topic)),
                )
        slow = bool(case.slow >> node & 1)
        first = self.processes.first(node, case.make, case.members.items(), slow)
        if first.notes:
            entries += (*[HistoryEntry(note) for note in first.notes], HistoryEntry(Note("begin")))
        return self._number(node, LocalState(first.body, self._past(entries), 0))

    # -- looking at a local state ----------------------------------------------------------------

    def kept(self, local: int) -> KeptForProcess:
        body = self.locals[local].body
        return KeptForProcess() if body == DEAD else self.processes.bodies[body].kept

    def process(self, local: int) -> Process:
        return self.processes.process(self.locals[local].body)

    def load(self, local: int) -> Load:
        return self.process(local).load()

    def past(self, local: int) -> Past:
        return self._pasts[self.locals[local].past]

    def remaining(self, local: int) -> tuple[Step, ...]:
        """The steps that were not taken."""
        script = self._scripts[self.node[local]][self.locals[local].position :]
        return tuple([step for step in takewhile(lambda step: step is not None, script) if step])

    def message(self, item: int) -> Message:
        return self.processes.messages[self.items[item].message]

    # -- reactions -------------------------------------------------------------------------------

    def react(self, local: int, item: int) -> Reaction:
        """What follows when `item` arrives, when timers fire, when the application consumes."""
        reaction = self.reactions[local].get(item)
        if reaction is None:
            if item == TIMERS:
                event = ProcessCall("wake")
            elif item == CONSUMES:
                event = ProcessCall("consume")
            else:
                sender, _, message, seal = self.items[item]
                event = ProcessCall("message", sender=sender, message=message, seal=seal)
            reaction = self.reactions[local][item] = self._react(local, event)
        return reaction

    def take_step(self, local: int, stamp: tuple[int, ...]) -> Reaction:
        """What follows when a node takes its next step; `stamp` counts the joins of each node."""
        reaction = self._step_reactions.get((local, stamp))
        if reaction is None:
            step = self.step[local]
            assert step is not None
            event = ProcessCall(step.action, step.topic, step.name)
            note = Note(step.action, step.topic, step.name, self.node[local])
            said = HistoryEntry(note, stamp if step.action == "publish" else (), step.after)
            reaction = self._step_reactions[local, stamp] = self._react(local, event, said)
        return reaction

    def hear(self, local: int, opinion: str, slot: NodeId) -> Reaction:
        """What follows when a node is told to ``suspect`` or to ``trust`` another."""
        key = (local, opinion, slot)
        reaction = self._opinions.get(key)
        if reaction is None:
            reaction = self._opinions[key] = self._react(local, ProcessCall(opinion, sender=slot))
        return reaction

    def crash(self, local: int) -> int:
        """The local state of a node that has ended at once: nothing is left but its history."""
        past = self._past((*without_end(self.past(local).entries), HistoryEntry(Note("crash"))))
        return self._number(self.node[local], LocalState(DEAD, past, 0))

    def restart(self, local: int) -> int:
        """The local state of a node at which a process begins after one that has ended."""
        node, case = self.node[local], self._case
        assert case.reborn is not None
        slow = bool(case.slow >> node & 1)
        first = self.processes.first(node, case.reborn, (), slow)
        notes = (Note("restart"), *first.notes)
        past = self._past((*self.past(local).entries, *[HistoryEntry(note) for note in notes]))
        again = self._scripts[node].index(None) + 1
        return self._number(node, LocalState(first.body, past, again))

    def _react(self, local: int, event: ProcessCall, said: HistoryEntry | None = None) -> Reaction:
        node = self.node[local]
        body, past, position = self.locals[local]
        outcome = self.processes.after(body, event)
        if outcome.crash:
            return Reaction(local, crash=f"node {node}: {outcome.crash}")
        entries = tuple([HistoryEntry(note) for note in outcome.notes])
        if said is not None:
            entries = (said, *entries)
            position += 1
        if entries:
            past = self._past((*self._pasts[past].entries, *entries))
        after = self._number(node, LocalState(outcome.body, past, position))
        items = [self._item(Item(node, *sent)) for sent in outcome.sent]
        step = self.step[after]
        return Reaction(
            after,
            tuple([item for item in items if not self._urgent[item]]),
            tuple([item for item in items if self._urgent[item]]),
            step is not None and step.eager,
        )

    # -- numbering -------------------------------------------------------------------------------

    def _number(self, node: NodeId, local: LocalState) -> int:
        key = (node, local)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.locals)
            self.locals.append(local)
            self.node.append(node)
            self.step.append(self._enabled_step(node, local))
            self.joins.append(self._pasts[local.past].joins)
            self.dead.append(local.body == DEAD)
            self.gone.append(local.body == DEAD or self._pasts[local.past].departed)
            self.reactions.append({})
        return number

    def _enabled_step(self, node: NodeId, local: LocalState) -> Step | None:
        script = self._scripts[node]
        if local.body == DEAD or local.position == len(script):
            return None
        step = script[local.position]
        if step is None:
            return None
        past = self._pasts[local.past]
        waits = step.joined and step.topic not in past.subscribed
        match step.action:
            case "depart":  # an application leaves its topics first
                waits = waits or bool(past.subscribed | past.leaving)
            case "subscribe" | "register" | "follow":  # what a member keeps of these has no form
                kept = self.processes.bodies[local.body].kept
                waits = waits or bool(kept.life and not kept.lives)
        return None if waits or not past.delivered.issuperset(step.after) else step

    def _past(self, entries: tuple[HistoryEntry, ...]) -> int:
        number = self._past_numbers.get(entries)
        if number is None:
            number = self._past_numbers[entries] = len(self._pasts)
            self._pasts.append(Past(entries))
        return number

    def _item(self, item: Item) -> int:
        number = self._item_numbers.get(item)
        if number is None:
            number = self._item_numbers[item] = len(self.items)
            self.items.append(item)
            self.receiver.append(item.receiver)
            message = self.processes.messages[item.message]
            kinds = _kinds_of(message)
            self.patient.append(bool(kinds & self._rules.patient))
            self._urgent.append(bool(kinds & self._rules.urgent))
            place = getattr(message, "number", 0) if kinds & self._rules.ordered else None
            self.order.append(None if place is None else (item.sender, item.receiver, place))
        return number


def _script(case: Case, node: NodeId) -> tuple[Step | None, ...]:
    """The steps of a node, and those of a process that begins there again."""
    steps = tuple([step for step in case.steps if step.node == node])
    again = [
        Step(node, "subscribe", topic=t) for t, mask in case.members.items() if mask >> node & 1
    ]
    return (*steps, None, *again)


def _kinds_of(message: Message) -> frozenset[str]:
    """The kind of a message and of the message it carries."""
    carried = getattr(message, "message", None)
    return frozenset({message.kind, getattr(carried, "kind", message.kind)})
