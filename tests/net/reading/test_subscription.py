"""One subscription without its node: what counts as consumed, and when that is told."""

from __future__ import annotations

from typing import Any

import pytest

from cubecast.net.reading.subscription import READS, SETTLE_SHARE, Policy, Subscription
from cubecast.testing import on_virtual_time
from support.readers import EACH, Desk, frame

QUEUE = 10 * EACH


def subscription(policy: Policy = "block") -> tuple[Desk, Subscription]:
    desk = Desk()
    return desk, Subscription(desk, "t", policy, QUEUE)


@on_virtual_time
async def test_a_frame_that_fits_the_queue_counts_as_consumed_at_once() -> None:
    _, messages = subscription()
    async with messages:
        assert messages.deliver(frame(0, 10))
        assert not messages.owes
        assert not messages.deliver(frame(10, 1))
        assert messages.owes


@on_virtual_time
async def test_behind_what_does_not_fit_nothing_counts_as_consumed() -> None:
    """Or a stream would be consumed beyond a message that is not."""
    _, messages = subscription()
    async with messages:
        assert not messages.deliver(frame(0, 11))
        assert not messages.deliver(frame(11, 1))


@on_virtual_time
async def test_credit_is_given_inside_a_frame_as_soon_as_a_part_of_the_queue_was_read() -> None:
    """Although no time passes."""
    desk, messages = subscription()
    async with messages:
        messages.deliver(frame(0, 100))
        messages.settle()
        assert desk.told == [9]
        part = QUEUE // SETTLE_SHARE // EACH + 1
        for _ in range(part + 1):  # one is told of when the next one is asked for
            await anext(messages)
        assert desk.told[-1] > 9


@pytest.mark.parametrize(("policy", "reads"), [("block", True), ("drop-oldest", False)])
def test_a_task_that_may_keep_publishers_waiting_is_known(policy: Any, reads: bool) -> None:
    @on_virtual_time
    async def story() -> None:
        _, messages = subscription(policy)
        async with messages:
            assert READS.get() is None
            messages.deliver(frame(0, 1))
            await anext(messages)
            assert (READS.get() is messages) is reads

    story()
