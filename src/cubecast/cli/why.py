"""``cubecast why``: what a node knows of a topic (`Node.explain`), in sentences."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, TypeAlias

import msgspec
import typer

import cubecast
from cubecast.cli.config import (
    DEFAULT_NODE,
    AtOption,
    ConfigOption,
    Credentials,
    JsonOption,
    NameFlag,
    SecretFlag,
    TlsCaOption,
    TlsCertOption,
    TlsCrlOption,
    TlsKeyOption,
    cluster_access,
)
from cubecast.cli.output import console, counted, size
from cubecast.cli.running import ask
from cubecast.logs import escaped


def why(
    topic: Annotated[str, typer.Argument(help="The topic to ask about.")],
    at: AtOption = DEFAULT_NODE,
    secret: SecretFlag = None,
    name: NameFlag = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_crl: TlsCrlOption = None,
    config: ConfigOption = None,
    node: Annotated[
        int | None, typer.Option(metavar="N", help="Ask node N instead of the one at --at.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a node knows of a topic: what waits there, for what, and since when.

    Examples:

    \b
      cubecast why chat/room1
      cubecast why chat/room1 --node 2
      cubecast why chat/room1 --json
    """
    known = cluster_access("why", config, secret, name, tls_ca, tls_cert, tls_key, tls_crl)
    slot, facts, listed = ask("why", _why(topic, at, known, node))
    if as_json:
        typer.echo(json.dumps({"topic": topic, "node": slot, **facts}))
    else:
        for line in explained(topic, slot, facts, listed):
            console.print(escaped(line), highlight=False, markup=False, soft_wrap=True)


Answer: TypeAlias = tuple[int, dict[str, object], dict[str, list[int]] | None]
"""The node, its facts on a topic, and the cluster's topics if the node has none."""


async def _why(topic: str, at: str, access: Credentials, slot: int | None) -> Answer:
    async with access.connect(at) as client:
        if slot is None or slot == client.slot:
            return await _knowledge(client, topic)
        members = await client.members()
    if slot not in members:
        raise ValueError(f"there is no node {slot}")
    async with access.connect(members[slot]) as client:
        return await _knowledge(client, topic)


async def _knowledge(client: cubecast.Client, topic: str) -> Answer:
    facts = await client.explain(topic)
    listed = None
    if not facts["informed"]:
        with suppress(cubecast.CubecastError):  # too many to list, say: go on without
            listed = await client.topics()
    return client.slot, {**facts}, listed


_OPERATION = {
    "join": "the subscription",
    "leave": "the end of the subscription",
    "register": "the first publication",
}
_STANDING = {
    "out": "not subscribed",
    "joining": "about to be subscribed",
    "in": "subscribed",
    "leaving": "about to be unsubscribed",
}


class _Wait(msgspec.Struct):
    stream: str
    seq: int
    for_stream: str
    for_seq: int
    delivered: int
    waited: int


class _Reader(msgspec.Struct):
    policy: str
    client: bool
    unread_messages: int
    unread_bytes: int
    limit_bytes: int
    owes: bool


class _Facts(msgspec.Struct):
    standing: str
    informed: bool
    members: list[int] = []
    next: int = 0
    in_flight: int = 0
    held: int = 0
    waiting: list[_Wait] = []
    missing: dict[str, int] = {}
    behind: dict[int, int] = {}
    leaves: list[int] = []
    suspended: list[int] = []
    blocked: bool = False
    accepted: int = 0
    operation: str = ""
    unanswered: dict[int, int] = {}
    mute: list[tuple[int, int, int]] = []
    leader: tuple[int, int, str] | None = None
    dropped: dict[str, int] = {}
    readers: list[_Reader] = []


