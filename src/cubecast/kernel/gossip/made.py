"""Made events, for universes whose trace has no publications.

Event i draws a subscription: all are equally likely, so that active users publish more and large
topics are published to more.  Its user is the author.  The event goes to the topic of that
subscription and to some more of the author's topics, 1 to `most_topics` in all, as many as the
author has.  Ask Ubuntu's posts have 1 to 5 topics, too.
"""

from __future__ import annotations

from cubecast.kernel.errors import KernelError
from cubecast.kernel.gossip.events import GossipEvents, make_events
from cubecast.kernel.gossip.network import GossipNetwork
from cubecast.overlay.chance import below, draw, stream

MADE = 2**63 + 4
"""Names the streams (run, `MADE`, event, 0)."""
MOST_TOPICS = 5


def made_events(
    network: GossipNetwork, count: int, *, most_topics: int = MOST_TOPICS, run: int = 0
) -> GossipEvents:
    """So many events, numbered from 0."""
    if most_topics < 1 or count < 0:
        raise KernelError(f"cannot make {count} events of up to {most_topics} topics")
    if count and not len(network.members):
        raise KernelError("the network has no subscribers that could publish")
    authors: list[int] = []
    topics: list[int] = []
    offsets = [0]
    for event in range(count):
        name = stream(run, MADE, event, 0)
        entry = below(draw(name, 0), len(network.members))
        user = int(network.members[network.user_subscriptions[entry]])
        authors.append(int(network.users[user]))
        topics += _topics(network, name, user, entry, most_topics)
        offsets.append(len(topics))
    return make_events(range(count), authors, offsets, topics)


def _topics(network: GossipNetwork, name: int, user: int, entry: int, most: int) -> list[int]:
    """The topic of the drawn subscription, and others of its user in random order."""
    first, last = int(network.user_offsets[user]), int(network.user_offsets[user + 1])
    wanted = min(1 + below(draw(name, 1), most), last - first)
    chosen = [entry]
    number = 2
    while len(chosen) < wanted:
        other = first + below(draw(name, number), last - first)
        number += 1
        if other not in chosen:
            chosen.append(other)
    return [int(network.topics[network.user_topics[one]]) for one in chosen]
