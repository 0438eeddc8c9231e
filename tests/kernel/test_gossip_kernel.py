"""The compiled gossip counts what the plain one counts, whatever the options."""

from __future__ import annotations

import itertools
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from cubecast.kernel.errors import KernelError
from cubecast.kernel.gossip import (
    GossipConfig,
    GossipEvents,
    GossipNetwork,
    Spread,
    dead_users,
    make_events,
    network_of,
    network_of_views,
    spread,
)
from cubecast.kernel.gossip.engine import COLUMNS
from cubecast.kernel.rounds import Played, play_topics
from cubecast.overlay.rounds import MODES, RoundConfig
from support.gossip_oracle import Post, Views, is_dead, play_post

SIZES = (1, 2, 3, 6, 12, 31, 40)
ALL = ("due", "reached", "messages", "topic_messages")


def subscriptions(seed: int) -> dict[int, list[int]]:
    """{topic: users}: seven topics of 1 to 40 out of 50 users, so that many share several."""
    random = Random(seed)
    users = sorted({random.randrange(10 ** random.randint(1, 12)) for _ in range(60)})[:50]
    topics = sorted(random.sample(range(10**6), len(SIZES)))
    return {topic: sorted(random.sample(users, n)) for topic, n in zip(topics, SIZES, strict=True)}


def played(topics: dict[int, list[int]], mode: str = "faithful", run: int = 0) -> Played:
    offsets = np.cumsum([0, *map(len, topics.values())])
    members = list(itertools.chain.from_iterable(topics.values()))
    config = RoundConfig(mode=mode)  # type: ignore[arg-type]
    return play_topics(list(topics), offsets, members, config, (0, 4), run=run)


def as_views(result: Played, round_: int) -> Views:
    views: dict[int, dict[int, tuple[int, ...]]] = {}
    for topic, user, view in result.views(round_):
        views.setdefault(topic, {})[user] = view
    return views


def posts(seed: int, topics: dict[int, list[int]], count: int = 30) -> list[Post]:
    """Authors in and outside the topics; topics that there are, and one that there is not."""
    random = Random(seed)
    users = sorted({user for members in topics.values() for user in members})
    return [
        Post(
            random.randrange(2**63),
            random.choice([*users, 10**15, -1]),
            frozenset(random.sample([*topics, 10**7], random.randint(0, 4))),
        )
        for _ in range(count)
    ]


def as_events(some: list[Post]) -> GossipEvents:
    return make_events(
        [post.number for post in some],
        [post.author for post in some],
        np.cumsum([0, *(len(post.topics) for post in some)]),
        [topic for post in some for topic in post.topics],
    )


def row(found: Spread, number: int) -> dict[str, Any]:
    where = slice(int(found.offsets[number]), int(found.offsets[number + 1]))
    counts = {name: int(getattr(found, name)[number]) for name in COLUMNS}
    lists = ("topics", "topic_due", "topic_reached")
    return counts | {name: getattr(found, name)[where].tolist() for name in lists}


