"""What a node knows of a topic, for people: its subscribers, and which node waits for which."""

from __future__ import annotations

from typing import Required, TypedDict

from cubecast.protocol.port import NodeId, Seq, Stream, Time
from cubecast.protocol.subscriptions.membership import Membership
from cubecast.protocol.subscriptions.mute_members import MuteMembers
from cubecast.protocol.subscriptions.waves import Waves
from cubecast.protocol.topic.streams import Inbox
from cubecast.protocol.topic.topic import TopicCore
from cubecast.topology import members_of


class Waiting(TypedDict):
    """A message that waits for another one: streams are named "slot.life"."""

    stream: str
    seq: Seq
    for_stream: str
    for_seq: Seq
    delivered: Seq
    """How far `for_stream` is delivered."""
    waited: Time


class ReaderLoad(TypedDict):
    """The unread messages of a subscription at this node; a pattern counts all its topics."""

    policy: str
    client: bool
    """Whether a light client reads it; else an application at the node does."""
    unread_messages: int
    unread_bytes: int
    limit_bytes: int
    owes: bool
    """Whether publishers wait until it reads on."""


class Explanation(TypedDict, total=False):
    """A node's knowledge of a topic; a node that does not know the topic has two keys only."""

    standing: Required[str]
    """"out", "joining", "in", "leaving"; "apart": the node is in no cluster."""
    informed: Required[bool]
    operation: str
    unanswered: dict[NodeId, Time]
    mute: list[list[int]]
    leader: tuple[NodeId, Time, str]
    """The leader of the cluster, if it leaves a change undone, how long, and which."""
    members: list[NodeId]
    next: Seq
    in_flight: int
    leaves: list[NodeId]
    suspended: list[NodeId]
    behind: dict[NodeId, int]
    held: int
    dropped: dict[str, int]
    delivered: dict[str, Seq]
    waiting: list[Waiting]
    missing: dict[str, Seq]
    blocked: bool
    accepted: int
    readers: list[ReaderLoad]
    """The subscriptions of this node with unread messages; those that publishers wait for first."""


def explain(
    membership: Membership, waves: Waves, mute_members: MuteMembers, now: Time
) -> Explanation:
    """The standing of a node in a topic, the subscribers, and what is held, waits or is missing.

    `unanswered` are the children that an operation of ours waits for; each may wait for nodes below
    it.  `mute` lists the accusations of this view: the accused, the accuser, the time waited.
    """
    core = membership.core
    waits = waves.awaited(core.topic)
    return {
        "standing": membership.standing.value,
        "operation": membership.operation,
        "unanswered": {child: now - since for child, since in waits.items()},
        "mute": [[one.slot, one.by, one.waited] for one in mute_members.accused],
        "informed": membership.informed,
        "members": list(members_of(membership.members)),
        "next": core.outgoing.next_seq,
        "in_flight": core.outgoing.in_flight,
        "leaves": list(members_of(core.outgoing.laggards.leaves)),
        "suspended": list(members_of(core.outgoing.laggards.suspended)),
        "behind": core.outgoing.behind(),
        "held": core.load().held,
        "dropped": dict(core.guard.dropped),
        "delivered": {_name(stream): seq for stream, seq in core.front.delivered.items()},
        "waiting": [
            _wait(core, inbox, now)
            for inbox in core.front.waiting()
            if inbox.next in inbox.frames and inbox.frames[inbox.next].barrier
        ],
        "missing": {
            _name(inbox.stream): inbox.next
            for inbox in core.streams.inboxes.values()
            if core.reading.taking and inbox.next not in inbox.frames and inbox.held()
        },
    }


def _name(stream: Stream) -> str:
    """A stream: its node, and which life of it."""
    return f"{stream.source}.{stream.incarnation:x}"


def _wait(core: TopicCore, inbox: Inbox, now: Time) -> Waiting:
    """The message that waits, the one it waits for, and how long it has waited."""
    head = inbox.frames[inbox.next]
    cause, seq = head.barrier[min(inbox.checked, len(head.barrier) - 1)]
    return {
        "stream": _name(inbox.stream),
        "seq": head.first,
        "for_stream": _name(cause),
        "for_seq": seq,
        "delivered": core.front.delivered.get(cause, -1),
        "waited": now - inbox.stuck[1] if inbox.stuck[0] == head.first else 0,
    }
