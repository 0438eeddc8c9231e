"""VCube's failure detector: finds the correct nodes by rounds of tests over c(i,s).

Theory of operation.  In every round node i tests each j in c(i,s) for which i is the first correct
node of c(j,s): the first one that i does not suspect.  With each answer i learns what the tested
node knows (`cubecast.protocol.cluster.knowledge`).  So every node, correct or crashed, has at most
one tester per cluster: a round costs at most n·log2 n tests, and each crash is seen by every part
of the cube.
[B] 5.1 describes the same tests from the tester's side ("the first fault-free process of each
cluster"); without crashes both are the log2 n neighbours.  With crashes the sentence of [B] has
every tester go through a dead cluster one by one, up to n²/4 tests in a round.

The set of tested nodes has a closed form.  c(j,s) lists the block of 2^(s-1) ids around i by XOR
distance from j' = j XOR 2^(s-1), so i tests j when i is the correct node nearest to j'.  Going up
from the block {i}, each doubling adds a sibling block.  If a node in it is correct, the sibling
looks after itself; if none is, its ids fall to us, mirrored.  So the j' of i are i XOR all
combinations of the bits at which the sibling has no correct node.

Latency.  Let the stamps of a block of 2^s ids be known to all its correct nodes B(s) rounds after
the last event.  Once both halves know themselves, the right nodes test across; every correct node
is then tested from the other half, and what the half learns spreads in it within s-1 rounds, as
its nodes reach each other by tests over at most s-1 hops.  So B(s) <= B(s-1) + s and
B(d) <= d(d+1)/2, within the log2² n rounds of [B].

An asynchronous world has no perfect detector, so a silent node is not suspected at once.  It is
asked again, then `indirect` others are asked to test it for us (as in SWIM).  If one of them gets
an answer, the node is correct and our link to it is *broken*.  Any frame from it proves that it
lives and puts the suspicion off; but a node that sends and answers no test hears nothing, and is
suspected in the end.  Changes need not wait for the next test: they are told at once (`push`).

Invariants:

1. This node's own tests suspect a node not before `suspect_min` of silence, not later than after
   `suspect_max` of silence since its test, and not while it answers a node that we ask.
2. `broken` and `suspects` are disjoint sets of other members.
3. Every wait ends: a trial with an answer, a vouch or a suspicion, at most `deaf_after` after it
   began (once more that if this node itself was paused).
4. Entries told in another view are not believed; an answer from there still counts as an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import msgspec

from cubecast.protocol.cluster.knowledge import Knowledge, News, States
from cubecast.protocol.port import Message, NodeId, Time
from cubecast.topology import children, members_of

VARIANCE_WEIGHT = 4
"""An answer is late after smoothed round trip + 4 x its mean deviation (RFC 6298)."""
TESTS_REMEMBERED = 16
"""Tests per peer that are remembered, so that a late answer still tells the round trip."""


@dataclass(frozen=True, slots=True)
class DetectorConfig:
    """Bounds and delays of the detector, in the world's units of time."""

    test_every: Time = 2_000
    """Time from one round of a node to its next; a round costs 2·log2 n small messages."""

    suspect_min: Time = 4_000
    """A silence shorter than this is never suspected: more than a process may pause."""

    suspect_max: Time = 20_000
    """A silence longer than this is always suspected, however slow the answers were before.
    In between, the time is (retries + 1, + 2 with `indirect`) x (smoothed RTT + 4 x deviation)."""

    deaf_after: Time = 40_000
    """A node that is heard, but answers neither us nor others this long, is suspected as deaf."""

    retries: int = 2
    """A silent node is tested so many times more before others are asked."""

    indirect: int = 3
    """So many others are asked to test a silent node before it is suspected; 0: none."""

    push: bool = True
    """Tell changes at once; otherwise with the answers to tests only, as in [B]."""

    def __post_init__(self) -> None:
        for name in ("test_every", "suspect_min"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("retries", "indirect"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, not {getattr(self, name)}")
        for lower, upper in (("suspect_min", "suspect_max"), ("suspect_max", "deaf_after")):
            if getattr(self, upper) < getattr(self, lower):
                raise ValueError(
                    f"{upper} ({getattr(self, upper)}) must not be below "
                    f"{lower} ({getattr(self, lower)})"
                )

    @property
    def steps(self) -> int:
        """Waits of one trial: one per test, and two round trips where others are asked."""
        return self.retries + 1 + (2 if self.indirect else 0)

    @classmethod
    def synchronous(cls, round_trip: Time) -> DetectorConfig:
        """[B] 5.1: one test per round; a node that exceeds the known bound is faulty."""
        wait = round_trip + 1
        return cls(2 * wait, wait, wait, wait, retries=0, indirect=0, push=False)


class Test(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Are you there, and what changed after your version `since`?"""

    kind: ClassVar[str] = "test"
    number: int
    since: int = 0
    view: int = 0


class TestReply(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The answer to test `number`: the entries after the version asked for, up to `version`."""

    kind: ClassVar[str] = "test-reply"
    number: int
    version: int
    view: int = 0
    states: States = ()
    news: News = ()


class IndirectTest(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """`target` does not answer my trial `number`: test it for me, and vouch if it answers you."""

    kind: ClassVar[str] = "indirect-test"
    number: int
    target: NodeId


class Vouch(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """`target` has answered a test that I sent after your request for trial `number`."""

    kind: ClassVar[str] = "vouch"
    number: int
    target: NodeId


class Notice(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Entries that have just changed, sent unasked; what is lost comes with a later answer."""

    kind: ClassVar[str] = "notice"
    view: int = 0
    states: States = ()
    news: News = ()


DetectorMessage: TypeAlias = Test | TestReply | IndirectTest | Vouch | Notice


def targets(node: NodeId, members: int, alive: int) -> tuple[NodeId, ...]:
    """Members j that `node` tests: where it is the first of `alive` in c(j,s), s = 1, 2, …."""
    alive |= 1 << node
    found: list[NodeId] = []
    cell = [node]  # ids of our block to which we are the nearest of `alive`
    for k in range(max(members.bit_length() - 1, node).bit_length()):
        half = 1 << k
        across = [one ^ half for one in cell]
        found += [one for one in across if members >> one & 1]
        sibling = (node ^ half) >> k << k
        if not alive >> sibling & ((1 << half) - 1):
            cell += across
    return tuple(found)


class RoundTrips:
    """Smoothed round trip and mean deviation, as in RFC 6298."""

    __slots__ = ("deviation", "known", "smoothed")

    def __init__(self) -> None:
        self.known = False
        self.smoothed = 0.0
        self.deviation = 0.0

    def sample(self, took: Time) -> None:
        if self.known:
            self.deviation += (abs(took - self.smoothed) - self.deviation) / 4
            self.smoothed += (took - self.smoothed) / 8
        else:
            self.known = True
            self.smoothed, self.deviation = float(took), took / 2

    @property
    def late_after(self) -> float:
        return self.smoothed + VARIANCE_WEIGHT * self.deviation


class Peer:
    """What a tester keeps of one peer."""

    __slots__ = ("round_trips", "sent", "version")

    def __init__(self) -> None:
        self.round_trips = RoundTrips()
        self.sent: dict[int, Time] = {}
        """When each unanswered test was sent, by number."""
        self.version = 0
        """Its vector was merged up to this version."""


class Trial:
    """A test that has not been answered yet."""

    __slots__ = ("asked", "begun", "due", "excused", "first", "peer", "stage")

    def __init__(self, peer: NodeId, first: int, now: Time) -> None:
        self.peer = peer
        self.first = first
        """Number of its first test: answers to older ones say nothing new.  Also names the trial
        to the nodes that are asked to test the peer for us."""
        self.begun = now
        self.due = now
        self.stage = 0
        """How many waits ended without an answer."""
        self.asked = 0
        """Nodes that were asked to test the peer, as a bit mask."""
        self.excused = False
        """Whether the trial was begun again, once, because this node was paused meanwhile."""


@dataclass(frozen=True, slots=True)
class Errand:
    """A request of `asker`: tell it if a peer answers our test `test`, or a later one."""

    asker: NodeId
    request: int
    test: int
    expires: Time


class Detector:
    """One node's detector.  `on_change` is the last thing an input does, so it may call back."""

    knowledge_class: ClassVar[type[Knowledge]] = Knowledge

    def __init__(
        self,
        node: NodeId,
        members: int,
        config: DetectorConfig,
        send: Callable[[NodeId, Message], None],
        wake: Callable[[Time], None],
        now: Time,
        *,
        incarnation: int = 0,
        view: int = 0,
        on_change: Callable[[int, Time], None] | None = None,
        on_news: Callable[[NodeId, tuple[str, ...], Time], None] | None = None,
    ) -> None:
        self.node = node
        self.config = config
        self.view = view
        self.knowledge = self.knowledge_class(node, members, incarnation)
        self.broken = 0
        """Members that do not answer us but answer others."""
        self._send = send
        self._wake = wake
        self._on_change = on_change
        self._on_news = on_news
        self._peers: dict[NodeId, Peer] = {}
        self._all = RoundTrips()
        self._heard: dict[NodeId, Time] = {}
        self._trials: dict[NodeId, Trial] = {}
        self._errands: dict[NodeId, dict[NodeId, Errand]] = {}
        self._number = 0
        self._next_round = now
        self._targets: tuple[int, int, tuple[NodeId, ...]] = (0, 0, ())
        self._fresh: dict[NodeId, NodeId] = {}
        """Entries that changed in this call, and the node that told us; this node: found here."""
        self._news: list[NodeId] = []
        self._told = (0, 0)
        wake(now)

    @property
    def members(self) -> int:
        return self.knowledge.members

    @property
    def suspects(self) -> int:
        """Members that are taken for crashed, as a bit mask."""
        return self.knowledge.suspects

    @property
    def targets(self) -> tuple[NodeId, ...]:
        """The nodes that this node tests in a round, as far as it knows."""
        members, alive = self.knowledge.members, self.knowledge.alive
        if self._targets[:2] != (members, alive):
            self._targets = (members, alive, targets(self.node, members, alive))
        return self._targets[2]

    # -- inputs ----------------------------------------------------------------------------------

    def heard(self, peer: NodeId, now: Time) -> None:
        """Note that something came from `peer`: it lives.  Cheap, to be called for every packet."""
        self._heard[peer] = now

    def on_message(self, message: Message, sender: NodeId, now: Time) -> None:
        if sender == self.node:
            return
        self._heard[sender] = now
        match message:
            case Test():
                self._reply(message, sender)
            case TestReply():
                self._learn(message, sender)
                self._answered(sender, message, now)
            case IndirectTest():
                self._run_errand(message, sender, now)
            case Vouch():
                self._vouched(message, sender)
            case Notice():
                self._learn(message, sender)
            case _:
                raise TypeError(f"no message of the detector: {message!r}")
        self._settle(now)

    def on_wake(self, now: Time) -> Time | None:
        """Do what is due; return when to come back, or None while there is no other member."""
        for trial in [one for one in self._trials.values() if one.due <= now]:
            self._in_vain(trial, now)
        if self._next_round <= now:
            self._round(now)
        at = self._next_time()
        self._settle(now)
        return at

    def set_members(self, members: int, now: Time, view: int | None = None) -> None:
        """Change the set of members.  In a new view all are correct: they have agreed to it."""
        afresh = view is not None and view != self.view
        if view is not None:
            self.view = view
        self.knowledge.set_members(members, afresh=afresh)
        stays = 0 if afresh else self.members
        self.broken &= stays
        for waiting in (self._trials, self._errands, self._heard):
            for node in [one for one in waiting if not stays >> one & 1]:
                del waiting[node]
        for node in [one for one in self._peers if not self.members >> one & 1]:
            del self._peers[node]
        for peer in self._peers.values():
            peer.version = 0  # entries of newcomers were not taken: ask for everything again
        self._settle(now)
        if self.members != 1 << self.node:
            self._wake(max(self._next_round, now))

    def probe(self, peer: NodeId, now: Time) -> None:
        """Test a member out of turn, because something else waits for it."""
        if peer != self.node and self.members >> peer & 1 and peer not in self._trials:
            self._wake(self._begin(peer, now))

    def announce(self, news: tuple[str, ...], now: Time) -> None:
        """Announce names of this node to all members, with the next rounds ([B] 5.2).

        The last announcement replaces those before; other nodes report it by `on_news`.
        """
        self.knowledge.announce(news)
        self._fresh[self.node] = self.node
        self._settle(now)

    # -- rounds ----------------------------------------------------------------------------------

    def _round(self, now: Time) -> None:
        for node, errands in list(self._errands.items()):
            kept = {asker: one for asker, one in errands.items() if one.expires > now}
            if kept:
                self._errands[node] = kept
            else:
                del self._errands[node]
        # A broken link is looked at until it is whole, also when others are the peer's testers.
        for peer in sorted({*self.targets, *members_of(self.broken)}):
            if peer not in self._trials:
                self._begin(peer, now)
        self._next_round += self.config.test_every
        if self._next_round <= now:
            self._next_round = now + self.config.test_every

    def _begin(self, peer: NodeId, now: Time) -> Time:
        """Begin a trial; a peer that is suspected already gets only one test per round."""
        trial = Trial(peer, self._test(peer, now), now)
        trial.due = now + self._step(peer)
        if not self.knowledge.is_suspected(peer):
            self._trials[peer] = trial
        return trial.due

    def _next_time(self) -> Time | None:
        if self.members == 1 << self.node:
            return None
        return min([self._next_round, *(trial.due for trial in self._trials.values())])

    def _patience(self, peer: NodeId) -> Time:
        """How long `peer` may be silent; without samples of it, by the round trips of others."""
        round_trips = self._peer(peer).round_trips
        if not round_trips.known:
            round_trips = self._all
        config = self.config
        if not round_trips.known:
            return config.suspect_max
        time = round(config.steps * round_trips.late_after)
        return min(max(time, config.suspect_min), config.suspect_max)

    def _step(self, peer: NodeId) -> Time:
        return -(-self._patience(peer) // self.config.steps)

    # -- tests -----------------------------------------------------------------------------------

    def _test(self, node: NodeId, now: Time) -> int:
        peer = self._peer(node)
        self._number += 1
        peer.sent[self._number] = now
        if len(peer.sent) > TESTS_REMEMBERED:
            del peer.sent[next(iter(peer.sent))]
        self._send(node, Test(self._number, peer.version, self.view))
        return self._number

    def _reply(self, test: Test, sender: NodeId) -> None:
        version = self.knowledge.version
        states, news = self.knowledge.since(test.since) if test.view == self.view else ((), ())
        self._send(sender, TestReply(test.number, version, self.view, states, news))

    def _answered(self, node: NodeId, reply: TestReply, now: Time) -> None:
        """Take an answer to a test of ours, perhaps a late one: the node is correct."""
        peer = self._peers.get(node)
        sent = None if peer is None else peer.sent.pop(reply.number, None)
        if peer is None or sent is None:
            return
        if reply.view == self.view:
            peer.version = max(peer.version, reply.version)
        peer.round_trips.sample(now - sent)
        self._all.sample(now - sent)
        self.broken &= ~(1 << node)
        if node in self._trials and self._trials[node].first <= reply.number:
            del self._trials[node]
        if self.knowledge.is_suspected(node):
            self._turn(node)
        errands = self._errands.get(node, {})
        for errand in [one for one in errands.values() if one.test <= reply.number]:
            del errands[errand.asker]
            self._send(errand.asker, Vouch(errand.request, node))

    def _in_vain(self, trial: Trial, now: Time) -> None:
        """A trial is due without an answer: test again, ask others, or suspect the peer."""
        step = self._step(trial.peer)
        if now - trial.due > step and not trial.excused:
            # We come too late: this node was paused, and the answer may lie unread.
            trial.excused, trial.begun, trial.stage = True, now, 0
            self._test(trial.peer, now)
            trial.due = now + step
            return
        trial.stage += 1
        until = self._silent_until(trial)
        if trial.stage <= self.config.retries:
            self._test(trial.peer, now)
            trial.due = now + step
        elif trial.stage == self.config.retries + 1 and self._ask_others(trial, now):
            trial.due = now + 2 * step
        elif now < until:  # it was heard lately, or there is no node to ask
            if not self._ask_others(trial, now):
                self._test(trial.peer, now)
            trial.due = min(until, now + 2 * step)
        else:
            del self._trials[trial.peer]
            self.broken &= ~(1 << trial.peer)
            self._turn(trial.peer)

    def _silent_until(self, trial: Trial) -> Time:
        """When the peer is suspected if nothing more comes from it."""
        silent_since = max(trial.begun, self._heard.get(trial.peer, trial.begun))
        patience = self._patience(trial.peer)
        return min(silent_since + patience, trial.begun + self.config.deaf_after)

    def _ask_others(self, trial: Trial, now: Time) -> bool:
        """Ask others to test the peer, and test it once more; False if there are no others."""
        relays = self.relays(trial.peer)
        if relays:
            self._test(trial.peer, now)
        for relay in relays:
            trial.asked |= 1 << relay
            self._send(relay, IndirectTest(trial.first, trial.peer))
        return bool(relays)

    def relays(self, peer: NodeId) -> list[NodeId]:
        """Nodes to ask: the peer's other testers, then any; in turns, as their links differ."""
        able = self.knowledge.alive & ~self.broken & ~(1 << self.node | 1 << peer)
        testers = children(peer, able, max(able.bit_length() - 1, peer).bit_length())
        turn = self._number % max(len(testers), 1)
        chosen = [*testers[turn:], *testers[:turn]]
        if len(chosen) < self.config.indirect:
            chosen += [one for one in members_of(able) if one not in testers]
        return chosen[: self.config.indirect]

    # -- tests for others ------------------------------------------------------------------------

    def _run_errand(self, message: IndirectTest, asker: NodeId, now: Time) -> None:
        target = message.target
        if target < 0 or target == self.node or not self.members >> target & 1:
            return
        test = self._test(target, now)
        errand = Errand(asker, message.number, test, now + self.config.suspect_max)
        self._errands.setdefault(target, {})[asker] = errand

    def _vouched(self, message: Vouch, sender: NodeId) -> None:
        trial = self._trials.get(message.target)
        if trial is None or trial.first != message.number or not trial.asked >> sender & 1:
            return
        del self._trials[message.target]
        self.broken |= 1 << message.target

    # -- knowledge -------------------------------------------------------------------------------

    def _turn(self, node: NodeId) -> None:
        self.knowledge.turn(node)
        self._fresh[node] = self.node

    def _learn(self, words: TestReply | Notice, sender: NodeId) -> None:
        if words.view != self.view or not self.members >> sender & 1:
            return
        changed, told = self.knowledge.merge(words.states, words.news)
        self._news += told
        for node in (*changed, *told):
            self._fresh[node] = self.node if node == self.node else sender
        for node in changed:
            if self.knowledge.is_suspected(node):
                self._trials.pop(node, None)
                self.broken &= ~(1 << node)

    def _settle(self, now: Time) -> None:
        """Tell changes to other nodes, then to the owner, at the end of every input."""
        if self._fresh:
            fresh, self._fresh = self._fresh, {}
            if self.config.push:
                self._push(fresh)
        if self._news:
            news, self._news = self._news, []
            if self._on_news is not None:
                for node in news:
                    self._on_news(node, self.knowledge.news[node][1], now)
        if self._told != (self.suspects, self.broken):
            self._told = (self.suspects, self.broken)
            if self._on_change is not None:
                self._on_change(self.suspects, now)

    def _push(self, fresh: dict[NodeId, NodeId]) -> None:
        """Tell changes to the nodes we test; also to one newly suspected, so that it may object."""
        states, news = self.knowledge.of(list(fresh))
        notice = Notice(self.view, states, news)
        tellers = set(fresh.values())
        for peer in self.targets:
            known = self.knowledge.is_suspected(peer) and peer not in fresh
            if not known and tellers != {peer}:
                self._send(peer, notice)

    def _peer(self, node: NodeId) -> Peer:
        peer = self._peers.get(node)
        if peer is None:
            peer = self._peers[node] = Peer()
        return peer

    def check_invariants(self) -> None:
        self.knowledge.check_invariants()
        assert not self.broken & (self.suspects | 1 << self.node | ~self.members)
        for peer in (*self._peers, *self._trials, *self._errands):
            assert peer != self.node, "a node does not test itself"
            assert self.members >> peer & 1, "only members are kept"
        assert not any(self.suspects >> peer & 1 for peer in self._trials)
