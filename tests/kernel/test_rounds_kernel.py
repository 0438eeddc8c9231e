"""The compiled rounds of StaN give the views of the plain ones, whatever the options."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest

from cubecast.kernel.errors import KernelError
from cubecast.kernel.rounds import Played, Subscribers, play_topics
from cubecast.overlay.rounds import MODES, ORDERS, RoundConfig, play
from cubecast.overlay.view_sizes import ROUNDINGS, view_size
from cubecast.overlay.weights import HASHES

SIZES = (1, 2, 3, 7, 12, 31)


def universe(seed: int, sizes: tuple[int, ...] = SIZES) -> dict[int, list[int]]:
    """{topic: members}; ids of one to twelve digits, users in several topics."""
    random = Random(seed)
    users = [random.randrange(10 ** random.randint(1, 12)) for _ in range(3 * max(sizes))]
    users = sorted(set(users))
    return {
        random.randrange(10**9): sorted(random.sample(users, min(n, len(users)))) for n in sizes
    }


def played(
    topics: dict[int, list[int]], config: RoundConfig, keep: tuple[int, ...], run: int = 0
) -> Played:
    offsets = np.cumsum([0, *map(len, topics.values())])
    members = list(itertools.chain.from_iterable(topics.values()))
    return play_topics(list(topics), offsets, members, config, keep, run=run)


def as_dict(result: Played, round_: int) -> dict[tuple[int, int], tuple[int, ...]]:
    return {(topic, user): view for topic, user, view in result.views(round_)}


def reference(
    topics: dict[int, list[int]], config: RoundConfig, run: int = 0
) -> list[dict[tuple[int, int], tuple[int, ...]]]:
    rounds: list[dict[tuple[int, int], tuple[int, ...]]] = [{} for _ in range(config.rounds + 1)]
    for topic, members in topics.items():
        for number, views in enumerate(play(run, topic, members, config)):
            rounds[number].update({(topic, user): view for user, view in views.items()})
    return rounds


@pytest.mark.parametrize("hashing", HASHES)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_kernel_gives_the_views_of_the_plain_model(
    mode: str, order: str, hashing: str, loss: float
) -> None:
    """Every view of every round, in its stored order, over topics of 1 to 31 subscribers."""
    for seed, rounding, ttl in itertools.product(range(2), ROUNDINGS, (0, 1, 5)):
        config = RoundConfig(
            rounds=3, ttl=ttl, mode=mode, order=order, hashing=hashing,  # type: ignore[arg-type]
            rounding=rounding, loss=loss,
        )  # fmt: skip
        topics = universe(seed)
        result = played(topics, config, (0, 1, 2, 3), run=seed + 2**63)
        for number, expected in enumerate(reference(topics, config, run=seed + 2**63)):
            assert as_dict(result, number) == expected, (seed, rounding, ttl, number)


def test_views_keep_their_size_and_stay_inside_the_topic() -> None:
    """No node links to itself, to a node twice, or to one outside; sizes never change."""
    topics = universe(7, (2, 5, 40, 700))
    for mode in MODES:
        result = played(topics, RoundConfig(mode=mode), (0, 3, 8))
        for round_ in result.keep:
            for topic, user, view in result.views(round_):
                others = set(topics[topic]) - {user}
                assert len(view) == len(set(view)) == view_size(len(topics[topic]))
                assert set(view) <= others


def test_views_do_not_depend_on_the_topics_played_together() -> None:
    topics, config = universe(3), RoundConfig(mode="repairing")
    together = as_dict(played(topics, config, (8,)), 8)
    alone: dict[tuple[int, int], tuple[int, ...]] = {}
    for topic, members in topics.items():
        alone.update(as_dict(played({topic: members}, config, (8,)), 8))
    assert together == alone


def test_every_run_has_its_own_views() -> None:
    topics = universe(3)
    first, second = (as_dict(played(topics, RoundConfig(), (0,), run), 0) for run in (1, 2))
    assert first != second


def test_a_topic_of_700_ends_as_the_plain_model_does() -> None:
    """More nodes than one block of walks, and views smaller than the topic."""
    topics = universe(11, (700,))
    config = RoundConfig(rounds=2)
    assert as_dict(played(topics, config, (2,)), 2) == reference(topics, config)[2]


def test_only_the_kept_rounds_are_there() -> None:
    result = played(universe(1), RoundConfig(), (8, 0, 8))
    assert result.keep == (0, 8)
    with pytest.raises(KernelError, match="round 4 was not kept: keep has 0, 8"):
        result.row(4)


def test_no_topics_give_no_views() -> None:
    result = play_topics([], [0], [], RoundConfig())
    assert list(result.views(8)) == []


@pytest.mark.parametrize(
    ("topics", "offsets", "members", "keep", "message"),
    [
        ([1], [0, 2], [1], (0,), "offsets must go from 0 to 1 in 2 numbers"),
        ([1], [0], [], (0,), "offsets must go from 0 to 0 in 2 numbers, not 1"),
        ([1, 2], [0, 2, 1, 3], [1, 2, 3], (0,), "offsets must go"),
        ([1, 2], [0, 3, 2], [1, 2], (0,), "cannot have -1"),
        ([-1], [0, 1], [1], (0,), "topic ids must not be negative: -1"),
        ([1], [0, 2], [-5, 1], (0,), "member ids must not be negative: -5"),
        ([9], [0, 2], [2, 1], (0,), "topic 9 must be sorted and different: 1 follows 2"),
        ([8, 9], [0, 1, 3], [7, 2, 2], (0,), "topic 9 must be sorted and different: 2 follows 2"),
        ([1], [0, 1], [1], (), "keep must name rounds"),
        ([1], [0, 1], [1], (-1,), "keep must name rounds"),
    ],
)
def test_bad_arrays_are_refused_in_one_line(
    topics: list[int], offsets: list[int], members: list[int], keep: tuple[int, ...], message: str
) -> None:
    with pytest.raises(KernelError, match=message) as refused:
        play_topics(topics, offsets, members, RoundConfig(), keep)
    assert "\n" not in str(refused.value)


def test_subscribers_from_pairs_are_sorted_and_counted_once() -> None:
    users, topics = np.array([5, 2, 9, 2, 7]), np.array([1, 0, 1, 0, 1])
    found = Subscribers.of_pairs(users, topics)
    assert found.topics.tolist() == [0, 1]
    assert found.offsets.tolist() == [0, 1, 4]
    assert found.members.tolist() == [2, 5, 7, 9]
