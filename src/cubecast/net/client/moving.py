"""How a light client moves from one node to the next, with its subscriptions and publications.

The order of steps, so that no message is handed out twice or out of order, and none is missed
without need:

1. Publications are held back from the moment the node is gone, or says that it leaves.
2. The client attaches to another node and begins each subscription there.  A subscription reads on
   at the former node until that has delivered everything before the new beginning, or is gone.
3. The former node, if it is still there, is told to go; the client waits for that.  It goes when
   everything published through it is stable, so later publications come after that.
4. The new node is asked to deliver what the client has read elsewhere; then publications go on.

A client looks for a node for `patience_s`; then all waiting calls fail.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from cubecast.errors import AttachError, Closed
from cubecast.net.client.attachment import Attachment, AttachmentHost
from cubecast.net.client.subscription import RemoteSubscription
from cubecast.net.events import Detached, Event, Reattached
from cubecast.net.links.connection import REFUSED, SILENT
from cubecast.net.links.transport import Network
from cubecast.net.security.handshake import NO_CLUSTER_YET
from cubecast.net.wire.clients import LEAVING, Listen, Moved

log = logging.getLogger("cubecast")

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
"""Pause before the client tries all addresses again: the first, and the longest."""
FORMER_S = 60.0
"""How long the client waits for the node that it has left to be gone."""


class Traveller(AttachmentHost, Protocol):
    """What moving needs of its client."""

    listens: bool
    patience_s: float
    cluster: str

    def tell(self, event: Event) -> None: ...
    def all_subscriptions(self) -> list[RemoteSubscription]: ...
    async def catch_up(self, node: Attachment) -> bool: ...
    def arrive(self, node: Attachment) -> None: ...
    def give_up(self, reason: str) -> None: ...


class Moving:
    """Moves one client from node to node."""

    def __init__(
        self,
        client: Traveller,
        network: Network,
        addresses: Sequence[str],
        timeout_s: float,
        chance: Random,
    ) -> None:
        self._client = client
        self._network = network
        self._addresses = addresses
        self._timeout_s = timeout_s
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.target: Attachment | None = None
        """Where subscriptions and questions go; None while there is no such node."""
        self._unfit: Attachment | None = None
        self._missed = 0
        self._exact = True

    # -- finding a node --------------------------------------------------------------------------

    async def find(
        self, order: Callable[[], Sequence[str]], left_s: Callable[[], float]
    ) -> Attachment:
        """Attach to the first node that accepts us; `AttachError` when no time is left."""
        pause_s = FIRST_PAUSE_S
        while True:
            reasons: dict[str, str] = {}
            for address in order():
                node = Attachment(self._client, address)
                reason = await self._try(node, self._limit_s(left_s()))
                if not reason:
                    return node
                reasons[address] = reason
            final = bool(reasons) and all(map(_is_final, reasons.values()))
            if final or left_s() <= 0:
                raise AttachError(reasons)
            pause = pause_s * self._chance.uniform(0.5, 1)  # clients do not come back all at once
            await asyncio.sleep(min(pause, max(left_s(), 0.001)))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _limit_s(self, left_s: float) -> float:
        """How long one node may take: at most the time that is left, but at least a second."""
        if not self._client.patience_s:
            return self._timeout_s
        return min(self._timeout_s, max(left_s, 1.0))

    async def _try(self, node: Attachment, limit_s: float) -> str:
        """Attach to one node; return why that failed, or an empty text."""
        try:
            async with asyncio.timeout(limit_s):
                await node.attach(self._network)
            return ""
        except TimeoutError:
            return f"no answer in {limit_s:g} s" + (SILENT if node.silent else "")
        except OSError as error:
            return error.strerror or str(error)
        except Closed as error:
            return str(error)

    async def start(self) -> Attachment:
        """Attach to the first node."""
        deadline = self._loop.time() + self._client.patience_s
        self.target = await self.find(lambda: self._addresses, lambda: deadline - self._loop.time())
        return self.target

    # -- from one node to the next ---------------------------------------------------------------

    def begin(self, former: Attachment, reason: str) -> None:
        """Look for another node, or wake the search that is under way."""
        self._changed.set()
        if former is self.target:
            self.target = None
        if self._task is None:
            self._missed, self._exact = 0, True
            self._client.tell(Detached(former.address, reason))
            self._task = self._loop.create_task(self._move(former, reason))

    def reject(self, node: Attachment) -> None:
        """Give up the node that we move to, because it leaves, too."""
        self._unfit = node
        self._changed.set()

    def changed(self) -> None:
        """Check progress: a subscription has moved, or the application has closed one."""
        self._changed.set()

    def missed(self, count: int, exact: bool) -> None:
        """Count messages that a subscription has missed; not `exact`: perhaps more."""
        self._missed += count
        self._exact = self._exact and exact

    def stop(self) -> None:
        """Stop moving: the client is closed."""
        if self._task is not None:
            self._task.cancel()

    async def _move(self, former: Attachment, reason: str) -> None:
        try:
            while True:
                node = await self._next_node(former)
                if await self._settle(node, former):
                    break
                self.target = None
                if not node.over:
                    self._leave(node)
            self._task = None
            self._warn_of_another_cluster(node)
            self._client.arrive(node)
            self._client.tell(Reattached(node.address, node.slot, self._missed, self._exact))
            if node.over:  # since then
                self.begin(node, "the connection ended")
        except AttachError as error:
            self._task = None
            self._client.give_up(f"{reason}; {error}")
        except Exception as error:
            log.exception("a client cannot go on at another node")
            self._task = None
            self._client.give_up(f"{reason}; {error!r}")

    def _leave(self, node: Attachment) -> None:
        """Leave a node that leaves the cluster: it does not die with messages of its own."""
        for subscription in self._client.all_subscriptions():
            subscription.left_by(node, in_order=True)
        node.lose("it leaves the cluster")

    def _warn_of_another_cluster(self, node: Attachment) -> None:
        """Log a warning if a node is in another cluster: the missed messages cannot be counted."""
        assert node.welcome is not None
        if node.welcome.cluster != self._client.cluster:
            self._exact = False
            log.warning(
                "the node at %s is in cluster %s now, and was in %s: what is said there is missed",
                node.address, node.welcome.cluster, self._client.cluster,
            )  # fmt: skip

    async def _next_node(self, former: Attachment) -> Attachment:
        """Attach to a node other than the former one; once that is gone, try it first."""
        began = self._loop.time()
        rounds = 0

        def order() -> list[str]:
            nonlocal rounds
            rounds += 1
            if rounds > 1 and not former.over:
                former.say(Moved())  # no node accepts us: it need not wait for us
            same = former.address
            others = [address for address in self._addresses if address != same]
            return [same, *others] if former.over else others

        def left_s() -> float:
            nonlocal began
            if not former.over:
                began = self._loop.time()
            return began + self._client.patience_s - self._loop.time()

        return await self.find(order, left_s)

    async def _settle(self, node: Attachment, former: Attachment) -> bool:
        """Move everything to a node; False if it is gone, or leaves, before that is done."""
        client = self._client
        self.target, self._unfit = node, None
        for subscription in client.all_subscriptions():
            subscription.ask(node)
        if client.listens:
            node.say(Listen())

        def ends() -> bool:
            return node.over or node is self._unfit

        while not ends() and any(one.waits_for(node) for one in client.all_subscriptions()):
            await self._news()
        if not former.over:
            former.say(Moved())
        limit = self._loop.time() + FORMER_S
        while not ends() and not former.over:
            if self._loop.time() >= limit:
                former.lose("it did not leave")
            else:
                await self._news(limit - self._loop.time())
        return not ends() and await client.catch_up(node) and not ends()

    async def _news(self, limit_s: float | None = None) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(limit_s):
                await self._changed.wait()
        except TimeoutError:
            pass


def _is_final(reason: str) -> bool:
    """Whether the refusal is final, so that the client does not ask again."""
    passing = any(word in reason for word in (NO_CLUSTER_YET, LEAVING, "clients already"))
    return reason.startswith(REFUSED) and not passing
