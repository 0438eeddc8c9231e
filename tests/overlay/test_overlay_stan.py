"""A node of StaN, rule by rule ([N] Algorithm 2), and what repairing mode adds."""

from __future__ import annotations

import ast
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.overlay.effects import (
    Cause,
    Effect,
    Introduce,
    JoinTopic,
    LeaveTopic,
    ReceivedFromNode,
    Resize,
    SendToNode,
    Stranded,
    Tick,
    Unreachable,
    ViewChanged,
)
from cubecast.overlay.messages import (
    CollectReply,
    CollectWalk,
    Keep,
    KeepGranted,
    KeepRefused,
    KeepReleased,
    Message,
    NodeId,
    NotMember,
    Topic,
)
from cubecast.overlay.rounds import MODES, pins_limit
from cubecast.overlay.stan import Stan, StanConfig
from cubecast.overlay.view import BURIALS_LIMIT, OverlayView, Weigh
from cubecast.overlay.weights import weight
from support.purity import PURE, SRC, called_builtins, imported_modules

ME = NodeId(0)
A, B = Topic(1), Topic(2)


def ids(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, numbers))


def first(_: int) -> int:
    """Chance that always takes the first."""
    return 0


def node(mode: str = "faithful", **more: object) -> Stan:
    return Stan(ME, StanConfig(mode=mode, **more), first)  # type: ignore[arg-type]


def member(*others: int, mode: str = "faithful", size: int | None = None, **more: object) -> Stan:
    """A node that subscribes to A with this view."""
    stan = node(mode, **more)
    stan.step(JoinTopic(A, ids(*others), len(others) if size is None else size), 0)
    return stan


def by_weight(others: Iterable[int], of: int = ME) -> tuple[NodeId, ...]:
    """Others, the lightest for a node first."""
    return ids(*sorted(others, key=lambda other: (weight(of, other), other)))


def told(stan: Stan, sender: int, message: Message, now: float = 1) -> list[Effect]:
    stan.check_invariants()
    effects = stan.step(ReceivedFromNode(NodeId(sender), message), now)
    stan.check_invariants()
    return effects


def sends(effects: Iterable[Effect]) -> list[tuple[int, Message]]:
    return [(effect.to, effect.message) for effect in effects if isinstance(effect, SendToNode)]


CORE = (
    "chance",
    "weights",
    "view_sizes",
    "rounds",
    "messages",
    "effects",
    "view",
    "keepers",
    "stan",
)


@pytest.mark.parametrize("module", [*CORE, "gossip", "dissemination", "measures"])
def test_the_core_knows_no_clock_no_socket_and_no_source_of_chance(module: str) -> None:
    tree = ast.parse((SRC / "overlay" / f"{module}.py").read_text(encoding="utf-8"))
    foreign = imported_modules(tree) - PURE - {"math", "statistics"}
    assert {name for name in foreign if not name.startswith("cubecast.overlay.")} == set()
    assert "cubecast.overlay.world" not in foreign
    assert not called_builtins(tree)


# -- Algorithm 2 -----------------------------------------------------------------------------------


def test_figure_2_two_topics_end_up_with_the_same_two_physical_links() -> None:
    """[N] Figure 2: n0 holds n1, n2 in A and n3, n4 in B; n2 and n3 turn out to be the lightest."""
    weights = {1: 8, 2: 3, 3: 1, 4: 5}

    class Drawn(Stan):
        def weigh(self, topic: Topic) -> Weigh:
            return lambda p, q: weights[q]

    stan = Drawn(ME, StanConfig(), first)
    stan.step(JoinTopic(A, ids(1, 2), 2), 0)
    stan.step(JoinTopic(B, ids(3, 4), 2), 0)
    assert set(stan.view(A)) | set(stan.view(B)) == {1, 2, 3, 4}
    for topic in (A, B):
        told(stan, 1, CollectReply(topic, ids(0, 1, 2, 3, 4)))
    assert stan.view(A) == stan.view(B) == ids(3, 2)


