"""Subscribing to topics by a pattern, those that do not exist yet included.

Theory of operation.  To *follow* a pattern is to be subscribed to every topic that a predicate
wants.  A node that begins to follow asks all nodes which topics they know (an `Op.TOPICS` wave),
notes meanwhile which wanted topics other waves name, and then joins all of these by ordinary JOIN
waves.  From that step on a wanted topic without a membership here is *new*: nothing was ever
published to it.  The node becomes a subscriber of it at once, with the empty cut, in the step in
which it first hears of it.

Why a new topic is new.  Let W follow, and let Q be any node that publishes to topic t, ever.  Q
publishes nothing before its own first wave for t, JOIN or REGISTER, has visited every node
(`cubecast.protocol.subscriptions.membership`), and Q has a membership for t from the start of that
wave on.

* It started before Q answered W's TOPICS wave: Q's answer names t, and W joins t as usual.
* It started later: it visits W, because Q knew W when it answered, and W was asking by then.  It
  reaches W while W still asks (W notes the name and joins t as usual) or afterwards.
* Q was not asked because it came into the cluster later: it knew W when it came, so its wave
  visits W, as before.  If it comes back from another view and published there, the view that
  takes it in says so to W (`Install.ends`), which notes the name while it asks, and afterwards
  subscribes and reports what it missed.
* Q was not asked because it had left: all it published was consumed before it left.  A node that
  still depends on it has a membership for t, and was asked, or has left as well.

So if W has no membership for t once it has joined what it found, no wave for t has been complete:
there is no message of t, and none will be sent before its publisher has W's answer.  The empty cut
is complete and causally closed, and W's answer to that wave, and to all later ones, names W as a
subscriber.  W needs no wave of its own: a later publisher has to ask first.  W itself learns the
subscribers by a REGISTER wave before it publishes, like any other node.

Invariants:

1. An active predicate and a wanted topic: there is a membership, or the topic is new.
2. One TOPICS wave of this node runs at a time; what is asked meanwhile shares the next one.
3. Nothing is kept of topics that this node does not subscribe to, except while it asks.
4. A pattern is followed whole or not at all.  If the names do not fit an answer
   (`cubecast.protocol.subscriptions.topic_names`), or there would be memberships for more than
   `MAX_TOPICS` topics, the world is told that it is not followed, or no longer.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Protocol

from cubecast.protocol.branch_counts import BranchCounts
from cubecast.protocol.messages import Op
from cubecast.protocol.port import NodeId, Port, Time, Topic, Wanted
from cubecast.protocol.subscriptions.membership import Membership, Standing
from cubecast.protocol.subscriptions.topic_names import Listed
from cubecast.protocol.subscriptions.waves import NOTHING, Gathering, Waves
from cubecast.protocol.topic.retained_values import ValueKeeper

MAX_TOPICS = 100_000
"""A pattern makes a node subscribe to a topic only while it has fewer memberships than this."""


class DiscoveryHost(Protocol):
    """The part of a node that discovery uses."""

    node: NodeId
    marks: BranchCounts
    keeper: ValueKeeper

    @property
    def memberships(self) -> dict[Topic, Membership]: ...
    def membership_of(self, topic: Topic) -> Membership: ...
    def adopt_if_new(self, topic: Topic) -> None: ...
    def let_go(self, topics: Collection[Topic]) -> None: ...
    def needs(self, topic: Topic) -> bool: ...


class TopicsQuestion:
    """A question for the topics of all nodes: to follow those that are `wanted`, or to list all.

    Or to let go of those that are `unused`, if no other node has a membership for them.
    """

    __slots__ = ("key", "seen", "unused", "wanted")

    def __init__(
        self, key: Hashable, wanted: Wanted | None, unused: frozenset[Topic] | None = None
    ) -> None:
        self.key = key
        self.wanted = wanted
        self.unused = unused
        self.seen: set[Topic] = set()

    def saw(self, topic: Topic) -> None:
        """Note a topic that a wave named while the question was asked."""
        if self.unused is not None:
            if topic in self.unused:
                self.seen.add(topic)
        elif self.wanted is not None and len(self.seen) <= MAX_TOPICS and self.wanted(topic):
            self.seen.add(topic)  # with more than `MAX_TOPICS` the pattern is not followed


class Discovery:
    """The patterns that one node follows, and the waves that ask for topics."""

    def __init__(self, owner: DiscoveryHost, waves: Waves, port: Port) -> None:
        self._owner = owner
        self._waves = waves
        self._port = port
        self.active: dict[Hashable, Wanted] = {}
        self.joining: dict[Hashable, list[Topic]] = {}
        """Active, but some of these joins are not complete."""
        self._asked: list[TopicsQuestion] = []
        """The questions that the running wave answers; perhaps none any more."""
        self._running = False
        self._waiting: list[TopicsQuestion] = []
        self._returned: dict[Hashable, Wanted] = {}
        """Followed in another view before; not yet again.  An answer or `unfollow` removes it."""

    # -- commands --------------------------------------------------------------------------------

    def follow(self, key: Hashable, wanted: Wanted, now: Time) -> None:
        """Subscribe to all topics that are `wanted`; `Port.followed` tells when it is so."""
        self._ask(TopicsQuestion(key, wanted), now)

    def unfollow(self, key: Hashable) -> None:
        """Subscribe to nothing more for `key`; the world leaves the topics it has."""
        self.active.pop(key, None)
        self.joining.pop(key, None)
        self._returned.pop(key, None)  # if followed anew, nothing was promised before
        for questions in (self._asked, self._waiting):
            questions[:] = [one for one in questions if one.wanted is None or one.key != key]

    def list_topics(self, ticket: Hashable, now: Time) -> None:
        """Ask every node for its topics; `Port.listed` gets the answer with the ticket."""
        self._ask(TopicsQuestion(ticket, None), now)

    def release(self, unused: Collection[Topic], now: Time) -> None:
        """Let go of followed topics in which nothing happens, unless another node names them.

        A node that may publish to one has a membership and names it.  A node that takes it up later
        starts a wave, which we see while we ask, or afterwards: then the topic is new again.
        """
        if not any(one.unused for one in (*self._asked, *self._waiting)):
            self._ask(TopicsQuestion(None, None, frozenset(unused)), now)

    def _ask(self, question: TopicsQuestion, now: Time) -> None:
        self._waiting.append(question)
        self._next_wave(now)

    def _next_wave(self, now: Time) -> None:
        while self._waiting and not self._running:
            self._running = True
            self._asked, self._waiting = self._waiting, []
            done = self._waves.start("", Op.TOPICS, NOTHING, now, self.known())
            if done is None:
                return
            self._answer(done, now)

    def start_again(self, now: Time) -> None:
        """Ask unanswered questions anew after members were excluded."""
        if self._running:
            self._owner.marks["topics started again"] += 1
            self._running = False
            self._waiting[:0] = self._asked
            self._asked = []
            self._next_wave(now)
        self.settle()

    def return_from(self, former: Discovery, now: Time) -> None:
        """Follow again what was followed in another view.

        A topic that came into being meanwhile was promised and missed: its whole cut is a gap.
        That holds, too, if this node was excluded again before it had an answer.
        """
        self._returned.update(former._returned)
        for key, wanted in former.active.items():
            self._owner.marks["follows again"] += 1
            self._returned[key] = wanted
            self.follow(key, wanted, now)
        for question in (*former._asked, *former._waiting):
            if question.unused is None:
                self._ask(question, now)

    def is_owed(self, topic: Topic) -> bool:
        """Whether a pattern that we followed in another view, and not yet again, has this topic."""
        return any(wanted(topic) for wanted in self._returned.values())

    @property
    def is_catching_up(self) -> bool:
        """Whether we followed a pattern in another view, and some topic of it is not joined yet."""
        return bool(self._returned or self.joining)

    # -- what passes -----------------------------------------------------------------------------

    def known(self) -> dict[Topic, int]:
        """This node's answer: the topics it has a membership for, and whether it is in.

        Without those that it would let go: it is in because of a pattern, and nothing happens.
        Also those of which it keeps a retained value.
        """
        me = 1 << self._owner.node
        known = dict.fromkeys(self._owner.keeper.topics(), 0)  # a pattern wants their values
        for topic, membership in self._owner.memberships.items():
            if topic in known or self._owner.needs(topic):
                inside = membership.standing in (Standing.JOINING, Standing.IN)
                known[topic] = me if inside else 0
        return known

    def saw(self, topic: Topic) -> None:
        """Note a topic named by a wave or a node that came back: open answers may be older."""
        for question in self._asked:
            question.saw(topic)

    def is_new(self, topic: Topic) -> bool:
        """Whether a topic is followed and nothing was ever published to it (invariant 1)."""
        memberships = self._owner.memberships
        if not self.active or topic in memberships:
            return False
        keys = [key for key, wanted in self.active.items() if wanted(topic)]
        if keys and len(memberships) >= MAX_TOPICS:
            for key in keys:
                self.unfollow(key)
                self._port.followed(key, False)
            return False
        return bool(keys)

    # -- answers ---------------------------------------------------------------------------------

    def complete(self, result: Gathering, now: Time) -> None:
        """Handle our TOPICS wave that every node has answered."""
        self._answer(result, now)
        self._next_wave(now)

    def _answer(self, result: Gathering, now: Time) -> None:
        assert result.listing is not None
        self._running = False
        listed, more = result.listing.packed()
        asked, self._asked = self._asked, []
        for question in asked:
            if question.unused is not None:
                if not more:
                    named = {topic for topic, _ in listed} | question.seen
                    self._owner.let_go(question.unused - named)
            elif question.wanted is None:
                self._port.listed(question.key, listed, not more)
            elif more:
                self._port.followed(question.key, False)
            else:
                self._join_existing(question, question.wanted, listed, now)
        self.settle()

    def _join_existing(
        self, question: TopicsQuestion, wanted: Wanted, listed: Listed, now: Time
    ) -> None:
        """Join the existing topics; from here on a wanted topic without a membership is new."""
        found = {topic for topic, _ in listed if wanted(topic)}
        # Our own memberships may be younger than what we contributed.
        found |= {topic for topic in self._owner.memberships if wanted(topic)}
        topics = sorted(found | question.seen)
        if len(self._owner.memberships.keys() | set(topics)) > MAX_TOPICS:
            self._port.followed(question.key, False)
            return
        for topic in topics:
            self._owner.adopt_if_new(topic)  # another active pattern may be owed all of it
            membership = self._owner.membership_of(topic)
            if not membership.wanted:
                self._port.discovered(topic)
                if question.key in self._returned:
                    membership.missed_all()
                membership.subscribe(now, followed=True)
        self._returned.pop(question.key, None)
        self.active[question.key] = wanted
        self.joining[question.key] = topics

    def settle(self) -> None:
        """Report every pattern whose joins are complete; look at each complete join once.

        A join that was complete before its turn may be forgotten since: the topic is new again.
        """
        memberships = self._owner.memberships
        for key, topics in list(self.joining.items()):
            while topics:
                membership = memberships.get(topics[-1])
                if membership is not None and not membership.receiving:
                    break
                topics.pop()
            if not topics:
                del self.joining[key]
                self._port.followed(key, True)