def ring(views: Views, back: int = 0) -> GossipNetwork:
    """A network of views written by hand."""
    rows = [(topic, user, view) for topic, of in views.items() for user, view in of.items()]
    return network_of_views(
        np.array([one[0] for one in rows]),
        np.array([one[1] for one in rows]),
        np.cumsum([0, *(len(one[2]) for one in rows)]),
        np.array([user for one in rows for user in one[2]], np.int64),
        back,
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("round_", [0, 4])
@pytest.mark.parametrize("back", [0, 1, 3])
def test_kernel_counts_what_the_plain_model_counts(mode: str, round_: int, back: int) -> None:
    """Every count of every event: loss, churn with ids kept or removed, events of 0 to 4 topics."""
    for seed in range(2):
        topics, run = subscriptions(seed), seed + 2**63
        overlay = played(topics, mode, run)
        network, views = network_of(overlay, round_, back), as_views(overlay, round_)
        some = posts(seed, topics)
        for loss, dead, dead_ids in [
            (0.0, 0.0, "kept"), (0.3, 0.0, "kept"), (0.0, 0.4, "kept"), (0.1, 0.4, "removed"),
            (0.3, 0.8, "removed"), (1.0, 0.0, "kept"), (0.0, 1.0, "removed"), (0.0, 1.0, "kept"),
        ]:  # fmt: skip
            config = GossipConfig(loss, dead, dead_ids, explain=True)  # type: ignore[arg-type]
            found = spread(network, as_events(some), config, run=run)
            for number, post in enumerate(some):
                expected = play_post(views, post, config, run, back)
                assert row(found, number) == expected, (seed, config, post)
            assert (
                found.messages + found.handed
                == found.reached + found.duplicates + found.lost + found.to_dead
            ).all()


def test_the_differential_test_sees_every_kind_of_count() -> None:
    """No count that is compared above is 0 throughout."""
    topics = subscriptions(0)
    network = network_of(played(topics), 0)
    events = as_events(posts(0, topics))
    found = spread(network, events, GossipConfig(0.3, 0.4, explain=True))
    for name in COLUMNS:
        assert getattr(found, name).any(), name
    assert (found.messages < found.topic_messages).any()


def test_an_event_spreads_the_same_whatever_events_are_beside_it() -> None:
    topics = subscriptions(1)
    network, some = network_of(played(topics), 4), posts(1, topics)
    config = GossipConfig(loss=0.2, dead=0.2)
    together = spread(network, as_events(some), config)
    for number, post in enumerate(some):
        assert row(spread(network, as_events([post]), config), 0) == row(together, number)


def test_a_shared_link_is_crossed_once() -> None:
    """Users 1, 2, 3 in topics 7 and 8: 1 holds 2 in both, and 3 in one of them."""
    views = {7: {1: (2, 3), 2: (1,), 3: (1,)}, 8: {1: (2,), 2: (1,)}}
    found = spread(ring(views), as_events([Post(0, 1, frozenset({7, 8}))]), GossipConfig())
    assert row(found, 0) == {
        "due": 2, "reached": 2, "messages": 4, "topic_messages": 6, "handed": 0, "duplicates": 2,
        "lost": 0, "to_dead": 0, "rounds": 2, "last_round": 1, "unknown": 0,
        "topics": [7, 8], "topic_due": [2, 1], "topic_reached": [2, 1],
    }  # fmt: skip


def test_a_stranger_hands_its_event_to_one_subscriber_of_each_topic() -> None:
    views = {7: {1: (2,), 2: (1,)}, 8: {5: (6,), 6: (5,)}}
    found = spread(ring(views), as_events([Post(3, 99, frozenset({7, 8}))]), GossipConfig())
    assert (found.handed[0], found.reached[0], found.last_round[0], found.rounds[0]) == (2, 4, 2, 6)


def test_a_node_that_no_view_holds_is_missed_and_a_back_link_reaches_it() -> None:
    """3 sends to 1, and none sends to 3; its back link makes 1 send to it."""
    views = {7: {1: (2,), 2: (1,), 3: (1,)}}
    events = as_events([Post(0, 1, frozenset({7}))])
    without = spread(ring(views), events, GossipConfig(explain=True))
    assert (without.missed[0], without.unknown[0]) == (1, 1)
    assert spread(ring(views, back=1), events, GossipConfig()).missed[0] == 0


def test_a_pair_that_knows_only_itself_is_missed_though_a_view_holds_each() -> None:
    views = {7: {1: (2,), 2: (1,), 3: (4,), 4: (3, 1)}}
    events = as_events([Post(0, 1, frozenset({7}))])
    found = spread(ring(views), events, GossipConfig(explain=True))
    assert (found.missed[0], found.unknown[0]) == (2, 0)


def test_a_dead_author_publishes_and_is_dead_again_for_the_next_event() -> None:
    users = np.arange(1, 40)
    dead = int(users[dead_users(users, 0.3)][0])
    others = users[~dead_users(users, 0.3)][:2].tolist()
    views = {7: {dead: tuple(others), others[0]: (dead,), others[1]: (dead,)}}
    some = [Post(0, dead, frozenset({7})), Post(1, others[0], frozenset({7}))]
    found = spread(ring(views), as_events(some), GossipConfig(dead=0.3))
    assert found.due.tolist() == [2, 1]
    assert found.reached.tolist() == [2, 0]
    assert found.to_dead.tolist() == [0, 1]


def test_the_dead_are_those_of_their_streams() -> None:
    users = np.array([0, 1, 5, 10**12, 2**62])
    for share, run in itertools.product((0.0, 0.2, 0.7, 1.0), (0, 2**64 - 1)):
        config = GossipConfig(dead=share)
        expected = [is_dead(int(user), config, run) for user in users]
        assert dead_users(users, share, run).tolist() == expected


def test_a_network_of_views_is_that_of_the_played_overlay() -> None:
    topics = subscriptions(2)
    overlay = played(topics)
    direct, by_rows = network_of(overlay, 4, 2), ring(as_views(overlay, 4), 2)
    for name in GossipNetwork.__slots__:
        assert getattr(direct, name).tolist() == getattr(by_rows, name).tolist(), name


def test_a_saved_network_spreads_events_alike(tmp_path: Path) -> None:
    topics = subscriptions(3)
    network, events = network_of(played(topics), 4), as_events(posts(3, topics))
    network.save(tmp_path / "network")
    again = GossipNetwork.load(tmp_path / "network")
    config = GossipConfig(loss=0.2)
    one, other = (spread(which, events, config) for which in (network, again))
    assert [row(one, at) for at in range(30)] == [row(other, at) for at in range(30)]
    assert network.nbytes == again.nbytes


def test_no_events_and_no_topics_are_no_error() -> None:
    network = network_of(played(subscriptions(0)), 0)
    assert len(spread(network, as_events([]), GossipConfig()).due) == 0
    empty = ring({})
    found = spread(empty, as_events([Post(0, 1, frozenset({7}))]), GossipConfig())
    assert row(found, 0)["due"] == 0


def test_invalid_settings_and_networks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="loss must be 0 to 1"):
        GossipConfig(loss=1.5)
    with pytest.raises(ValueError, match="dead must be 0 to 1"):
        GossipConfig(dead=-0.1)
    with pytest.raises(ValueError, match="dead_ids must be one of kept, removed"):
        GossipConfig(dead_ids="lost")  # type: ignore[arg-type]
    with pytest.raises(KernelError, match="view of user 1 in topic 7 holds 9"):
        ring({7: {1: (9,), 2: (1,)}})
    with pytest.raises(KernelError, match="user 1 has two views in topic 7"):
        network_of_views(*(np.array(one) for one in ([7, 7], [1, 1], [0, 0, 0], [])))
    with pytest.raises(KernelError, match="back must be 0 or more"):
        ring({7: {1: (2,), 2: (1,)}}, back=-1)
    with pytest.raises(KernelError, match="2 events have 1 authors"):
        make_events([1, 2], [1], [0, 0, 0], [])
    with pytest.raises(KernelError, match="offsets of events must go from 0 to 1"):
        make_events([1], [1], [0, 2], [7])
    with pytest.raises(KernelError, match="offsets of events must not fall"):
        make_events([1, 2], [1, 2], [0, 2, 1], [7])
    with pytest.raises(KernelError, match="event ids must not be negative"):
        make_events([-1], [1], [0, 1], [7])
    with pytest.raises(KernelError, match="cannot read the network"):
        GossipNetwork.load(tmp_path)