def explained(
    topic: str, node: int, answer: dict[str, Any], listed: Mapping[str, Sequence[int]] | None = None
) -> Iterator[str]:
    """The facts of one node and topic, a line each; the last line is the verdict.

    `listed` are the topics of the cluster, with their subscribers, if they were asked for because
    the node does not know the subscribers.
    """
    facts = msgspec.convert(answer, _Facts, strict=False)  # slots are texts in JSON
    if listed is not None and topic not in listed and not facts.next and facts.standing == "out":
        yield f"{topic}: no node has published to it or subscribed to it"
        return
    standing = _STANDING.get(facts.standing, facts.standing)
    members = facts.members if listed is None else listed.get(topic, ())
    others = ", ".join(str(slot) for slot in members if slot != node) or "none"
    known = f"others subscribed: {others}"
    if listed is None and not facts.informed:
        known = "it does not know who else is"
    yield f"{topic} at node {node}: {standing}; {known}"
    yield from _unanswered(facts)
    yield from _sent(node, facts)
    yield from _received(facts)
    yield from _unread(facts)
    yield _verdict(facts)


def _unanswered(facts: _Facts) -> Iterator[str]:
    """The nodes that an operation waits for, and those reported not to answer."""
    what = _OPERATION.get(facts.operation, "an operation")
    for slot, waited in sorted(facts.unanswered.items()):
        yield f"{what} waits for node {slot}, or a node below it, for {waited / 1e6:.3f} s"
    for slot, by, waited in facts.mute:
        yield f"node {slot} does not answer: node {by} has waited {waited / 1e6:.3f} s for it"
    if facts.leader is not None:
        slot, waited, reason = facts.leader
        yield f"node {slot} leads the cluster, and {reason}: waited {waited / 1e6:.3f} s for it"


def _sent(node: int, facts: _Facts) -> Iterator[str]:
    """Messages published here, and the subscribers that are slow with them."""
    if facts.next:
        published = counted(facts.next, "message")
        yield f"published here: {published}, {facts.in_flight} bytes not taken in by all"
    if facts.accepted:
        yield f"accepted here and not sent yet: {counted(facts.accepted, 'message')}"
    if facts.blocked:
        yield "publishers here wait: there is no credit until subscribers have taken in more"
    for slot, count in sorted(facts.behind.items()):
        who = "readers at this node are" if slot == node else f"node {slot} or those below it are"
        yield f"  {who} {counted(count, 'message')} behind"
    for slot in facts.leaves:
        yield f"  node {slot} did not answer in time: it is sent to, and passes nothing on"
    for slot in facts.suspended:
        yield f"  node {slot} is left out until it is back: it misses what is published meanwhile"


def _received(facts: _Facts) -> Iterator[str]:
    """Messages that have come here and cannot be delivered yet."""
    for wait in facts.waiting:
        yield (
            f"waits: message {wait.seq} of node {_node(wait.stream)} for message {wait.for_seq} of "
            f"node {_node(wait.for_stream)} (here up to {wait.delivered}), "
            f"for {wait.waited / 1e6:.3f} s"
        )
    for stream, seq in facts.missing.items():
        yield f"missing: message {seq} of node {_node(stream)}; later ones are here"
    if facts.held:
        yield f"held back: {facts.held} bytes"


def _unread(facts: _Facts) -> Iterator[str]:
    """Messages that readers at this node have not read, and whether publishers wait."""
    for one in facts.readers:
        who = "a light client" if one.client else "the application"
        unread = f"{counted(one.unread_messages, 'message')} unread, limit {size(one.limit_bytes)}"
        wait = ": publishers wait for it" if one.owes else ""
        yield f"a reader here ({who}, policy {one.policy}) has {unread}{wait}"


def _verdict(facts: _Facts) -> str:
    """What waits, in one sentence, with the nodes that are left out or slow."""
    waits = [
        text
        for text, so in (
            ("an operation waits for other nodes to answer", facts.unanswered),
            ("publishers wait for credit", facts.blocked),
            ("subscribers are behind", facts.behind),
            ("publishers wait for a reader here", any(one.owes for one in facts.readers)),
            ("messages wait to be sent", facts.accepted and not facts.blocked),
            ("messages wait for others that come before them", facts.waiting or facts.missing),
        )
        if so
    ]
    apart = [f"node {slot} is left out" for slot in facts.suspended]
    apart += [f"node {slot} is slow" for slot in facts.leaves if slot not in facts.suspended]
    return "; ".join([*(waits or ["nothing waits"]), *apart])


def _node(stream: str) -> str:
    return stream.partition(".")[0]
