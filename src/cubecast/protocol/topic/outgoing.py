"""The stream that a node publishes to a topic: numbers, routes, credit, stability.

Theory of operation.  A publisher numbers its frames without holes and sends each down the tree of
its current *route*, the subscribers it knows.  What all of these have consumed is *stable*: the
publisher says so with the next frame, or in a message of its own when it falls idle, and forgets
it.  A subscriber that leaves questions unanswered is taken out of the trees
(`cubecast.protocol.topic.laggards`).

Invariants:

1. Sent and not stable is at most `Config.window`: `in_flight`, less what is consumed of the frame
   that is next (`in_part`).
2. No route spans a departure: a subscriber that leaves, dies or is suspended ends the route.
3. A subscriber that left passes frames on until `Release`: it is in `leavers` while own messages
   that were addressed to it are not stable.
"""

from __future__ import annotations

from collections.abc import Collection

from cubecast.protocol.messages import ROUTE_BITS, Frame, Release, Route, Stable, Suspended
from cubecast.protocol.port import NodeId, Seq, Stream, Time
from cubecast.protocol.topic.ack_timing import AckQueue
from cubecast.protocol.topic.context import Context
from cubecast.protocol.topic.delivery import Delivery
from cubecast.protocol.topic.laggards import Laggards
from cubecast.protocol.topic.reading import Reading
from cubecast.protocol.topic.repair import Repair
from cubecast.protocol.topic.stream_table import StreamTable
from cubecast.protocol.topic.streams import Branch, Inbox
from cubecast.topology import MAX_DIMENSION, members_of

NO_ROUTE = -1
"""`_route_members` when the next frame has to begin a route: no set of nodes."""


