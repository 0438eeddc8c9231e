"""``cubecast topics``: the topics of a cluster and the nodes subscribed to each."""

from __future__ import annotations

import json
from typing import Annotated

import typer

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
from cubecast.cli.output import console
from cubecast.cli.running import ask
from cubecast.logs import escaped
from cubecast.net.topics import is_reply_topic

WIDEST_TOPIC = 48
"""Columns for the name of a topic; a longer one moves its own line alone."""


def topics(
    at: AtOption = DEFAULT_NODE,
    secret: SecretFlag = None,
    name: NameFlag = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_crl: TlsCrlOption = None,
    config: ConfigOption = None,
    everything: Annotated[
        bool, typer.Option("--all", help="List the topics for replies to requests, too.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the topics of a cluster and the nodes subscribed to each; every node is asked.

    A pattern is not a topic. A node that reads a pattern is listed with each topic that matches it
    and that was used; before that it is not listed.

    Examples:

    \b
      cubecast topics
      cubecast topics --all
      cubecast topics --json
    """
    access = cluster_access("topics", config, secret, name, tls_ca, tls_cert, tls_key, tls_crl)
    known = ask("topics", _topics(at, access))
    if as_json:
        typer.echo(json.dumps({"topics": known}))
        return
    replies = [] if everything else [topic for topic in known if is_reply_topic(topic)]
    for topic in replies:
        del known[topic]
    if replies:
        typer.echo(f"{len(replies)} topics for replies are left out; --all lists them", err=True)
    if not known:
        typer.echo("no topics", err=True)
        return
    rows = [("TOPIC", "SUBSCRIBED NODES")]
    rows += [(escaped(topic), ", ".join(map(str, known[topic])) or "none") for topic in known]
    width = min(WIDEST_TOPIC, max(len(topic) for topic, _ in rows))
    for topic, listed in rows:
        line = f"{topic:<{width}}  {listed}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)


async def _topics(at: str, access: Credentials) -> dict[str, list[int]]:
    async with access.connect(at) as client:
        known = await client.topics()
    return {topic: known[topic] for topic in sorted(known)}
