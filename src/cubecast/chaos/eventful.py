"""Eventful schedules: graceful leaves, patterns, short-lived topics, lossy subscribers, …

`enriched` adds ingredients that the stock schedules (`cubecast.chaos.drawing`) do not have, by a
chance of its own, so that a stock schedule stays what it is.  `ingredients` counts each of them in
a run.

| ingredient | what it is |
|---|---|
| leaves | a node leaves the cluster gracefully, and perhaps comes back |
| follows, unfollows | an application opens, or closes, a pattern |
| topics_born | topics without a subscriber at the beginning |
| born_in_faults | those of them that came into being while a fault lasted |
| short_lived | topics that one node uses once and leaves, as replies to requests |
| topic_leaves | subscriptions that end while the node stays |
| lossy | subscriptions that drop messages instead of holding publishers up |
| batches | frames of several messages |
| cut_short | crashes in the middle of a broadcast |
| slots_handed_over | slots that passed from one process to another |
| mutes | a node answers tests but no waves, or none of one node, longer than others wait for it |
| values, values_handed | retained messages, and how often a newcomer was handed one |
| quiet | stretches without publications, long enough for idle state to be forgotten |
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec

from cubecast.chaos.drawing import draw_schedule
from cubecast.chaos.schedule import Act, ApplicationStep, Deed, Fault, Schedule, checked
from cubecast.protocol.port import NodeId, Topic
from cubecast.trace import Record

PATTERNS = ("#", "+", "reply/#", "reply/+", "room/+", "room/#")
ROOMS = ("room/1", "room/2", "room/3")
MUTE = (12_000, 20_000)
"""How long a node is mute: longer than others wait for it (`cubecast.sim.protocols`)."""
IDLE = (50_000, 60_000)
"""How long a leader is idle: longer than others wait for it, and for it to be back."""
SETTLED = 3_000
"""After the other faults, until it is idle."""
QUIET = 20_000
"""A stretch without publications of at least this length counts as quiet."""


def draw_eventful(seed: int, nodes: int | None = None) -> Schedule:
    """The schedule of a seed with all ingredients."""
    return enriched(draw_schedule(seed, nodes), Random(f"chaos/{seed}/more"))


def draw_idle(seed: int, nodes: int | None = None) -> Schedule:
    """The schedule of a seed, and then a leader that lets no node in or out while others ask it to.

    A drawing of its own: the time until others go on without it is several times as long as all
    other faults.
    """
    schedule, rng = draw_schedule(seed, nodes), Random(f"chaos/{seed}/idle")
    begun, lasts = int(schedule.length), rng.randint(*IDLE)
    others = range(1, schedule.nodes)
    faults = [Fault(begun, "heal"), Fault(begun, "restart", 0)]
    faults += [Fault(begun + SETTLED, "idle", 0, lasts=lasts)]
    for node in rng.sample(others, min(len(others), rng.choice((1, 2, 3)))):
        at = begun + SETTLED + rng.randint(100, 4_000)
        act: Act = rng.choice(("crash", "leave"))
        faults.append(Fault(at, act, node, lasts=rng.randint(100, 4_000)))
    return checked(
        msgspec.structs.replace(
            schedule,
            about=f"{schedule.about}, with an idle leader",
            length=float(begun + SETTLED + lasts + 4_000),
            faults=(*schedule.faults, *sorted(faults, key=lambda fault: fault.at)),
        )
    )


def enriched(schedule: Schedule, rng: Random) -> Schedule:
    """A stock schedule with more of everything; each ingredient in about a third of them."""
    kitchen = _Kitchen(schedule, rng)
    for add in (
        kitchen.strangers,
        kitchen.leaves,
        kitchen.fuses,
        kitchen.patterns,
        kitchen.births,
        kitchen.replies,
        kitchen.lossy,
        kitchen.batches,
        kitchen.quiet,
        kitchen.mutes,
        kitchen.values,  # the last one, so that the others draw what they always drew
    ):
        if rng.random() < SHARE.get(add.__name__, 0.35):
            add()
    return kitchen.served()


SHARE = {"quiet": 0.08, "mutes": 0.15, "patterns": 0.45, "births": 0.5}


class _Kitchen:
    """One schedule in preparation."""

    def __init__(self, schedule: Schedule, rng: Random) -> None:
        self.rng = rng
        self.schedule = schedule
        self.nodes = schedule.nodes
        self.length = int(schedule.length)
        self.faults = list(schedule.faults)
        self.steps = list(schedule.steps)
        self.later: list[NodeId] = []
        crashing = {fault.node for fault in schedule.faults if fault.act == "crash"}
        steady = [node for node in range(schedule.nodes) if node not in crashing]
        self.anchor = rng.choice(steady) if steady else -1
        """A node that never leaves, so that there is a cluster to return to."""

    def served(self) -> Schedule:
        return checked(
            msgspec.structs.replace(
                self.schedule,
                about=f"{self.schedule.about}, eventful",
                nodes=self.nodes,
                length=float(self.length),
                later=tuple(self.later),
                topics=self.schedule.members(),
                faults=tuple(sorted(self.faults, key=lambda fault: fault.at)),
                steps=tuple(sorted(self.steps, key=lambda step: step.at)),
            )
        )

    def _at(self) -> int:
        return self.rng.randrange(self.length)

    def _node(self) -> NodeId:
        return self.rng.randrange(self.nodes)

    def _mortal(self) -> NodeId | None:
        others = [node for node in range(self.schedule.nodes) if node != self.anchor]
        return self.rng.choice(others) if others and self.anchor >= 0 else None

    # -- nodes -----------------------------------------------------------------------------------

    def strangers(self) -> None:
        """Let some nodes go for good and others come, which take the free slots."""
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            gone = self._mortal()
            at = self.rng.randint(100, max(101, self.length - 500))
            act = self.rng.choice(("crash", "leave"))
            if gone is not None:
                self.faults.append(Fault(at, "crash" if act == "crash" else "leave", gone))
            stranger = self.nodes
            self.nodes += 1
            self.later.append(stranger)
            come = min(self.length - 1, at + self.rng.choice((0, 100, 900, 3000)))
            self.faults.append(Fault(come, "restart", stranger))
            for topic in self.schedule.members():
                if self.rng.random() < 0.7:
                    self.steps.append(ApplicationStep(come + 1, "subscribe", stranger, topic))
                self.steps += self._words(stranger, topic, come, self.rng.randint(1, 5))

    def _words(
        self, node: NodeId, topic: Topic, start: int, count: int
    ) -> Iterator[ApplicationStep]:
        for _ in range(count):
            at = self.rng.randint(start, self.length)
            yield ApplicationStep(min(at, self.length - 1), "publish", node, topic)

    def leaves(self) -> None:
        """Nodes leave the cluster gracefully; most come back."""
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            node = self._mortal()
            if node is not None:
                lasts = 0 if self.rng.random() < 0.2 else self.rng.randint(100, 4000)
                self.faults.append(Fault(self._at(), "leave", node, lasts=lasts))

    def fuses(self) -> None:
        """Let nodes die between two copies of a message they send."""
        for _ in range(self.rng.choice((1, 2, 3))):
            node = self._mortal()
            if node is not None:
                lasts = 0 if self.rng.random() < 0.3 else self.rng.randint(50, 4000)
                copies = self.rng.choice((0, 1, 1, 2, 3))
                self.faults.append(Fault(self._at(), "crash", node, lasts=lasts, copies=copies))

    def mutes(self) -> None:
        """Let a node fall mute; other nodes need its answers before and after it is excluded."""
        node = self._mortal()
        if node is None:
            return
        at, lasts = self.length, self.rng.randint(*MUTE)
        self.length += lasts + self.rng.choice((100, 4000))
        to = (node + 1 + lasts) % self.nodes if lasts % 3 == 0 else -1  # no draw: seeds stay as is
        self.faults.append(Fault(at, "mute", node, lasts=lasts, to=-1 if to == node else to))
        for _ in range(self.rng.randint(2, 6)):
            begun = at + self.rng.choice((50, self.rng.randint(0, lasts)))
            topic, other = self.rng.choice(ROOMS), self._node()
            self.steps.append(ApplicationStep(begun, "subscribe", other, topic))
            self.steps += self._words(self._node(), topic, begun, self.rng.randint(1, 3))

    # -- topics ----------------------------------------------------------------------------------

    def patterns(self) -> None:
        """Let applications open and close patterns, before and after the topics exist."""
        for _ in range(self.rng.choice((1, 2, 3, 5))):
            node, pattern = self._node(), self.rng.choice(PATTERNS)
            at = self.rng.choice((0, self._at()))
            self.steps.append(ApplicationStep(at, "follow", node, pattern))
            if self.rng.random() < 0.4:
                self.steps.append(
                    ApplicationStep(self.rng.randint(at, self.length), "unfollow", node, pattern)
                )
        self.births()

    def births(self) -> None:
        """Let topics come into being, half of them during a fault."""
        for _ in range(self.rng.choice((1, 3, 6))):
            topic = self.rng.choice((*ROOMS, f"room/{self.rng.randint(4, 40)}"))
            fault = self.rng.choice(self.faults) if self.faults else None
            at = self._at()
            if fault is not None and self.rng.random() < 0.5:
                at = int(fault.at) + self.rng.randint(0, int(min(fault.lasts or 500, 3000)))
            at = min(at, self.length - 1)
            for node in range(self.nodes):
                if self.rng.random() < 0.3:
                    self.steps.append(ApplicationStep(at, "subscribe", node, topic))
            self.steps += self._words(self._node(), topic, at, self.rng.randint(1, 4))

    def replies(self) -> None:
        """Add requests with a topic of their own for the answer: used once and left."""
        for number in range(self.rng.choice((5, 20, 40, 120))):
            asks, answers = self._node(), self._node()
            topic, at = f"reply/{number}", self._at()
            heard = at + self.rng.choice((0, 60, 200))
            self.steps.append(ApplicationStep(at, "subscribe", asks, topic))
            self.steps.append(
                ApplicationStep(min(heard, self.length - 1), "publish", answers, topic)
            )
            left = heard + self.rng.choice((0, 100, 600))
            self.steps.append(
                ApplicationStep(min(left, self.length - 1), "unsubscribe", asks, topic)
            )

    def lossy(self) -> None:
        """Make some subscriptions lossy; a few change."""
        for _ in range(self.rng.choice((1, 2, 3))):
            node, at = self._node(), self.rng.choice((0, self._at()))
            topic = self.rng.choice((*self.schedule.members(), "room/1"))
            self.steps.append(ApplicationStep(at, "unsubscribe", node, topic))
            self.steps.append(
                ApplicationStep(min(at + 1, self.length), "subscribe", node, topic, lossy=True)
            )
            pause = min(at + self.rng.randint(50, 1500), self.length)
            self.faults.append(Fault(pause, "pause", node, lasts=self.rng.randint(300, 2500)))
            self.steps += [
                ApplicationStep(
                    min(pause + 10 * number, self.length), "burst", self._node(), topic, 5
                )
                for number in range(self.rng.randint(1, 8))
            ]

    def batches(self) -> None:
        """Add frames of several messages, none larger than a window."""
        most = min(9, int(self.schedule.params.get("window", 64)))
        for _ in range(self.rng.randint(2, 10) if most > 1 else 0):
            topic = self.rng.choice((*self.schedule.members(), *ROOMS))
            count = self.rng.randint(2, most)
            self.steps.append(ApplicationStep(self._at(), "batch", self._node(), topic, count))

    def values(self) -> None:
        """Add retained values, some removed, and newcomers before, between and after them."""
        topics = (*self.schedule.members(), *ROOMS[:2])
        for _ in range(self.rng.randint(2, 12)):
            topic, at = self.rng.choice(topics), self._at()
            fault = self.rng.choice(self.faults) if self.faults else None
            if fault is not None and self.rng.random() < 0.3:
                at = min(int(fault.at) + self.rng.randint(-30, 60), self.length - 1)
            act: Deed = "remove" if self.rng.random() < 0.15 else "retain"
            self.steps.append(ApplicationStep(max(at, 0), act, self._node(), topic))
            for _ in range(self.rng.choice((0, 1, 2))):
                left = self.rng.randrange(self.length)
                node = self._node()
                self.steps.append(ApplicationStep(left, "unsubscribe", node, topic))
                back = min(left + self.rng.choice((1, 60, 600)), self.length)
                self.steps.append(ApplicationStep(back, "subscribe", node, topic))

    def quiet(self) -> None:
        """Stop publications for long, then use the same topics again."""
        start = self.length
        self.length += QUIET + self.rng.choice((500, 20_000, 60_000))
        topics = sorted({step.topic for step in self.steps if step.topic and "+" not in step.topic})
        topics = [topic for topic in topics if "#" not in topic] or list(self.schedule.members())
        for _ in range(self.rng.randint(3, 12)):
            topic, at = self.rng.choice(topics), self.length + self.rng.randint(0, 1500)
            self.steps.append(ApplicationStep(at, "subscribe", self._node(), topic))
            self.steps.append(
                ApplicationStep(at + self.rng.randint(0, 300), "publish", self._node(), topic)
            )
        if self.rng.random() < 0.5:
            at = start + self.rng.randint(1000, QUIET)
            self.faults.append(Fault(at, "pause", self._node(), lasts=3000))
        self.length += 2500


# -- counting --------------------------------------------------------------------------------------


def ingredients(schedule: Schedule, trace: list[Record]) -> dict[str, float]:
    """Count each ingredient in a run."""
    count = _Counter(schedule)
    for record in trace:
        count.see(record)
    return {name: float(value) for name, value in count.found().items()}


class _Counter:
    def __init__(self, schedule: Schedule) -> None:
        self.spans = [
            (schedule.time(fault.at), schedule.time(fault.at + (fault.lasts or 1000)))
            for fault in schedule.faults
        ]
        self.old = set(schedule.members())
        self.born: dict[Topic, bool] = {}
        self.short: set[Topic] = set()
        self.wild = dict.fromkeys(("follows", "unfollows"), 0)
        self.topic_leaves = self.lossy = self.quiet = 0
        self.batches = sum(step.act == "batch" for step in schedule.steps)
        self.last_word = 0
        self.names: set[Topic] = set()

    def see(self, record: Record) -> None:
        match record.kind:
            case "subscribe" | "leave":
                self._membership(record)
            case "publish":
                self._topic(record)
                self.quiet += record.time - self.last_word >= QUIET
                self.last_word = record.time

    def _membership(self, record: Record) -> None:
        begins = record.kind == "subscribe"
        if "#" in record.topic or "+" in record.topic:
            self.wild["follows" if begins else "unfollows"] += 1
            return
        self._topic(record)
        self.lossy += begins and record.message == "lossy"
        self.topic_leaves += not begins
        if not begins and record.topic.startswith("reply/"):
            self.short.add(record.topic)

    def _topic(self, record: Record) -> None:
        self.names.add(record.topic)
        if record.topic not in self.old and record.topic not in self.born:
            inside = any(start <= record.time < end for start, end in self.spans)
            self.born[record.topic] = inside

    def found(self) -> dict[str, int]:
        return {
            **self.wild,
            "names": len(self.names),
            "topics_born": len(self.born),
            "born_in_faults": sum(self.born.values()),
            "short_lived": len(self.short),
            "topic_leaves": self.topic_leaves,
            "lossy": self.lossy,
            "batches": self.batches,
            "quiet": self.quiet,
        }
