"""Debts of one subscription: what counts as consumed, in what order, and within which bound."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from cubecast.net.reading.debts import STEP_S, Debts, Key, put_off_bytes
from cubecast.net.wire.packets import MESSAGE_OVERHEAD, OutgoingFrame, frame_cost
from cubecast.protocol.messages import Frame, Route
from cubecast.protocol.port import Seq, Stream

STREAMS = [Stream(source, 7) for source in range(3)]
KEYS: list[Key] = [("t", stream) for stream in STREAMS]


def make(stream: Stream, first: Seq, count: int, size: int) -> tuple[Frame, int]:
    """A frame of `count` messages of `size` bytes each, overhead included, and its content."""
    body = OutgoingFrame([bytes(size - MESSAGE_OVERHEAD)] * count, 0)
    whole = frame_cost(count * size, 0)
    return Frame("t", stream, first, (), Route(0, 0, 0), -1, body, whole), count * size


def test_messages_that_fit_are_consumed_one_by_one() -> None:
    debts = Debts(1000)
    frame, size = make(STREAMS[0], 0, 10, 300)
    debts.add(frame, size)
    assert debts.slide(3000) == {KEYS[0]: 2}
    assert debts.slide(3000) == {}
    assert debts.slide(2700) == {KEYS[0]: 3}  # one was read
    assert debts.slide(2400) == {KEYS[0]: 4}


def test_a_message_larger_than_the_queue_is_taken_alone() -> None:
    debts = Debts(10)
    for number in range(2):
        debts.add(*make(STREAMS[0], number, 1, 300))
    assert debts.slide(600) == {KEYS[0]: 0}
    assert debts.slide(600) == {}
    assert debts.slide(300) == {KEYS[0]: 1}


def test_debt_put_off_is_bounded_per_stream_and_paid_back_by_reading() -> None:
    debts = Debts(1000)
    most = put_off_bytes(1000)
    frames = [make(stream, 0, 1000, 100) for stream in STREAMS[:2]]
    for frame, size in frames:
        debts.add(frame, size)
    unread = 200_000
    debts.slide(unread)
    assert debts.put_off(unread) == {KEYS[0]: 10 + most // 100 - 1, KEYS[1]: most // 100 - 1}
    assert debts.put_off(unread) == {}
    assert debts.read(*frames[0]) == {KEYS[0]: 999}
    assert debts.put_off(unread - 100_000)  # what one has paid back the other may use


def test_while_a_stream_is_first_reading_others_makes_room_for_it_alone() -> None:
    debts = Debts(1)
    most = put_off_bytes(1)
    own, other = KEYS[:2]
    frames = [make(STREAMS[1], number, 1, 100) for number in range(2)]
    frames.append(make(STREAMS[0], 0, most // 100 + 2, 100))
    frames.append(make(STREAMS[1], 2, 1, 100))
    for frame, size in frames:
        debts.add(frame, size)
    unread = sum(size for _, size in frames)
    assert debts.slide(unread) == {other: 0}
    assert debts.put_off(unread, lambda key: key == own) == {own: most // 100 - 1}
    unread -= 200
    assert debts.read(*frames[0]) == {}
    assert debts.read(*frames[1]) == {}  # it was read, and is told later
    assert debts.slide(unread) == {}
    assert debts.read(*frames[2]) == {own: most // 100 + 1, other: 1}
    assert debts.slide(100) == {other: 2}
    assert not debts.owed


def test_withheld_debt_is_told_when_no_stream_is_first_any_more() -> None:
    debts = Debts(1)
    own, other = KEYS[:2]
    frames = [make(STREAMS[1], 0, 1, 100), make(STREAMS[1], 1, 1, 100)]
    frames.append(make(STREAMS[0], 0, 10_000, 100))
    for frame, size in frames:
        debts.add(frame, size)
    debts.slide(1_000_200)
    debts.put_off(1_000_200, lambda key: key == own)
    assert debts.read(*frames[0]) == {}
    assert debts.read(*frames[1]) == {}
    assert debts.put_off(1_000_000)[other] == 1  # the reader waits to publish elsewhere


def test_a_bound_that_stands_is_raised_and_then_ever_more_slowly() -> None:
    debts = Debts(1)
    debts.add(*make(STREAMS[0], 0, 100_000, 100))
    unread = 10_000_000
    debts.slide(unread)
    debts.put_off(unread)
    steps = 0
    while debts.delay_s < 1000 * STEP_S:
        before = debts.owed
        assert debts.step(unread)
        steps += 1
        assert 0 < before - debts.owed <= frame_cost(100, 1)
    consumed = unread - debts.owed
    assert consumed <= 2 * put_off_bytes(1) + 12 * frame_cost(100, 1)
    assert debts.slide(debts.owed) != {}  # all that was consumed is read
    assert debts.delay_s == STEP_S


@pytest.mark.parametrize("seed", range(50))
def test_of_each_stream_a_prefix_is_consumed_within_the_bound(seed: int) -> None:
    """Against a plain model: a list of unread messages, and how far each stream is consumed."""
    random = Random(seed)
    limit = random.choice([1, 500, 5000])
    debts = Debts(limit)
    queue: deque[tuple[Frame, int]] = deque()
    sent = dict.fromkeys(KEYS, 0)
    consumed = dict.fromkeys(KEYS, -1)
    read = dict.fromkeys(KEYS, -1)
    unread = 0

    def note(news: dict[Key, Seq]) -> None:
        for key, seq in news.items():
            assert consumed[key] < seq < sent[key]
            consumed[key] = seq

    for _ in range(300):
        what = random.random()
        if what < 0.5:
            key = random.choice(KEYS)
            count, each = random.choice([1, 1, 5, 40]), 100
            frame, size = make(key[1], sent[key], count, each)
            sent[key] += count
            queue.append((frame, size))
            unread += size
            debts.add(frame, size)
        elif what < 0.9 and queue:
            frame, size = queue.popleft()
            key = frame.topic, frame.stream
            read[key] = frame.last
            unread -= size
            note(debts.read(frame, size))
            assert consumed[key] >= frame.last
        elif what < 0.95:
            note(debts.put_off(unread))
        note(debts.slide(unread))
        ahead = sum(consumed[key] - read[key] for key in KEYS) * 100
        assert unread - debts.owed == ahead
        assert ahead <= limit + 100 + len(KEYS) * (put_off_bytes(limit) + 100)
    while queue:
        frame, size = queue.popleft()
        unread -= size
        note(debts.read(frame, size))
        note(debts.slide(unread))
    assert all(consumed[key] == sent[key] - 1 for key in KEYS if sent[key])
    assert not debts.open
