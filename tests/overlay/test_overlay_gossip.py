"""Gossip over overlays: which nodes get an event, how often and how soon ([N] 2.1 and 2.2)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.overlay.dissemination import Conditions, GossipEvent, GossipOutcome, disseminate
from cubecast.overlay.gossip import (
    DeliverEvent,
    Discard,
    EventId,
    Gossip,
    PublishEvent,
    Push,
    PushArrived,
    SendPush,
)
from cubecast.overlay.measures import Overlays
from cubecast.overlay.messages import NodeId, Topic
from cubecast.overlay.rounds import MODES, RoundConfig, Views, play

A, B = Topic(1), Topic(2)
E = EventId(9)


def node(shared: bool = True, memory: int = 100) -> Gossip:
    """Node 0 holds 5 and 6 in A, 6 and 7 in B: it has two physical links less one to share."""
    views = {A: (NodeId(5), NodeId(6)), B: (NodeId(6), NodeId(7))}
    return Gossip(NodeId(0), views, shared, memory)


def targets(effects: list[object]) -> list[tuple[int, int | None, int]]:
    return [(e.to, e.push.overlay, e.links) for e in effects if isinstance(e, SendPush)]


# -- one node --------------------------------------------------------------------------------------


def test_a_shared_link_carries_an_event_of_two_topics_once() -> None:
    effects = node().step(PushArrived(Push(E, (A, B))))
    assert effects[0] == DeliverEvent(E)
    assert targets([*effects]) == [(5, None, 1), (6, None, 2), (7, None, 1)]


def test_only_topics_of_the_event_are_served() -> None:
    effects = node().step(PushArrived(Push(E, (A,))))
    assert targets([*effects]) == [(5, None, 1), (6, None, 1)]


def test_a_node_infects_once_and_dies() -> None:
    gossip = node()
    gossip.step(PushArrived(Push(E, (A, B))))
    assert gossip.step(PushArrived(Push(E, (A, B)))) == [Discard(E, duplicate=True)]


def test_in_separate_overlays_a_node_pushes_once_in_each_and_delivers_once() -> None:
    gossip = node(shared=False)
    assert targets([*gossip.step(PushArrived(Push(E, (A, B), A)))]) == [(5, A, 1), (6, A, 1)]
    again = gossip.step(PushArrived(Push(E, (A, B), B)))
    assert again[0] == Discard(E, duplicate=True)
    assert targets([*again]) == [(6, B, 1), (7, B, 1)]
    assert gossip.step(PushArrived(Push(E, (A, B), B))) == [Discard(E, duplicate=True)]


def test_an_event_of_other_topics_is_not_delivered() -> None:
    """Accuracy ([N] 2.2)."""
    assert node().step(PushArrived(Push(E, (Topic(3),)))) == [Discard(E, duplicate=False)]


@pytest.mark.parametrize("shared", [True, False])
def test_a_publisher_reaches_topics_that_it_does_not_subscribe_to_by_a_contact(
    shared: bool,
) -> None:
    foreign, unheard = Topic(3), Topic(4)
    gossip = node(shared)
    effects = gossip.step(PublishEvent(E, (A, foreign, unheard), {foreign: NodeId(8)}))
    overlays = (None, None) if shared else (A, foreign)
    wanted = [(5, overlays[0], 1), (6, overlays[0], 1), (8, overlays[1], 1)]
    assert targets([*effects]) == wanted
    back = Push(E, (A, foreign, unheard), None if shared else A)
    assert gossip.step(PushArrived(back)) == [Discard(E, duplicate=True)]


def test_memory_is_bounded_and_an_event_forgotten_is_new() -> None:
    gossip = node(memory=2)
    for number in (1, 2, 3):
        gossip.step(PushArrived(Push(EventId(number), (A,))))
    assert len(gossip.seen) == len(gossip.delivered) == 2
    assert gossip.step(PushArrived(Push(EventId(3), (A,)))) == [Discard(EventId(3), duplicate=True)]
    assert gossip.step(PushArrived(Push(EventId(1), (A,))))[0] == DeliverEvent(EventId(1))
    with pytest.raises(ValueError, match="memory must be 1 or more, not 0"):
        node(memory=0)


# -- many nodes, by hand ---------------------------------------------------------------------------

CHAIN: Overlays = {1: {0: (1,), 1: (2,), 2: (3,), 3: (0,)}}
EVENT = GossipEvent(9, 0, (1,))


def test_an_event_goes_round_a_ring_one_node_per_round() -> None:
    (outcome,) = disseminate(1, CHAIN, [EVENT])
    assert outcome == GossipOutcome(
        wanted=3,
        delivered=3,
        by_round=(0, 1, 1, 1, 0),
        messages=4,
        topic_links=4,
        duplicates=1,
    )
    assert outcome.complete
    assert outcome.latency == 2.0


def test_a_node_that_is_down_ends_the_ring_and_is_not_wanted() -> None:
    (outcome,) = disseminate(1, CHAIN, [EVENT], Conditions(crashes={2: 0}))
    assert (outcome.wanted, outcome.delivered, outcome.to_down) == (2, 1, 1)
    assert not outcome.complete


def test_a_node_that_crashes_after_it_pushed_harms_nothing() -> None:
    (outcome,) = disseminate(1, CHAIN, [EVENT], Conditions(crashes={2: 3}))
    assert (outcome.wanted, outcome.delivered, outcome.to_down) == (2, 2, 0)


def test_a_publisher_that_is_down_publishes_nothing() -> None:
    (outcome,) = disseminate(1, CHAIN, [EVENT], Conditions(crashes={0: 0}))
    assert (outcome.wanted, outcome.messages) == (3, 0)


def test_a_node_that_left_is_a_stray() -> None:
    (outcome,) = disseminate(1, {1: {0: (1, 2), 1: (2,)}}, [EVENT])
    assert (outcome.wanted, outcome.delivered, outcome.strays) == (1, 1, 2)


def test_when_all_messages_are_lost_none_is_delivered() -> None:
    (outcome,) = disseminate(1, CHAIN, [EVENT], Conditions(loss=1.0))
    assert (outcome.messages, outcome.lost, outcome.delivered) == (1, 1, 0)
    assert outcome.latency == 0.0


def test_a_shared_message_replaces_one_per_topic() -> None:
    """Two topics with the same two members: one physical link, two logical ones."""
    overlays = {topic: {0: (1,), 1: (0,)} for topic in (1, 2)}
    event = GossipEvent(9, 0, (1, 2))
    (shared,) = disseminate(1, overlays, [event])
    (separate,) = disseminate(1, overlays, [event], Conditions(shared=False))
    assert (shared.messages, shared.topic_links, shared.duplicates) == (2, 4, 1)
    assert (separate.messages, separate.topic_links, separate.duplicates) == (4, 4, 3)


def test_a_contact_carries_the_event_into_a_topic_that_the_publisher_is_not_in() -> None:
    overlays = {**CHAIN, 2: {5: (6,), 6: (5,)}}
    (outcome,) = disseminate(1, overlays, [GossipEvent(9, 0, (1, 2, 3))])
    assert (outcome.wanted, outcome.delivered) == (5, 5)
    (halved,) = disseminate(1, overlays, [GossipEvent(9, 0, (2,))], Conditions(crashes={5: 0}))
    assert (halved.wanted, halved.delivered) == (1, 1), "the contact is a node that is up"


def test_outcomes_add_up() -> None:
    one, two = disseminate(1, CHAIN, [EVENT, GossipEvent(10, 0, (7,))])
    total = one + two + one
    assert total == replace(
        one,
        wanted=6,
        delivered=6,
        by_round=(0, 2, 2, 2, 0),
        messages=8,
        topic_links=8,
        duplicates=2,
    )


@pytest.mark.parametrize("topics", [(), (1, 1)])
def test_an_event_names_its_topics_once_each(topics: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="event 9 needs one or more topics, each once"):
        GossipEvent(9, 0, topics)


def test_a_chance_of_loss_is_a_probability() -> None:
    with pytest.raises(ValueError, match="loss must be 0 to 1, not 2"):
        Conditions(loss=2)


def test_messages_of_separate_overlays_are_lost_apart() -> None:
    overlays = {topic: {0: (1,), 1: ()} for topic in (1, 2)}
    events = [GossipEvent(number, 0, (1, 2)) for number in range(40)]
    outcomes = disseminate(1, overlays, events, Conditions(shared=False, loss=0.5))
    assert {outcome.lost for outcome in outcomes} == {0, 1, 2}


# -- many nodes, over StaN -------------------------------------------------------------------------


def overlays_of(mode: str, topics: int = 4, nodes: int = 40, rounds: int = 8) -> Overlays:
    """Topics that share most of their members."""
    config = RoundConfig(rounds=rounds, mode=mode)  # type: ignore[arg-type]
    members = {t: [n for n in range(nodes) if (n + t) % 5] for t in range(1, topics + 1)}
    return {t: play(3, t, ids, config)[-1] for t, ids in members.items()}


def reachable(views: Views, start: int) -> set[int]:
    """An oracle: what a flood reaches."""
    border, reached = [start], {start}
    while border:
        new = set(views[border.pop()]) - reached
        reached |= new
        border.extend(new)
    return reached


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shared", [True, False])
def test_without_loss_an_event_reaches_what_a_flood_reaches(mode: str, shared: bool) -> None:
    overlays = overlays_of(mode)
    events = [GossipEvent(number, number, (1,)) for number in range(10) if number in overlays[1]]
    outcomes = disseminate(3, overlays, events, Conditions(shared=shared))
    for event, outcome in zip(events, outcomes, strict=True):
        found = reachable(dict(overlays[1].items()), event.publisher)  # type: ignore[arg-type]
        assert outcome.delivered == len(found) - 1


def test_where_all_are_reached_sharing_saves_exactly_the_parallel_links() -> None:
    """The links that one shared run stands for are the messages of separate overlays."""
    overlays = overlays_of("repairing")
    event = [GossipEvent(1, 6, (1, 2, 3, 4))]
    (shared,) = disseminate(3, overlays, event)
    (separate,) = disseminate(3, overlays, event, Conditions(shared=False))
    assert shared.complete
    assert separate.complete
    assert shared.topic_links == separate.messages
    assert shared.messages < 0.5 * separate.messages


def test_alignment_saves_messages_that_random_overlays_cannot() -> None:
    events = [GossipEvent(number, number, (1, 2, 3)) for number in range(8)]
    before, after = (
        sum(disseminate(3, overlays_of("repairing", rounds=r), events), GossipOutcome())
        for r in (0, 8)
    )
    assert before.topic_links == after.topic_links
    assert after.messages < 0.8 * before.messages


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 9),
    st.sampled_from((True, False)),
    st.sampled_from((0.0, 0.1, 0.5)),
    st.dictionaries(st.integers(0, 39), st.integers(0, 3), max_size=20),
    st.sets(st.integers(1, 5), min_size=1),
)
def test_every_message_is_accounted_for(
    run: int, shared: bool, loss: float, crashes: dict[int, int], topics: set[int]
) -> None:
    overlays = overlays_of("faithful", rounds=0)
    event = GossipEvent(run, run, tuple(topics))
    (outcome,) = disseminate(run, overlays, [event], Conditions(shared, loss, crashes))
    crashed = sum(n != event.publisher for n in crashes)
    received = outcome.messages - outcome.lost - outcome.to_down
    deliveries = received - outcome.duplicates - outcome.strays
    assert outcome.delivered <= deliveries <= outcome.delivered + crashed
    assert outcome.delivered <= outcome.wanted
    assert sum(outcome.by_round) == outcome.delivered
    assert outcome.messages <= outcome.topic_links
    assert outcome.strays == 0