class Outgoing:
    """The own stream of one topic at one node."""

    __slots__ = (
        "_context",
        "_delivery",
        "_front",
        "_gone",
        "_in_part",
        "_inboxes",
        "_port",
        "_queue",
        "_reading",
        "_repair",
        "_route_members",
        "_routes",
        "_streams",
        "_told",
        "_topic",
        "_window",
        "in_flight",
        "laggards",
        "leavers",
        "next_seq",
        "own",
        "refused",
        "tell_at",
    )

    def __init__(
        self,
        context: Context,
        incarnation: int,
        streams: StreamTable,
        delivery: Delivery,
        reading: Reading,
        queue: AckQueue,
        repair: Repair,
    ) -> None:
        self._context = context
        self._topic = context.topic
        self._port = context.port
        self._window = context.config.window
        self._streams = streams
        self._inboxes = streams.inboxes
        self._front = streams.front
        self._delivery = delivery
        self._reading = reading
        self._queue = queue
        self._repair = repair
        self.own = Stream(context.node, incarnation)
        self.next_seq: Seq = 0
        self._route_members = 0
        self._routes = 0
        self.in_flight = 0
        self._in_part = 0
        self.refused = False
        """The application was refused for lack of credit: tell it when there is credit."""
        self._told: Seq = -1
        """How far receivers were told that our stream is stable."""
        self.tell_at: Time | None = None
        self.leavers: dict[NodeId, tuple[Seq, int]] = {}  # until when, their LEAVE
        self._gone = 0
        """The nodes that left since the current route began."""
        self.laggards = Laggards(context.config)

    # -- publishing --------------------------------------------------------------------------------

    def publish(self, members: int, body: Collection[object], size: int, now: Time) -> bool:
        """Number `body` as one frame and send it to `members`; False if there is no credit.

        [J] Algorithm 2, lines 16-28, without the stop-and-wait of line 31: up to `window` may be
        on its way.  The barrier is taken now, so it names everything delivered here so far.
        """
        assert size > 0, "a frame without size would cost no credit"
        assert len(body) > 0, "a frame without messages has no numbers"
        queue, own = self._queue, self.own
        if self.in_flight and self.in_flight + size > self._window:
            self.refused = True
            queue.pace.waited_for(now)  # acknowledgements may be here and not handled yet
            queue.hasten(now)
            return False
        inbox = self._inboxes.get(own)
        if inbox is None:
            inbox = self._streams.open(own)
        branch = inbox.branch
        if branch is None or self._route_members != members:
            branch = self._new_route(inbox, members)
        front = self._front
        first = self.next_seq
        frame = Frame(
            self._topic, own, first, front.barrier(), branch.route, inbox.stable, body, size
        )
        if branch.children:
            self._port.relay(
                branch.children, frame
            )  # first: a frame that cannot be encoded changes nothing
        last = frame.last
        self.next_seq = last + 1
        self._told = inbox.stable
        self.in_flight += size
        if queue.pace.passed(size, now):
            queue.hasten(now)
        inbox.frames[first] = frame
        inbox.kept += size
        branch.have = last
        front.publish(own, last)
        if branch.children and branch.resend_at is None:
            self._repair.expect(own, branch, now)
        if self._reading.taking:
            inbox.next = last + 1
            if self._port.deliver(frame):
                inbox.consumed = last
            self._delivery.wake_waiters(own, now)
        if not branch.children:
            queue.touch(inbox, now)
        return True

    def credit(self, wanted: int) -> int:
        """The size that may be published now; if less than wanted, `Port.writable` follows."""
        credit = self._window - self.in_flight
        if credit < wanted:
            self.refused = True
        return credit

    @property
    def _next_route(self) -> int:
        """The number of our next route, above those of all before."""
        return self._context.view.epoch << ROUTE_BITS | self._routes

    def _new_route(self, inbox: Inbox, members: int) -> Branch:
        """Address `members` from the next frame on; the route before ends here."""
        if inbox.branch is not None:
            inbox.branch.end = self.next_seq - 1
        self._route_members = members
        self._gone = 0
        leaves = self.laggards.leaves & members
        route = Route(self._next_route, self.next_seq, members, leaves)
        self._routes += 1
        below = self._streams.children(route.interior, MAX_DIMENSION)
        if route.leaves:
            below += tuple(members_of(route.leaves))
        branch = Branch(route, None, below, self.next_seq - 1)
        inbox.add_branch(branch)
        return branch

    def end_route(self) -> None:
        """Have the next frame begin a new route."""
        self._route_members = NO_ROUTE

    def enter_view(self) -> None:
        """Count routes anew in another view: their numbers begin with its epoch."""
        self._routes = 0

    def begin_anew(self, incarnation: int) -> None:
        """Publish in a stream of another generation from now on; the one before is stable."""
        assert self.own not in self._inboxes
        self.own = Stream(self._context.node, incarnation)
        self.next_seq = 0
        self._told = -1
        self._streams.supersede(self.own)

    @property
    def last(self) -> Seq:
        """The last message that was published; -1: none."""
        return self.next_seq - 1

    def behind(self) -> dict[NodeId, int]:
        """How many own messages each child, or this node, has yet to take: they hold our credit.

        May be empty with messages in flight: all have taken them, and their credit comes back with
        our next flush.
        """
        inbox = self._inboxes.get(self.own)
        if inbox is None:
            return {}
        lag = inbox.behind()
        if self._reading.taking and inbox.consumed < self.last:
            lag[self._context.node] = self.last - inbox.consumed
        return lag

    # -- stability ---------------------------------------------------------------------------------

    def advance(self, inbox: Inbox, now: Time) -> None:
        """Compute how far our own stream is stable, route by route, and forget that.

        Credit comes back message by message, also for a part of a frame; only whole frames are
        stable.
        """
        stable = inbox.stable
        taking, consumed = self._reading.taking, max(inbox.consumed, inbox.part)
        for number, branch in list(inbox.branches.items()):
            covered = branch.cover(consumed if taking else branch.have)
            if branch.end is None:
                stable = max(stable, covered)
            elif covered < branch.end:
                stable = max(stable, covered)
                break
            else:
                stable = max(stable, branch.end)
                self._streams.close_branch(inbox, number)
        stable, part = inbox.whole(stable)
        if stable == inbox.stable and part == self._in_part:
            return
        self.in_flight += self._in_part - part
        self._in_part = part
        if stable > inbox.stable:
            self.in_flight -= inbox.forget(stable)
            self._release_leavers(stable, now)
        if self.refused:
            self.refused = False
            self._port.writable(self._topic)
        if self.tell_at is None and self._told < inbox.stable:
            self._tell_later(now)

    def _release_leavers(self, stable: Seq, now: Time) -> None:
        for leaver, (last, wave) in list(self.leavers.items()):
            if last <= stable:
                del self.leavers[leaver]
                self.release(leaver, wave, now)

    def release(self, leaver: NodeId, wave: int, now: Time) -> None:
        """Tell a leaver that nothing that was addressed to it is under way."""
        self._context.links.send(leaver, Release(self._topic, self.own, wave), now)

    def _tell_later(self, now: Time) -> None:
        at = self.tell_at = now + self._context.config.stable_delay
        self._context.plan(at)

    def tell_stable(self, now: Time) -> None:
        """Tell receivers what they may forget, if no frame has told them meanwhile."""
        self.tell_at = None
        inbox = self._inboxes.get(self.own)
        if inbox is None or inbox.branch is None:
            return
        route = inbox.branch.route
        number, start = route.number, route.start
        if route.epoch < self._context.view.epoch:
            # What is stable without the excluded nodes concerns no node that is still with them.
            number, start = self._next_route, self.next_seq
            if inbox.stable < start - 1:
                return  # tell it once all of the route is stable
        if inbox.stable > self._told:
            self._told = inbox.stable
            members = route.members & ~self._gone & ~self.laggards.suspended
            what = self._topic, self.own, number, start, inbox.stable
            self._streams.pass_on(Stable(*what, members & ~route.leaves), MAX_DIMENSION, now)
            for leaf in members_of(members & route.leaves):
                self._context.links.send(leaf, Stable(*what, 0), now)
        if self._told >= inbox.stable and not self.leavers:
            self._streams.close_if_idle(inbox)

    def on_inquiry(self, sender: NodeId, now: Time) -> None:
        """Tell a receiver that asks what is stable; if more is under way, tell all receivers soon.

        Some relay may have told it otherwise.
        """
        inbox = self._inboxes.get(self.own)
        if inbox is None:
            stable = self._streams.stable_of(self.own)
            if stable >= 0:
                news = Stable(self._topic, self.own, self._next_route, self.next_seq, stable, 0)
                self._context.links.send(sender, news, now)
        elif inbox.stable >= 0:
            route = None if inbox.branch is None else inbox.branch.route
            if route is not None and route.epoch == self._context.view.epoch:
                what = self._topic, self.own, route.number, route.start, inbox.stable
                self._context.links.send(sender, Stable(*what, 0), now)
            if self.tell_at is None:
                self._told = -1
                self._tell_later(now)

    def stable_seq(self) -> Seq:
        """The last own message that is stable."""
        return self._streams.stable_of(self.own)

    # -- subscribers that leave, die or do not answer ----------------------------------------------

    def bid_farewell(self, leaver: NodeId, wave: int) -> dict[Stream, Seq]:
        """Stop addressing `leaver`; return how far it still has to pass on our stream.

        The next frame begins a new route even if the leaver is back by then.  A LEAVE that was
        started again owes what the first one did, no more.
        """
        self._gone |= 1 << leaver
        self.end_route()
        last = self._last_addressed_to(leaver)
        if last <= self.stable_seq():
            return {}
        self.leavers[leaver] = last, wave
        return {self.own: last}

    def _last_addressed_to(self, member: NodeId) -> Seq:
        """The last own message of a route that leads to `member` and is under way; -1: none."""
        inbox = self._inboxes.get(self.own)
        if inbox is None:
            return -1
        return max(
            (
                self.last if branch.end is None else branch.end
                for branch in inbox.branches.values()
                if branch.route.members >> member & 1
            ),
            default=-1,
        )

    def lose_members(self, dead: int, now: Time) -> None:
        """Go on without the nodes `dead`: feed what was under way in trees with them directly."""
        for leaver in members_of(dead):
            self.laggards.forget(leaver)
            self.leavers.pop(leaver, None)
        self.end_route()
        self._gone |= dead
        inbox = self._inboxes.get(self.own)
        if inbox is None:
            return  # a receiver that did not hear what is stable asks (`Incoming.expect_news`)
        for branch in list(inbox.branches.values()):
            if branch.route.members & dead:
                branch.without |= dead
                if branch.low_covered < branch.have:
                    self._context.marks["fed directly"] += 1
                self.feed_directly(inbox, branch, now)
        self._queue.touch(inbox, now)

    def on_slow(self, inbox: Inbox, branch: Branch, slow: int, now: Time) -> None:
        """Tell our parent of nodes below us that do not answer; at the root, judge them."""
        branch.slow |= slow
        if branch.parent is not None:
            self._queue.touch(inbox, now)
            return
        if inbox.stream != self.own:
            return  # they get a dead publisher's frames when they wake up
        context = self._context
        members = branch.route.members & ~branch.without & ~(1 << context.node)
        context.advisor.ask_members(slow & members, now)
        demoted, suspended = self.laggards.judge(slow, members, self.refused, now)
        if not demoted and not suspended:
            return
        self.end_route()
        assert inbox.branch is not None
        for member in members_of(suspended):
            notice = Suspended(self._topic, self.own, inbox.branch.route.number)
            context.links.send(member, notice, now)
        for old in inbox.branches.values():
            old.without |= suspended
            self.feed_directly(inbox, old, now)
        if self.laggards.check_at is not None:
            context.plan(self.laggards.check_at)
        self._queue.touch(inbox, now)

    def feed_directly(self, inbox: Inbox, branch: Branch, now: Time) -> None:
        """Give up the tree of a route: feed what is under way in it to all its nodes ourselves."""
        if branch.low_covered >= branch.have:
            return
        fed = branch.route.members & ~branch.without & ~(1 << self._context.node)
        branch.direct = True
        branch.feed(tuple(members_of(fed)))
        if branch.low_covered < branch.have:
            self._repair.expect(inbox.stream, branch, now)
            self.ask(inbox, branch, now)
        else:
            self._repair.give_up(inbox.stream, branch)

    def ask(self, inbox: Inbox, branch: Branch, now: Time) -> None:
        """Ask the silent children of a route how far they are; judge those silent for too long."""
        slow = self._repair.ask(inbox, branch, now)
        if slow:
            self.on_slow(inbox, branch, slow, now)

    def reconsider_leaves(self, now: Time) -> None:
        """Return leaves that have caught up to the interior with the next frame."""
        inbox = self._inboxes.get(self.own)
        behind = 0
        if inbox is not None and inbox.branch is not None:
            behind = inbox.branch.unanswering()
        if self.laggards.reconsider(behind, now):
            self.end_route()
