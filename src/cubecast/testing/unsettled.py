"""Why a cluster does not settle: which nodes wait, in which topics, for which nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cubecast.net.node.node import Node
from cubecast.net.node.shell import shell_of
from cubecast.protocol.explain import Explanation
from cubecast.protocol.port import Topic

REASONS = 8
"""Reasons in one text, at most."""


def reasons(nodes: Sequence[Node], busy: Sequence[Node]) -> str:
    """One sentence on the nodes that are busy, and on the full subscriptions that they wait for."""
    waits: list[str] = []
    topics: dict[Topic, None] = {}
    for node in busy:
        found = dict(_waits(node))
        topics.update(dict.fromkeys(found))
        where = [f"in {topic!r} for {others}" for topic, others in found.items()]
        waits.append(f"node {node.slot} {_stands(node, where)}")
    told = [*waits, *(text for topic in topics for text in _full(nodes, topic))]
    more = [f"and {len(told) - REASONS} more"] if len(told) > REASONS else []
    return "; ".join([*told[:REASONS], *more])


def _stands(node: Node, where: Sequence[str]) -> str:
    """What a node waits for, if it is known; else what it lacks."""
    if where:
        return f"waits {', '.join(where)}"
    if node.closed:
        return "is closed"
    shell = shell_of(node)
    if not shell.is_inside:
        return "is in no cluster"
    return "does not agree with all others on who is there" if shell.at_rest() else "waits"


def _waits(node: Node) -> Iterator[tuple[Topic, str]]:
    """Topics in which a node waits, and what it waits for."""
    core = None if node.closed else shell_of(node).presence.core
    if core is None:
        return
    for topic in core.topics():
        facts = node.explain(topic)
        slots = sorted({*facts.get("behind", ()), *facts.get("unanswered", ())})
        if slots:
            yield (
                topic,
                " and ".join(
                    "readers of its own" if slot == node.slot else f"node {slot}" for slot in slots
                ),
            )
        elif facts.get("accepted"):
            yield topic, f"credit (messages not sent: {facts['accepted']})"
        elif facts.get("in_flight"):
            yield topic, "acknowledgements"


def _full(nodes: Sequence[Node], topic: Topic) -> Iterator[str]:
    """The subscriptions to a topic that publishers wait for."""
    for node in nodes:
        facts: Explanation | None = None if node.closed else node.explain(topic)
        for one in facts.get("readers", ()) if facts is not None else ():
            if one["owes"]:
                who = "a light client" if one["client"] else "the application"
                yield (
                    f"a subscription to {topic!r} at node {node.slot} ({who}, policy "
                    f"{one['policy']}) is full: {one['unread_bytes']} bytes unread, "
                    f"limit {one['limit_bytes']}"
                )
