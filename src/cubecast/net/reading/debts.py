"""Credit that a subscription owes its publishers: when its unread messages count as consumed.

Theory of operation.  A subscription with policy `block` accepts every message.  The first `limit`
unread bytes count as consumed at once; the rest is a *debt*, and its publisher gets credit for it
message by message as reading goes on.  While the reader's own node waits for credit to publish it
may not be able to read; then debts may be *put off*: they count as consumed although they are
unread, up to `put_off_bytes` for each stream.

Invariants:

1. Messages that are consumed but unread take at most `limit` bytes (one larger message is taken
   alone), and in addition `put_off_bytes` per stream (or one larger message); what is put off is
   paid back by reading.  If nothing moves, the bound is raised by one message (a frame of it),
   again and again up to twice as much, and then each time after twice as long: in a time T by
   log2(T / `STEP_S`) messages more.  It falls back once `limit` is kept.
2. Of each stream a prefix is consumed, and everything that was read; for streams that give way to
   another (`put_off`) that is told later.
3. Debts beyond that are in the windows of their publishers, so at most one window per stream is
   unread and not consumed.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection

from cubecast.net.wire.packets import frame_cost
from cubecast.protocol.messages import Frame
from cubecast.protocol.port import Seq, Stream, Topic

PUT_OFF_TIMES, PUT_OFF_LEAST, PUT_OFF_MOST = 8, 64 * 1024, 1024 * 1024

Key = tuple[Topic, Stream]

STEP_S = 0.01
"""How long nothing must move before the bound is raised, at first."""


def never(_key: Key) -> bool:
    """No stream is first."""
    return False


def put_off_bytes(limit: int) -> int:
    """What a subscription with a queue of `limit` bytes puts off of one stream at most."""
    return min(max(PUT_OFF_TIMES * limit, PUT_OFF_LEAST), PUT_OFF_MOST)


class Debt:
    """One frame, of which the first `given` messages count as consumed."""

    __slots__ = ("count", "first", "given", "key", "size")

    def __init__(self, frame: Frame, size: int) -> None:
        self.key: Key = (frame.topic, frame.stream)
        self.first = frame.first
        self.count = len(frame.body)
        self.size = size
        self.given = 0

    @property
    def owed(self) -> int:
        """The size of what does not count as consumed."""
        return self.size * (self.count - self.given) // self.count

    def fits(self, room: int) -> int:
        """How many of the messages left are within `room`, taken to be of one size."""
        return min(self.count - self.given, room * self.count // max(1, self.size))


class Debts:
    """The debts of one subscription, in the order in which they will be read."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._most = put_off_bytes(limit)
        self._order: deque[Debt] = deque()
        self._streams: dict[Key, deque[Debt]] = {}
        self._put_off: dict[Key, int] = {}
        self._first: set[Key] = set()  # the only streams whose debts are put off for now, if any
        self._withheld: dict[Key, Seq] = {}  # how far other streams were read meanwhile
        self._owed = 0
        self._peak = 0  # the most that was put off of all streams since `limit` was kept
        self.delay_s = STEP_S
        """How long nothing must move before the bound is raised."""

    @property
    def owed(self) -> int:
        """The size of what does not count as consumed."""
        return self._owed

    @property
    def open(self) -> bool:
        """Whether reading changes anything: something is owed, or was put off (or withheld)."""
        return self._owed > 0 or bool(self._put_off)

    def add(self, frame: Frame, size: int) -> None:
        """Add a frame that does not fit."""
        debt = Debt(frame, size)
        self._order.append(debt)
        self._streams.setdefault(debt.key, deque()).append(debt)
        self._owed += size

    def slide(self, unread: int, spare: int = sys.maxsize) -> dict[Key, Seq]:
        """Consume the debts in the first `limit` of the `unread` bytes; return how far, by stream.

        At most `spare` bytes of it, but always one message if all before it was read.
        """
        news: dict[Key, Seq] = {}
        if unread - self._owed <= self._limit:  # before: one message may be larger than `limit`
            self._put_off.clear()
            self._first.clear()
            self._release(news)
            self._most = put_off_bytes(self._limit)
            self._peak = 0
            self.delay_s = STEP_S
        while self._owed:
            debt = self._order[0]
            if debt.given == debt.count:
                self._order.popleft()
                continue
            before = self._owed
            room = self._limit - (unread - before)
            count = debt.fits(min(room, spare)) or (1 if room >= self._limit else 0)
            if count <= 0:
                break
            self._give(debt, count, news)
            spare = max(0, spare - (before - self._owed))
        if not self._owed:
            self._order.clear()
        return news

    def put_off(self, unread: int, first: Callable[[Key], bool] = never) -> dict[Key, Seq]:
        """Consume unread debts of every stream, within the bound; return how far, by stream.

        What was paid back by reading one stream may be put off for another: where messages go in a
        circle, a message read from one publisher comes back from another.  Streams with the most
        put off come first; a stream that only brings new messages gets no more than its own share.

        If a task publishes what it reads to the topic that it reads, its own stream is `first`:
        nothing else is put off, and until all of that is read, reading gives no credit to other
        streams.  So each message that is read makes room for the one that is published for it.
        """
        news: dict[Key, Seq] = {}
        self._first = set(filter(first, self._streams))
        self._release(news, self._first)
        over = max(0, unread - self._owed - self._limit)
        total = min(over, sum(self._put_off.values()))
        self._peak = max(self._peak, total)
        for key in sorted(self._first or self._streams, key=lambda key: -self._put_off.get(key, 0)):
            debts = self._streams[key]
            done = min(self._put_off.get(key, 0), over)
            while debts:
                debt, before = debts[0], self._owed
                room = max(self._most - done, self._peak - total)
                count = debt.fits(room) or (1 if not done else 0)
                if count <= 0:
                    break
                self._give(debt, count, news)
                done += before - self._owed
                total += before - self._owed
            self._put_off[key] = done
        return news

    def step(self, unread: int, first: Callable[[Key], bool] = never) -> dict[Key, Seq]:
        """Raise the bound by what a frame of one message takes, until `limit` is kept again."""
        if self._most >= 2 * put_off_bytes(self._limit):
            self.delay_s *= 2
        sizes = (-(-debts[0].size // debts[0].count) for debts in self._streams.values())
        step = frame_cost(max(sizes), 1)
        self._most += step
        self._peak += step
        return self.put_off(unread, first)

    def read(self, frame: Frame, size: int) -> dict[Key, Seq]:
        """Consume a frame that was read to its end; it pays back what was put off."""
        news: dict[Key, Seq] = {}
        key = frame.topic, frame.stream
        if key in self._put_off:
            self._put_off[key] -= size
            if self._put_off[key] <= 0:
                del self._put_off[key]
        debts = self._streams.get(key)
        while debts and debts[0].first <= frame.last:
            self._give(debts[0], debts[0].count - debts[0].given, news)
        if self._first and key not in self._first:
            self._withheld.update(news)
            news = {}
        if not self._first & self._put_off.keys():
            self._first.clear()
            self._release(news)
        return news

    def _release(self, news: dict[Key, Seq], keys: Collection[Key] = ()) -> None:
        """Add to `news` how far `keys` were read while others were first; all streams if empty."""
        for key in [key for key in self._withheld if not keys or key in keys]:
            seq = self._withheld.pop(key)
            news[key] = max(seq, news.get(key, seq))

    def clear(self) -> None:
        """Forget all debts: the subscription is closed, and `Readers.detach` settles them."""
        self._order.clear()
        self._streams.clear()
        self._put_off.clear()
        self._first.clear()
        self._withheld.clear()
        self._owed = 0

    def _give(self, debt: Debt, count: int, news: dict[Key, Seq]) -> None:
        self._owed -= debt.owed
        debt.given += count
        self._owed += debt.owed
        news[debt.key] = debt.first + debt.given - 1
        if debt.given == debt.count:
            debts = self._streams[debt.key]
            assert debts[0] is debt, "of each stream a prefix is consumed"
            debts.popleft()
            if not debts:
                del self._streams[debt.key]
