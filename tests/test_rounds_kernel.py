"""The compiled rounds of StaN give the views of the plain ones, whatever the options."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest

from cubecast.kernel.rounds import Played, play_topics
from cubecast.overlay.rounds import MODES, ORDERS, RoundConfig, play
from cubecast.overlay.sizes import ROUNDINGS
from cubecast.overlay.weights import HASHES

SIZES = (1, 2, 3, 6, 7, 12, 31, 60)


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
    """Every view of every round, in its stored order, over topics of 1 to 60 subscribers."""
    for seed, rounding, ttl in itertools.product(range(2), ROUNDINGS, (0, 1, 5)):
        config = RoundConfig(
            rounds=4, ttl=ttl, mode=mode, order=order, hashing=hashing,  # type: ignore[arg-type]
            rounding=rounding, loss=loss,
        )  # fmt: skip
        topics = universe(seed)
        result = played(topics, config, (0, 1, 2, 3, 4), run=seed + 2**63)
        for number, expected in enumerate(reference(topics, config, run=seed + 2**63)):
            assert as_dict(result, number) == expected, (seed, rounding, ttl, number)