def test_a1_to_a4_a_tick_sends_a_walk_to_a_random_member_of_each_view() -> None:
    drawn: list[int] = []

    def last(limit: int) -> int:
        drawn.append(limit)
        return limit - 1

    stan = Stan(ME, StanConfig(ttl=4), last)
    stan.step(JoinTopic(B, ids(7, 8, 9), 3), 0)
    stan.step(JoinTopic(A, ids(5, 6), 2), 0)
    assert sends(stan.step(Tick(), 1)) == [
        (6, CollectWalk(A, ME, (), 4)),
        (9, CollectWalk(B, ME, (), 4)),
    ]
    assert drawn == [2, 3]


def test_a5_to_a11_a_walk_collects_node_and_view_and_goes_on_with_ttl_less_one() -> None:
    """A11 prints the constant TTL - 1, with which the walk would never end."""
    stan = member(5, 6)
    sent = sends(told(stan, 9, CollectWalk(A, NodeId(8), ids(3, 9), 2)))
    assert sent == [(5, CollectWalk(A, NodeId(8), ids(0, 3, 5, 6, 9), 1))]


def test_a12_a13_the_last_node_replies_to_the_source() -> None:
    sent = sends(told(member(5, 6), 9, CollectWalk(A, NodeId(8), ids(9), 0)))
    assert sent == [(8, CollectReply(A, ids(0, 5, 6, 9)))]


def test_a14_to_a17_a_reply_leaves_the_lightest_as_many_as_there_were() -> None:
    stan = member(5, 6, 7)
    effects = told(stan, 9, CollectReply(A, ids(*range(20, 40))))
    wanted = by_weight({5, 6, 7, *range(20, 40)})[:3]
    assert stan.view(A) == wanted
    assert effects == [ViewChanged(A, wanted)]


def test_a16_a_node_never_takes_itself_into_its_view() -> None:
    stan = member(5, 6)
    told(stan, 9, CollectReply(A, ids(0)))
    assert set(stan.view(A)) == {5, 6}


def test_a_reply_that_changes_nothing_has_no_effect() -> None:
    stan = member(5, 6)
    assert told(stan, 9, CollectReply(A, ids(5))) == []


def test_messages_after_unsubscribing_are_dropped() -> None:
    stan = member(5, 6)
    stan.step(LeaveTopic(A), 1)
    for message in (CollectWalk(A, NodeId(8), (), 3), CollectReply(A, ids(5))):
        assert told(stan, 5, message) == []
    assert stan.view(A) == ()
    assert stan.step(Tick(), 2) == []


def test_a_node_alone_in_its_topic_sends_no_walk() -> None:
    stan = member()
    assert stan.step(Tick(), 1) == []


def test_a_walk_that_reaches_an_empty_view_ends_there() -> None:
    sent = sends(told(member(), 9, CollectWalk(A, NodeId(8), (), 5)))
    assert sent == [(8, CollectReply(A, ids(0)))]


def test_faithful_mode_knows_no_repair() -> None:
    """The source of a walk is not learned, requests are not heard, dead ids stay."""
    stan = member(5, 6)
    told(stan, 7, CollectWalk(A, NodeId(8), (), 1))
    assert told(stan, 7, Keep(A, 1)) == []
    assert stan.step(Unreachable(NodeId(5)), 1) == []
    assert set(stan.view(A)) == {5, 6}


def test_a_faithful_node_may_be_told_of_failures_and_fills_the_gap_later() -> None:
    stan = member(5, 6, removes_dead=True)
    assert stan.step(Unreachable(NodeId(5)), 1) == [ViewChanged(A, ids(6))]
    told(stan, 6, CollectReply(A, ids(5, 7)), now=2)
    assert set(stan.view(A)) == {6, 7}


# -- hostile or late input -------------------------------------------------------------------------


def test_no_peer_sends_a_node_on_a_longer_walk_than_its_own() -> None:
    (_, walk), *_ = sends(told(member(5, 6, ttl=5), 9, CollectWalk(A, NodeId(8), (), 10**9)))
    assert isinstance(walk, CollectWalk)
    assert walk.ttl == 4


