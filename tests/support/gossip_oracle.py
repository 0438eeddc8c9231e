"""The counts of one event by the plain gossip (`cubecast.overlay.dissemination`) and plain sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cubecast.kernel.gossip.config import DEAD, GossipConfig
from cubecast.kernel.gossip.engine import COLUMNS
from cubecast.overlay.chance import draw, stream
from cubecast.overlay.dissemination import Conditions, Dissemination, GossipEvent, views_of

Views = Mapping[int, Mapping[int, tuple[int, ...]]]
"""{topic: {user: view}}"""


@dataclass(frozen=True)
class Post:
    number: int
    author: int
    topics: frozenset[int]


def is_dead(user: int, config: GossipConfig, run: int) -> bool:
    return (draw(stream(run, DEAD, user, 0), 0) >> 11) * 2.0**-53 < config.dead


def with_back_links(views: Views, back: int) -> Views:
    """Each node may also send to those that have it among the first `back` of their view."""
    found = {topic: {user: list(view) for user, view in of.items()} for topic, of in views.items()}
    for topic, of in views.items():
        for user, view in of.items():
            for other in view[:back]:
                if user not in of[other]:
                    found[topic][other].append(user)
    return {topic: {user: tuple(view) for user, view in of.items()} for topic, of in found.items()}


def without(views: Views, gone: set[int]) -> Views:
    """Views that no longer hold these users; their own views stay."""
    return {
        topic: {user: tuple(one for one in view if one not in gone) for user, view in of.items()}
        for topic, of in views.items()
    }


def play_post(
    views: Views, post: Post, config: GossipConfig, run: int = 0, back: int = 0
) -> dict[str, Any]:
    """All counts of one event."""
    topics = sorted(post.topics & set(views))
    users = {user for of in views.values() for user in of} - {post.author}
    dead = {user for user in users if is_dead(user, config, run)}
    views = with_back_links(views, back)
    if config.dead_ids == "removed":
        views = without(views, dead)
    due = {user for topic in topics for user in views[topic]} - dead - {post.author}
    handed = sum(
        post.author not in views[topic] and not set(views[topic]) <= dead for topic in topics
    )
    nothing = dict.fromkeys(COLUMNS, 0) | {"topics": [], "topic_due": [], "topic_reached": []}
    if not topics:
        return nothing

    conditions = Conditions(loss=config.loss, crashes=dict.fromkeys(dead, 0))
    event = GossipEvent(post.number, post.author, tuple(topics))
    played = Dissemination(run, views, views_of(views), event, conditions)
    outcome = played.play()
    reached: set[int] = set(played.reached)
    assert len(reached) == outcome.delivered
    assert len(due) == outcome.wanted
    assert outcome.strays == 0
    held = {
        user
        for topic in topics
        for holder, view in views[topic].items()
        if holder not in dead
        for user in view
    }
    return nothing | {
        "due": len(due),
        "reached": outcome.delivered,
        "messages": outcome.messages - handed,
        "topic_messages": outcome.topic_links - handed,
        "handed": handed,
        "duplicates": outcome.duplicates,
        "lost": outcome.lost,
        "to_dead": outcome.to_down,
        "rounds": sum(round_ * count for round_, count in enumerate(outcome.by_round)),
        "last_round": max((at for at, count in enumerate(outcome.by_round) if count), default=0),
        "unknown": len(due - reached - held) if config.explain else 0,
        "topics": topics,
        "topic_due": [len(due & set(views[topic])) for topic in topics],
        "topic_reached": [len(reached & set(views[topic])) for topic in topics],
    }
