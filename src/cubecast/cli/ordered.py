"""``cubecast ordered manage``, ``sub`` and ``pub``: order across topics from the terminal."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, NamedTuple

import typer

import cubecast
from cubecast.cli.config import (
    Credentials,
    SecretFlag,
    TlsCaOption,
    TlsCertOption,
    TlsCrlOption,
    TlsKeyOption,
    member_access,
)
from cubecast.cli.output import refuse
from cubecast.cli.pub import STDIN, lines_of
from cubecast.cli.running import run, stop_signal
from cubecast.logs import install
from cubecast.ordering.library import connected
from cubecast.ordering.unread import Policy

MANAGER = "manager"
ANYWHERE = "127.0.0.1:0"

ordered = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

AddressArgument = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS",
        help="nats://host:port, redis://host:port, or host:port of a cubecast node.",
    ),
]
ManagersOption = Annotated[
    str,
    typer.Option(
        metavar="NAME,NAME,...",
        help="The members that number events; the same list at every member.",
    ),
]
NameOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="This member's name; without it a new one.")
]
FirstOption = Annotated[
    str,
    typer.Option(
        metavar="TOPIC,TOPIC,...",
        help="The topics with the most events; the same list at every member.",
    ),
]


class ServiceLink(NamedTuple):
    """The address of the service, and how to reach it."""

    address: str
    listen: str
    access: Credentials


class Self(NamedTuple):
    """The name of this member, and the managers."""

    name: str | None
    managers: str
    first: str


ListenOption = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT", help="On cubecast: where this member listens, for others to reach."
    ),
]


@ordered.callback()
def about() -> None:
    """Order across topics: all subscribers see the events of all topics in one order.

    It works on a NATS or Redis server that you already run, and on cubecast
    nodes.  Every event is numbered by a manager, so one has to run.  Try it in
    three terminals:

    \b
      cubecast ordered manage nats://localhost:4222
      cubecast ordered sub nats://localhost:4222 bids trades
      cubecast ordered pub nats://localhost:4222 bids "17 for 3"

    An event that comes too late for its place is marked "out of order", and no
    other ever is out of place.  See docs/ordering.md for what that costs.
    """


@ordered.command()
def manage(
    address: AddressArgument,
    name: Annotated[str, typer.Option(metavar="NAME", help="This manager's name.")] = MANAGER,
    managers: ManagersOption = MANAGER,
    first: FirstOption = "",
    listen: ListenOption = ANYWHERE,
    secret: SecretFlag = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_crl: TlsCrlOption = None,
) -> None:
    """Number the events of topics, until Ctrl-C.

    Topics are shared out among the managers.

    Examples:

    \b
      cubecast ordered manage redis://localhost:6379
      cubecast ordered manage nats://localhost --name one --managers one,two
      cubecast ordered manage 127.0.0.1:7400
          on cubecast: this joins the cluster of that node
    """
    if name not in _listed(managers):
        refuse("ordered manage", f"{name!r} is not among the managers, {managers}")
    link = ServiceLink(
        address, listen, _access("manage", secret, tls_ca, tls_cert, tls_key, tls_crl)
    )
    run("ordered manage", _manage(link, Self(name, managers, first)))


async def _manage(link: ServiceLink, who: Self) -> None:
    async with _member(link, who) as member:
        stopped = asyncio.Event()
        undo = stop_signal(stopped.set)
        typer.echo(f"{member.name} numbers events", err=True)
        ended = asyncio.create_task(_end_of(member))
        stop = asyncio.create_task(stopped.wait())
        await asyncio.wait((ended, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        undo()
        if ended.done():
            ended.result()
        ended.cancel()


async def _end_of(member: cubecast.Ordered) -> None:
    """Return when a member that subscribes to nothing ends; raise the reason."""
    async for _ in member:
        pass


@ordered.command()
def sub(
    address: AddressArgument,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics to read.")],
    managers: ManagersOption = MANAGER,
    name: NameOption = None,
    first: FirstOption = "",
    drop: Annotated[
        bool, typer.Option("--drop", help="Drop what is out of order; tell how much at the end.")
    ] = False,
    count: Annotated[int, typer.Option(min=0, help="Stop after this many messages; 0: never.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per message.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Do not say on stderr when it is subscribed.")
    ] = False,
    listen: ListenOption = ANYWHERE,
    secret: SecretFlag = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_crl: TlsCrlOption = None,
) -> None:
    """Print the messages of topics, in the one order that all subscribers see.

    Each line names the topic.  It ends with Ctrl-C.

    Examples:

    \b
      cubecast ordered sub nats://localhost:4222 bids trades
      cubecast ordered sub redis://localhost:6379 bids trades --json --count 10
      cubecast ordered sub 127.0.0.1:7400 bids trades --drop
    """
    link = ServiceLink(address, listen, _access("sub", secret, tls_ca, tls_cert, tls_key, tls_crl))
    member = _member(link, Self(name, managers, first), "drop" if drop else "tagged")

    async def work() -> None:
        async with member as reader:
            await _sub(reader, topics, count, as_json, quiet)

    run("ordered sub", work())


async def _sub(
    member: cubecast.Ordered, topics: list[str], count: int, as_json: bool, quiet: bool
) -> None:
    loop = asyncio.get_running_loop()
    await member.subscribe(*topics)
    undo = stop_signal(lambda: loop.create_task(member.close()))
    if not quiet:  # last: its reader may publish, and may stop us
        typer.echo(f"subscribed to {', '.join(topics)} as {member.name}", err=True)
    seen = 0
    async for message in member:
        typer.echo(_shown(message, as_json))
        seen += 1
        if seen == count:
            break
    undo()
    if member.dropped:
        typer.echo(f"dropped {member.dropped} out of order", err=True)


def _shown(message: cubecast.OrderedMessage, as_json: bool) -> str:
    text = message.payload.decode(errors="replace")
    if not as_json:
        return f"{message.topic}: {text}" + ("" if message.in_order else "  (out of order)")
    return json.dumps(
        {
            "topic": message.topic,
            "number": message.stamp.number,
            "in_order": message.in_order,
            "missed": message.missed,
            "payload": text,
        }
    )


@ordered.command()
def pub(
    address: AddressArgument,
    topic: Annotated[
        str | None,
        typer.Argument(help="The topic; without it the first word of each line of stdin is one."),
    ] = None,
    message: Annotated[
        str | None, typer.Argument(help="What to publish; without it, each line of stdin.")
    ] = None,
    managers: ManagersOption = MANAGER,
    name: NameOption = None,
    first: FirstOption = "",
    listen: ListenOption = ANYWHERE,
    secret: SecretFlag = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_crl: TlsCrlOption = None,
) -> None:
    """Publish to topics; returns when the service has taken everything.

    Examples:

    \b
      cubecast ordered pub nats://localhost:4222 bids "17 for 3"
      seq 1000 | cubecast ordered pub redis://localhost:6379 numbers
      printf 'bids 17\\ntrades 17 to desk 3\\n' | cubecast ordered pub 127.0.0.1:7400
    """
    link = ServiceLink(address, listen, _access("pub", secret, tls_ca, tls_cert, tls_key, tls_crl))
    try:
        if message is None:
            os.read(STDIN, 0)  # a stdin that is closed says so here
    except OSError as error:
        refuse("ordered pub", f"stdin: {error.strerror}")
    member = _member(link, Self(name, managers, first))

    async def work() -> None:
        async with member as publisher:
            async for line in lines_of(message, STDIN):
                where, payload = _addressed(topic, line)
                await publisher.publish(where, payload)

    run("ordered pub", work())


def _addressed(topic: str | None, line: bytes) -> tuple[str, bytes]:
    """The topic and the payload of a line."""
    if topic is not None:
        return topic, line
    word, _, rest = line.partition(b" ")
    return word.decode(errors="replace"), rest


# -- what they share -------------------------------------------------------------------------------


@asynccontextmanager
async def _member(
    link: ServiceLink, who: Self, policy: Policy = "tagged"
) -> AsyncIterator[cubecast.Ordered]:
    install(level="ERROR", logger="")
    async with (
        connected(
            link.address, secret=link.access.secret, tls=link.access.tls, listen=link.listen
        ) as connection,
        cubecast.ordered(
            connection,
            managers=_listed(who.managers),
            name=who.name,
            first=_listed(who.first),
            policy=policy,
        ) as member,
    ):
        yield member


def _listed(names: str) -> list[str]:
    return [name for name in names.split(",") if name]


def _access(command: str, secret: str | None, *tls: str | None) -> Credentials:
    return member_access(f"ordered {command}", None, secret, *tls)
