"""``cubecast tree``: draw the tree that a publication would take.

All arguments are checked here and refused in one line; the rest is a call to
``cubecast.topology`` and a drawing.
"""

import json
import re
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from cubecast import topology
from cubecast.cli.config import (
    DEFAULT_NODE,
    AtOption,
    ConfigOption,
    Credentials,
    NameFlag,
    SecretFlag,
    TlsCaOption,
    TlsCertOption,
    TlsCrlOption,
    TlsKeyOption,
    cluster_access,
)
from cubecast.cli.output import counted
from cubecast.cli.running import ask

_LIMIT = 1 << topology.MAX_DIMENSION

_ITEM = re.compile(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?")


class _Guides(NamedTuple):
    """The lines drawn to the left of a node: for itself, and for the nodes below it."""

    branch: str
    below_branch: str
    last: str
    below_last: str


_LINES = _Guides("├── ", "│   ", "└── ", "    ")
_ASCII = _Guides("+-- ", "|   ", "`-- ", "    ")


def tree(
    topic: Annotated[
        str | None,
        typer.Argument(help="Ask a live cluster for the subscribers of this topic."),
    ] = None,
    root: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The publisher; it need not subscribe. "
            "Without it, 0, or with a topic the node that is asked.",
        ),
    ] = None,
    members: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="The subscribers: ids and ranges, as in 0-7,12; or all (with --nodes).",
        ),
    ] = "all",
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="How many ids there are, from 0 to N-1; any number from 1. "
            "Without it, as many as the largest id named asks for.",
        ),
    ] = None,
    forwarders: Annotated[
        bool,
        typer.Option(
            "--forwarders",
            help="Draw the tree of a single-root system (SRPT-S) instead: "
            "it goes through nodes that do not subscribe.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a drawing.")
    ] = False,
    at: AtOption = DEFAULT_NODE,
    secret: SecretFlag = None,
    name: NameFlag = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_crl: TlsCrlOption = None,
    config: ConfigOption = None,
) -> None:
    """Draw the spanning tree of a publication.

    A publication travels down a tree that is rooted at its publisher and
    made of the topic's subscribers alone. A node sees the others in clusters
    s = 1, 2, 3, ... of 1, 2, 4, ... ids. It sends to the first subscriber of
    each; a node found in cluster s goes on with its own clusters below s.
    Each line of the drawing has a node, the cluster in which its parent
    found it, and its distance from the root in hops.

    Examples:

    \b
      cubecast tree --nodes 8
          everyone subscribes, node 0 publishes
      cubecast tree --root 2 --members 0,2,3,5,7
          five subscribers, one of them publishes
      cubecast tree --root 3 --members 0-7,12
          ranges; ids may be missing
      cubecast tree --root 2 --members 5,7 --nodes 16 --forwarders
          the same question to a system with forwarders
      cubecast tree --members all --nodes 1000 --json
          for a script: root, members, dimension, height, edges
      cubecast tree chat/room1 --root 2
          the live cluster's: the tree of a message that node 2 publishes there
    """
    try:
        if topic is None:
            spanning = _spanning(root or "0", members, nodes, forwarders)
        elif members != "all" or nodes is not None or forwarders:
            raise ValueError("a topic has its own members: leave out --members and the like")
        else:
            top = None if root is None else _node_id("--root", root)
            tls = tls_ca, tls_cert, tls_key, tls_crl
            access = cluster_access("tree", config, secret, name, *tls)
            spanning = _live_tree(topic, top, at, access)
    except ValueError as refusal:
        typer.echo(f"cubecast tree: {refusal}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(json.dumps(_as_object(spanning)))
    else:
        draw_tree(spanning)


def _spanning(root: str, members: str, nodes: str | None, forwarders: bool) -> topology.Tree:
    """The tree asked for; ValueError, with a text for the user, if there is none."""
    count = None if nodes is None else _node_count(nodes)
    top = _node_id("--root", root)
    mask = _member_mask(members, count)
    highest = mask.bit_length() - 1
    if count is None:
        count = max(top, highest) + 1
    elif top >= count:
        raise ValueError(f"--root: there is no node {top} among {_ids(count)}")
    elif highest >= count:
        raise ValueError(f"--members: there is no node {highest} among {_ids(count)}")
    dimension = topology.dimension_for(count)
    if not forwarders:
        return topology.tree(top, mask, dimension)
    if nodes is not None and count != 1 << dimension:
        raise ValueError(
            f"--forwarders: any id may forward, so --nodes must be a power of two: "
            f"{1 << dimension}, not {count}"
        )
    return topology.forwarding_tree(top, mask, dimension)


def _member_mask(text: str, count: int | None) -> int:
    if text.strip() == "all":
        if count is None:
            raise ValueError("--members: all of how many? Add --nodes N, or list the members")
        return (1 << count) - 1
    if not text.strip():
        raise ValueError("--members: the list is empty; name at least one id")
    mask = 0
    for item in text.split(","):
        if not item.strip():
            raise ValueError(f"--members: a comma too many in {_shown(text)}")
        mask |= _range_mask(item)
    return mask


def _range_mask(item: str) -> int:
    parts = _ITEM.fullmatch(item)
    if parts is None:
        raise ValueError(f"--members: {_shown(item)} is neither an id nor a range such as 0-7")
    first = _node_id("--members", parts[1])
    last = first if parts[2] is None else _node_id("--members", parts[2])
    if first > last:
        raise ValueError(f"--members: the range {first}-{last} is reversed; write {last}-{first}")
    return (1 << (last + 1)) - (1 << first)


def _node_count(text: str) -> int:
    count = _whole_number("--nodes", text)
    if not 1 <= count <= _LIMIT:
        raise ValueError(f"--nodes: a cube holds 1 to {_LIMIT} nodes, not {_shown(text)}")
    return count


def _node_id(option: str, text: str) -> int:
    node = _whole_number(option, text)
    if node >= _LIMIT:
        raise ValueError(f"{option}: ids go up to {_LIMIT - 1}; {_shown(text)} is too large")
    return node


def _whole_number(option: str, text: str) -> int:
    """A number in plain digits; one with far too many digits is only called large."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{option}: {_shown(text)} is not a whole number from 0 up")
    significant = digits.lstrip("0") or "0"
    return int(significant) if len(significant) <= 9 else 10**9


def _shown(text: str) -> str:
    """The user's text, on one line and shortened."""
    return repr(text.strip() if len(text) <= 40 else text.strip()[:37] + "...")


def _ids(count: int) -> str:
    return "the one node 0" if count == 1 else f"the {count} nodes 0-{count - 1}"


def _as_object(spanning: topology.Tree) -> dict[str, object]:
    return {
        "root": spanning.root,
        "members": list(topology.members_of(spanning.members)),
        "dimension": spanning.dimension,
        "height": spanning.height,
        "edges": spanning.edges,
    }


def draw_tree(spanning: topology.Tree) -> None:
    """Draw a tree in the terminal, a node a line, and sum it up."""
    console = Console(highlight=False, soft_wrap=True)
    guides = _ASCII if console.options.ascii_only else _LINES
    outsider = "" if spanning.members >> spanning.root & 1 else ", not a member"
    console.print(Text.assemble((str(spanning.root), "bold"), f"  root{outsider}"))
    for line in _below(spanning, spanning.root, 1, "", guides):
        console.print(line)
    console.print(_summary(spanning))


def _below(
    spanning: topology.Tree, node: int, hop: int, margin: str, guides: _Guides
) -> Iterator[Text]:
    """The lines under ``node``, children in the order in which they are sent to."""
    below = spanning.children[node]
    for child in below:
        last = child == below[-1]
        forwards = not spanning.members >> child & 1
        yield Text.assemble(
            (margin + (guides.last if last else guides.branch), "dim"),
            (str(child), "yellow" if forwards else "bold"),
            (f"  s={topology.cluster(node, child)}  hop {hop}", "cyan"),
            ("  forwarder" if forwards else "", "yellow"),
        )
        deeper = margin + (guides.below_last if last else guides.below_branch)
        yield from _below(spanning, child, hop + 1, deeper, guides)


def _summary(spanning: topology.Tree) -> str:
    return ", ".join(
        [
            counted(spanning.members.bit_count(), "member"),
            f"dimension {spanning.dimension}",
            f"height {spanning.height}",
            counted(len(spanning.parent), "message"),
            counted(len(spanning.forwarders), "forwarder"),
        ]
    )


def _live_tree(topic: str, root: int | None, at: str, access: Credentials) -> topology.Tree:
    """The tree of a topic's present subscribers; ValueError if it has none."""
    spanning = ask("tree", _ask_tree(topic, root, at, access))
    if not spanning.members:
        raise ValueError(f"no node is subscribed to {topic!r}")
    return spanning


async def _ask_tree(topic: str, root: int | None, at: str, access: Credentials) -> topology.Tree:
    async with access.connect(at) as client:
        return await client.tree(topic, root)