@pytest.mark.parametrize("ttl", [0, -5])
def test_a_ttl_below_one_ends_the_walk(ttl: int) -> None:
    (_, reply), *_ = sends(told(member(5, 6), 9, CollectWalk(A, NodeId(8), (), ttl)))
    assert isinstance(reply, CollectReply)


def test_walks_and_replies_beyond_the_limit_are_dropped() -> None:
    stan = member(5, 6, collected_limit=3)
    assert told(stan, 9, CollectWalk(A, NodeId(8), ids(1, 2, 3, 4), 3)) == []
    assert told(stan, 9, CollectReply(A, ids(1, 2, 3, 4))) == []


def test_a_second_subscription_changes_nothing() -> None:
    stan = member(5, 6)
    assert stan.step(JoinTopic(A, ids(7, 8), 2), 1) == []
    assert stan.view(A) == ids(5, 6)


def test_a_first_view_drops_repeats_and_the_node_itself() -> None:
    assert member(0, 5, 5, 6).view(A) == ids(5, 6)


def test_messages_survive_the_wire() -> None:
    encode = msgspec.msgpack.Encoder().encode
    decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
    messages: list[Message] = [
        CollectWalk(A, NodeId(2**62), ids(1, 2), 3),
        CollectReply(A, ids(1)),
        Keep(A, 4),
        KeepGranted(A, 4),
        KeepRefused(A),
        KeepReleased(A, 4),
        NotMember(A),
    ]
    assert [decoder.decode(encode(message)) for message in messages] == messages


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"ttl": -1}, "ttl must be 0 or more, not -1"),
        ({"mode": "lazy"}, "mode must be one of faithful, repairing, not 'lazy'"),
        ({"hashing": "md5"}, "hashing must be one of"),
        ({"period_ms": 0}, "period_ms must be above 0, not 0"),
        ({"patience_periods": 6}, "below lease_periods, not 6 and 5.5"),
        ({"burial_periods": 0}, "burial_periods must be above 0, not 0"),
        ({"collected_limit": 0}, "collected_limit must be 1 or more, not 0"),
    ],
)
def test_a_wrong_config_says_what_is_wrong(wrong: dict[str, object], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        StanConfig(**wrong)  # type: ignore[arg-type]


few = st.integers(0, 9).map(NodeId)
sets = st.lists(few, max_size=12).map(tuple)
numbers = st.integers(-1, 5)
messages = st.one_of(
    st.builds(CollectWalk, st.just(A), few, sets, numbers),
    st.builds(CollectReply, st.just(A), sets),
    st.builds(Keep, st.just(A), numbers),
    st.builds(KeepGranted, st.just(A), numbers),
    st.builds(KeepReleased, st.just(A), numbers),
    st.sampled_from((KeepRefused(A), NotMember(A))),
)
causes = st.one_of(
    st.builds(ReceivedFromNode, few, messages),
    st.just(Tick()),
    st.builds(Unreachable, few),
    st.builds(Introduce, st.just(A), sets),
    st.builds(Resize, st.just(A), st.integers(0, 6)),
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(MODES),
    sets,
    st.integers(0, 6),
    st.lists(st.tuples(causes, st.sampled_from((1.0, 30_000.0, 200_000.0))), max_size=30),
)
def test_whatever_comes_in_a_view_stays_sound_and_nothing_is_raised(
    mode: str, others: tuple[NodeId, ...], size: int, story: list[tuple[Cause, float]]
) -> None:
    """The view tells of each change, and grows beyond its size or shrinks for no message."""
    stan = node(mode)
    stan.step(JoinTopic(A, others, size), 0)
    now, told_of = 0.0, set(stan.view(A))
    for cause, later in story:
        now += later
        held = len(stan.view(A))
        effects = stan.step(cause, now)
        stan.check_invariants()
        changes = [effect.view for effect in effects if isinstance(effect, ViewChanged)]
        told_of = set(changes[-1]) if changes else told_of
        assert told_of == set(stan.view(A))
        if not isinstance(cause, Resize | Unreachable) and cause_message(cause) != NotMember(A):
            assert len(stan.view(A)) >= held


def cause_message(cause: Cause) -> Message | None:
    return cause.message if isinstance(cause, ReceivedFromNode) else None


# -- repair: offers --------------------------------------------------------------------------------


def test_the_source_of_a_walk_is_offered_to_the_view_that_it_visits() -> None:
    heavy, *_, light = reversed(by_weight(range(1, 20)))
    stan = member(heavy, mode="repairing")
    effects = told(stan, 50, CollectWalk(A, light, (), 1))
    assert sends(effects)[0] == (heavy, CollectWalk(A, light, tuple(sorted((ME, heavy))), 0))
    assert stan.view(A) == (light,), "the walk reads the view, then the view learns"


def test_a_heavy_source_is_not_taken() -> None:
    heavy, *_, light = reversed(by_weight(range(1, 20)))
    stan = member(light, mode="repairing")
    told(stan, 50, CollectWalk(A, heavy, (), 1))
    assert stan.view(A) == (light,)


# -- repair: the node that is kept -----------------------------------------------------------------


def test_a_visited_node_asks_its_last_hop_to_keep_it() -> None:
    sent = sends(told(member(5, 6, mode="repairing"), 9, CollectWalk(A, NodeId(8), (), 1)))
    assert sent[1:] == [(9, Keep(A, 1))]


def keepers_by_weight() -> tuple[NodeId, ...]:
    """Nodes 10 to 19, the one to which we are lightest first."""
    return ids(*sorted(range(10, 20), key=lambda u: (weight(u, ME), u)))


def kept_by(keeper: int) -> Stan:
    stan = member(5, 6, mode="repairing")
    told(stan, keeper, CollectWalk(A, NodeId(5), (), 1))
    told(stan, keeper, KeepGranted(A, 1))
    assert stan.topics[A].keeper.keeper == keeper
    return stan


def test_a_lighter_last_hop_becomes_keeper_and_the_former_one_is_released() -> None:
    best, *_, worst = keepers_by_weight()
    stan = kept_by(worst)
    assert sends(told(stan, best, CollectWalk(A, NodeId(5), (), 1)))[1:] == [(best, Keep(A, 2))]
    assert sends(told(stan, best, KeepGranted(A, 2))) == [(worst, KeepReleased(A, 2))]
    assert stan.topics[A].keeper.keeper == best


def test_a_heavier_last_hop_is_not_asked() -> None:
    best, *_, worst = keepers_by_weight()
    assert sends(told(kept_by(best), worst, CollectWalk(A, NodeId(5), (), 1)))[1:] == []


def test_one_request_is_open_at_a_time() -> None:
    stan = member(5, 6, mode="repairing")
    told(stan, 9, CollectWalk(A, NodeId(8), (), 1))
    assert sends(told(stan, 10, CollectWalk(A, NodeId(8), (), 1)))[1:] == []


def test_a_node_without_a_keeper_asks_a_member_of_its_view_at_each_tick() -> None:
    stan = member(5, 6, mode="repairing")
    assert sends(stan.step(Tick(), 1))[1:] == [(5, Keep(A, 1))]
    told(stan, 5, KeepRefused(A))
    assert sends(stan.step(Tick(), 2))[1:] == [(5, Keep(A, 2))]


def test_a_keeper_is_asked_again_at_each_tick_and_given_up_after_a_silence() -> None:
    stan = kept_by(10)
    period = stan.config.period_ms
    for tick in (1, 2, 3):
        assert sends(stan.step(Tick(), 1 + tick * period))[1:] == [(10, Keep(A, 1 + tick))]
    assert sends(stan.step(Tick(), 1 + 4 * period))[1:] == [(5, Keep(A, 5))]


def test_belief_counts_from_the_sending_of_the_request_that_is_answered() -> None:
    """A late `KeepGranted` for an earlier request prolongs no belief beyond the keeper's lease."""
    stan = kept_by(10)
    period = stan.config.period_ms
    stan.step(Tick(), 1 * period)
    stan.step(Tick(), 2 * period)
    told(stan, 10, KeepGranted(A, 2), now=2 * period + 1)
    assert stan.topics[A].keeper.confirmed_ms == 1
    told(stan, 10, KeepGranted(A, 3), now=2 * period + 2)
    assert stan.topics[A].keeper.confirmed_ms == 2 * period


def test_a_keeper_that_refuses_leaves_or_cannot_be_reached_is_given_up() -> None:
    causes: list[Cause] = [
        ReceivedFromNode(NodeId(10), KeepRefused(A)),
        ReceivedFromNode(NodeId(10), NotMember(A)),
        Unreachable(NodeId(10)),
    ]
    for cause in causes:
        stan = kept_by(10)
        stan.step(cause, 2)
        assert stan.topics[A].keeper.keeper is None, cause


def test_a_kept_that_is_not_wanted_is_released_and_a_repeated_one_is_not() -> None:
    assert sends(told(kept_by(10), 11, KeepGranted(A, 1))) == [(11, KeepReleased(A, 1))]
    assert sends(told(kept_by(10), 10, KeepGranted(A, 1))) == []


# -- repair: the keeper ----------------------------------------------------------------------------


def test_a_keeper_holds_a_heavy_node_in_place_of_its_heaviest_link() -> None:
    *lightest, heavy = by_weight(range(1, 10))
    stan = member(*lightest[:4], mode="repairing")
    effects = told(stan, heavy, Keep(A, 3))
    wanted = (*lightest[:3], heavy)
    assert effects == [SendToNode(heavy, KeepGranted(A, 3)), ViewChanged(A, wanted)]
    told(stan, 9, CollectReply(A, tuple(lightest)))
    assert stan.view(A) == wanted


def test_a_released_node_stays_as_long_as_its_weight_allows() -> None:
    *lightest, heavy = by_weight(range(1, 10))
    stan = member(*lightest[:4], mode="repairing")
    told(stan, heavy, Keep(A, 1))
    told(stan, heavy, KeepReleased(A, 1))
    assert heavy in stan.view(A)
    told(stan, 9, CollectReply(A, tuple(lightest)))
    assert stan.view(A) == tuple(lightest[:4])


def test_a_pin_ends_with_its_lease_unless_it_is_renewed() -> None:
    *lightest, heavy = by_weight(range(1, 10))
    stan = member(*lightest[:4], mode="repairing")
    lease = stan.config.lease_periods * stan.config.period_ms
    told(stan, heavy, Keep(A, 1), now=0)
    told(stan, heavy, Keep(A, 2), now=lease / 2)
    stan.step(Tick(), lease + 1)
    assert heavy in stan.topics[A].view.pins
    stan.step(Tick(), lease * 1.5 + 1)
    assert heavy not in stan.topics[A].view.pins


def test_a_keeper_pins_at_most_half_of_its_view_and_refuses_more() -> None:
    stan = member(*range(1, 9), mode="repairing")
    answers = [sends(told(stan, asking, Keep(A, 1)))[0][1] for asking in range(20, 26)]
    assert pins_limit(8) == 4
    assert answers == [KeepGranted(A, 1)] * 4 + [KeepRefused(A)] * 2
    assert sends(told(stan, 20, Keep(A, 2)))[0][1] == KeepGranted(A, 2), "a renewal needs no room"
    assert len(stan.view(A)) == 8


def passed(sender: Stan, to: Stan, message: Message, now: float) -> list[tuple[int, Message]]:
    """A message arrives: what the receiver sends."""
    return sends(told(to, sender.node, message, now))


def two_nodes() -> tuple[Stan, Stan, NodeId]:
    """A node, its keeper, and the id of one that would be a lighter keeper."""
    lighter, *_, keeper = keepers_by_weight()
    asking = member(5, 6, mode="repairing")
    kept = Stan(keeper, StanConfig(mode="repairing"), first)
    kept.step(JoinTopic(A, ids(30, 31, 32, 33), 4), 0)
    ask(asking, kept, now=1)
    return asking, kept, lighter


def ask(asking: Stan, kept: Stan, now: float) -> None:
    """A walk comes from the keeper-to-be; request and answer arrive."""
    walk = CollectWalk(A, NodeId(5), (), 1)
    (_, (to, request)) = passed(kept, asking, walk, now)
    assert to == kept.node
    ((_, answer),) = passed(asking, kept, request, now)
    passed(kept, asking, answer, now)
    assert asking.topics[A].keeper.keeper == kept.node
    assert asking.node in kept.topics[A].view.pins


def released_for(asking: Stan, lighter: NodeId, now: float) -> Message:
    """A lighter node takes over: the release that the former keeper is sent."""
    (_, (_, request)) = sends(told(asking, lighter, CollectWalk(A, NodeId(5), (), 1), now))
    assert isinstance(request, Keep)
    ((_, release),) = sends(told(asking, lighter, KeepGranted(A, request.number), now))
    assert isinstance(release, KeepReleased)
    return release


def test_a_release_that_a_later_request_overtook_does_not_end_the_pin() -> None:
    asking, kept, lighter = two_nodes()
    late = released_for(asking, lighter, now=2)
    asking.step(Unreachable(lighter), 3)
    ask(asking, kept, now=4)
    passed(asking, kept, late, now=5)
    assert asking.topics[A].keeper.keeper == kept.node
    assert asking.node in kept.topics[A].view.pins, "the node believes in this keeper"
    passed(asking, kept, released_for(asking, lighter, now=6), now=6)
    assert asking.node not in kept.topics[A].view.pins


def test_an_earlier_request_that_comes_late_does_not_let_an_earlier_release_in() -> None:
    asking, kept, lighter = two_nodes()
    late = released_for(asking, lighter, now=2)
    asking.step(Unreachable(lighter), 3)
    ask(asking, kept, now=4)
    passed(asking, kept, Keep(A, 1), now=5)
    passed(asking, kept, late, now=6)
    assert asking.node in kept.topics[A].view.pins


def test_messages_of_before_a_node_left_and_came_back_count_for_nothing() -> None:
    asking, kept, lighter = two_nodes()
    late = released_for(asking, lighter, now=2)
    asking.step(LeaveTopic(A), 3)
    asking.step(JoinTopic(A, ids(5, 6), 2), 4)
    (_, (_, request)) = passed(kept, asking, CollectWalk(A, NodeId(5), (), 1), 5)
    passed(kept, asking, KeepGranted(A, 1), now=6)
    assert asking.topics[A].keeper.keeper is None, "an answer to a request of before"
    ((_, answer),) = passed(asking, kept, request, 7)
    passed(kept, asking, answer, now=8)
    passed(asking, kept, late, now=9)
    assert asking.topics[A].keeper.keeper == kept.node
    assert asking.node in kept.topics[A].view.pins


def test_a_node_does_not_keep_itself() -> None:
    assert sends(told(member(5, 6, mode="repairing"), 0, Keep(A, 1))) == [(0, KeepRefused(A))]


# -- repair: ids that are gone ---------------------------------------------------------------------


def test_walks_start_at_the_members_of_the_view_in_turn() -> None:
    """So each link is tried once in as many periods as there are links; new ones come first."""
    stan = member(5, 6, 7, mode="repairing", size=4)
    first_hops = [sends(stan.step(Tick(), now))[0][0] for now in range(1, 7)]
    assert sorted(first_hops[:3]) == sorted(first_hops[3:]) == [5, 6, 7]
    told(stan, 9, CollectReply(A, ids(8)))
    assert sends(stan.step(Tick(), 7))[0][0] == 8
    assert stan.topics[A].view.probed.keys() == set(stan.view(A))


def test_an_unreachable_id_is_removed_from_all_views_and_buried() -> None:
    stan = node("repairing")
    for topic in (A, B):
        stan.step(JoinTopic(topic, ids(5, 6), 2), 0)
    effects = stan.step(Unreachable(NodeId(5)), 1)
    assert effects == [ViewChanged(A, ids(6)), ViewChanged(B, ids(6))]
    told(stan, 6, CollectReply(A, ids(5, 9)))
    assert set(stan.view(A)) == {6, 9}


def test_only_a_view_that_holds_an_unreachable_id_buries_it() -> None:
    stan = node("repairing")
    stan.step(JoinTopic(A, ids(5, 6), 2), 0)
    stan.step(JoinTopic(B, ids(6, 7), 2), 0)
    stan.step(Unreachable(NodeId(5)), 1)
    assert [list(stan.topics[topic].view.buried) for topic in (A, B)] == [[5], []]


def test_a_buried_id_returns_when_it_speaks_or_when_its_burial_is_over() -> None:
    stan = member(5, 6, mode="repairing")
    stan.step(Unreachable(NodeId(5)), 1)
    told(stan, 5, CollectWalk(A, NodeId(5), (), 1))
    assert set(stan.view(A)) == {5, 6}
    stan.step(Unreachable(NodeId(5)), 2)
    stan.step(Tick(), 3 + stan.config.burial_periods * stan.config.period_ms)
    told(stan, 6, CollectReply(A, ids(5)))
    assert set(stan.view(A)) == {5, 6}


def test_a_node_that_does_not_subscribe_says_so_and_is_removed() -> None:
    outsider = node("repairing")
    for message in (CollectWalk(A, NodeId(8), (), 3), Keep(A, 1)):
        assert told(outsider, 5, message) == [SendToNode(NodeId(5), NotMember(A))]
    assert told(outsider, 5, CollectReply(A, ids(5))) == []
    stan = member(5, 6, mode="repairing")
    assert told(stan, 5, NotMember(A)) == [ViewChanged(A, ids(6))]


def test_an_empty_view_asks_for_an_introduction() -> None:
    stan = member(5, mode="repairing")
    stan.step(Unreachable(NodeId(5)), 1)
    assert stan.step(Tick(), 2) == [Stranded(A)]
    assert stan.step(Introduce(A, ids(7)), 3) == [ViewChanged(A, ids(7))]
    assert stan.step(Introduce(B, ids(7)), 3) == []


def test_an_introduction_brings_a_buried_id_back() -> None:
    stan = member(5, mode="repairing")
    stan.step(Unreachable(NodeId(5)), 1)
    assert stan.step(Introduce(A, ids(5)), 2) == [ViewChanged(A, ids(5))]


def test_a_view_that_shrinks_keeps_its_lightest_and_only_so_many_pins() -> None:
    stan = member(*range(1, 9), mode="repairing")
    for asking in range(20, 24):
        told(stan, asking, Keep(A, 1))
    stan.step(Resize(A, 4), 2)
    stan.check_invariants()
    assert set(stan.topics[A].view.pins) == set(by_weight(range(20, 24))[:2])
    assert len(stan.view(A)) == 4
    stan.step(Resize(A, 6), 3)
    told(stan, 9, CollectReply(A, ids(*range(1, 9))))
    assert len(stan.view(A)) == 6
    assert stan.step(Resize(B, 6), 3) == []
    with pytest.raises(ValueError, match="a view's size must be 0 or more, not -1"):
        stan.step(Resize(A, -1), 4)


def test_burials_are_bounded_and_the_oldest_is_forgotten_first() -> None:
    view = OverlayView(ME, 2, weight)
    for other in range(1, BURIALS_LIMIT + 3):
        view.merge(ids(other))
        view.remove(NodeId(other), buried_until=100.0)
    assert len(view.buried) == BURIALS_LIMIT
    view.merge(ids(1, 2, 3))
    assert set(view.ids) == {1, 2}
    view.check_invariants()
