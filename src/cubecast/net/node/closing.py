"""The end of a node.  It happens once, however often it is asked for; cancelling does not stop it.

1. Light clients that can go on at another node are told to, and served until they do, for a part
   of `NodeConfig.leave_timeout_s`.  Then nothing new is begun: no subscription, no question.  Light
   clients' publications that were taken are still handed over, then nothing more is accepted.
2. The node leaves every topic, waits until its publications are stable and its messages are
   acknowledged, and asks the others to go on without it; then its light clients are sent the
   rest of what was delivered.  All that within `NodeConfig.leave_timeout_s`.
3. Its connections, timers and waiters end in any case, also after a time-out or a failure.
4. `close` raises an error for accepted publications that not every subscriber is known to have.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from cubecast.net.gateway.attached import Guests
from cubecast.net.node.presence import Presence
from cubecast.net.publishing.outbox import Leftover
from cubecast.net.publishing.publishing import Publishing
from cubecast.net.reading.readers import Readers
from cubecast.net.settings.config import NodeConfig
from cubecast.protocol.port import NodeId, Time

log = logging.getLogger("cubecast")

POLL_S = 0.005
HAND_OVER_SHARE = 0.3
"""The part of `leave_timeout_s` in which light clients may go on at another node."""


class Leaver(Protocol):
    """What closing needs of its node."""

    config: NodeConfig
    closed: bool
    guests: Guests
    leftovers: list[Leftover]
    presence: Presence
    publishing: Publishing
    readers: Readers

    @property
    def slot(self) -> NodeId: ...
    def now(self) -> Time: ...
    async def shut_down(self) -> None:
        """End connections, timers and waiters at once."""


class Closing:
    """The end of one node."""

    def __init__(self, node: Leaver) -> None:
        self._node = node
        self._task: asyncio.Task[None] | None = None
        self.begun = False
        """Whether the node is about to leave, or has left."""

    async def close(self) -> None:
        """Leave and shut down; cancelling a caller that waits does not stop this."""
        if self._task is None:
            if self._node.closed:  # it never joined
                return
            self.begun = True
            self._task = asyncio.get_running_loop().create_task(self._close())
            self._task.add_done_callback(_look)
        await asyncio.shield(self._task)

    async def _close(self) -> None:
        node = self._node
        try:
            async with asyncio.timeout(node.config.leave_timeout_s):  # no task: the same everywhere
                await self._leave()
        except TimeoutError:
            log.warning("node %d left without an answer from everyone", node.slot)
        finally:
            await node.shut_down()
        if node.leftovers:
            raise max(node.leftovers, key=lambda leftover: leftover.unsent).error()

    async def _leave(self) -> None:
        node = self._node
        await node.guests.hand_over(node.config.leave_timeout_s * HAND_OVER_SHARE)
        await node.guests.finish()
        self.stop_accepting()
        await node.readers.leave_all()
        while self._unsent():
            await asyncio.sleep(POLL_S)
        core = node.presence.core
        if core is not None:
            core.tell_stable(node.now())
        while self._unacknowledged():
            await asyncio.sleep(POLL_S)
        await node.presence.depart()
        await node.guests.end_subscriptions()

    def _unsent(self) -> bool:
        """Whether a publication is unsent or not stable; also while the node is excluded."""
        core = self._node.presence.core  # another one after an exclusion
        return self._node.publishing.unsent() or (core is not None and core.unstable() > 0)

    def _unacknowledged(self) -> bool:
        """Whether a control message of ours is not acknowledged.

        Operations of others that pass through us need no wait: their nodes begin them again when
        they hear that we are gone.
        """
        core = self._node.presence.core
        return core is not None and core.unacked_parcels() > 0

    def stop_accepting(self) -> None:
        """Accept no more publications."""
        self.begun = True
        self._node.publishing.stop()


def _look(task: asyncio.Task[None]) -> None:
    """Retrieve the error, so that asyncio does not log it; callers of `close` get it."""
    if not task.cancelled():
        task.exception()
