"""Gossip over overlays, as plainly as it can be written: what the compiled gossip is held to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cubecast.kernel.gossip.config import DEAD, HANDED, HANDED_LOSS, LOSS, GossipConfig
from cubecast.overlay.chance import below, draw, stream

Views = Mapping[int, Mapping[int, tuple[int, ...]]]
"""{topic: {user: view}}"""


@dataclass(frozen=True)
class Post:
    number: int
    author: int
    topics: frozenset[int]


def share(bits: int) -> float:
    return (bits >> 11) * 2.0**-53


def is_dead(user: int, config: GossipConfig, run: int) -> bool:
    return share(draw(stream(run, DEAD, user, 0), 0)) < config.dead


def with_back_links(views: Views, back: int) -> Views:
    """Each node may also send to those that have it among the first `back` of their view."""
    found = {topic: {user: list(view) for user, view in of.items()} for topic, of in views.items()}
    for topic, of in views.items():
        for user, view in of.items():
            for other in view[:back]:
                if user not in of[other]:
                    found[topic][other].append(user)
    return {topic: {user: tuple(view) for user, view in of.items()} for topic, of in found.items()}


class Spreading:
    """One event, message by message."""

    def __init__(self, views: Views, post: Post, config: GossipConfig, run: int) -> None:
        self.views, self.post, self.config, self.run = views, post, config, run
        self.topics = sorted(post.topics & set(views))
        users = {user for topic in self.topics for user in views[topic]} - {post.author}
        self.due = {user for user in users if not is_dead(user, config, run)}
        self.rounds: dict[int, int] = {post.author: 0}
        self.messages = self.topic_messages = self.handed = 0
        self.duplicates = self.lost = self.to_dead = 0

    def alive(self, user: int) -> bool:
        return user == self.post.author or not is_dead(user, self.config, self.run)

    def arrive(self, user: int, round_: int, lost: bool) -> None:
        if not self.alive(user):
            self.to_dead += 1
        elif lost:
            self.lost += 1
        elif user in self.rounds:
            self.duplicates += 1
        else:
            self.rounds[user] = round_

    def hand_over(self) -> None:
        for topic in self.topics:
            if self.post.author in self.views[topic]:
                continue
            users = sorted(self.views[topic])
            removed = self.config.dead_ids == "removed"
            if removed and not any(self.alive(user) for user in users):
                continue
            name, number = stream(self.run, HANDED, self.post.number, topic), 0
            user = users[below(draw(name, number), len(users))]
            while removed and not self.alive(user):
                number += 1
                user = users[below(draw(name, number), len(users))]
            self.handed += 1
            self.arrive(user, 1, share(draw(name, HANDED_LOSS)) < self.config.loss)

    def forward(self, sender: int, round_: int) -> None:
        receivers: set[int] = set()
        for topic in self.topics:
            for user in self.views[topic].get(sender, ()):
                if self.config.dead_ids == "kept" or self.alive(user):
                    self.topic_messages += 1
                    receivers.add(user)
        self.messages += len(receivers)
        name = stream(self.run, LOSS, self.post.number, sender)
        for user in receivers:
            self.arrive(user, round_, share(draw(name, user)) < self.config.loss)

    def play(self) -> dict[str, object]:
        self.hand_over()
        round_ = 0
        while round_ in self.rounds.values() or round_ == 0:
            for sender in [user for user, heard in self.rounds.items() if heard == round_]:
                self.forward(sender, round_ + 1)
            round_ += 1
        reached = set(self.rounds) - {self.post.author}
        assert reached <= self.due
        rounds = [self.rounds[user] for user in reached]
        holders = {
            user
            for topic in self.topics
            for holder, view in self.views[topic].items()
            if self.alive(holder)
            for user in view
        }
        return {
            "due": len(self.due), "reached": len(reached), "messages": self.messages,
            "topic_messages": self.topic_messages, "handed": self.handed,
            "duplicates": self.duplicates, "lost": self.lost, "to_dead": self.to_dead,
            "rounds": sum(rounds), "last_round": max(rounds, default=0),
            "unknown": len(self.due - reached - holders) if self.config.explain else 0,
            "topics": self.topics,
            "topic_due": [len(self.due & set(self.views[topic])) for topic in self.topics],
            "topic_reached": [len(reached & set(self.views[topic])) for topic in self.topics],
        }  # fmt: skip


def play_post(
    views: Views, post: Post, config: GossipConfig, run: int = 0, back: int = 0
) -> dict[str, object]:
    """All counts of one event."""
    return Spreading(with_back_links(views, back), post, config, run).play()
