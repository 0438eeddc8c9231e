"""The trace of a run: one header, then records in the order in which things happened.

The simulator and live nodes write this one schema, so that the same checkers judge all of them
(``docs/trace.md`` explains it to users). A reader may rely on this:

1. The order of the records is a total order in which every node's own records are in its own
   order, and no ``deliver`` or ``receive`` precedes the ``publish`` or ``send`` that caused it.
2. ``id`` names a publication: opaque, and unique within its topic. ``source`` and ``seq`` are the
   protocol's *claims* about it.
3. New fields come last and have defaults; a field that equals its default is not written.
"""

from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

__all__ = ["KINDS", "SCHEMA", "Header", "Kind", "MessageId", "Record"]

SCHEMA: Final = "cubecast-trace/1"
"""The schema's name and version, in every header."""

Kind: TypeAlias = Literal[
    "publish",
    "taken",
    "stable",
    "send",
    "receive",
    "deliver",
    "subscribe",
    "join",
    "leave",
    "gap",
    "discard",
    "state",
    "crash",
    "restart",
    "view",
]
"""The kind of an event.

``publish``: the application published; ``taken``: the protocol took that message, at once or when
it had room; ``stable``: every subscriber it was addressed to has consumed it; ``send`` and
``receive``: a message left for, or came from, a peer; ``deliver``: the application got a message;
``subscribe``: the application called ``subscribe()``; ``join``: that call returned; ``leave``: the
application called ``unsubscribe()`` (or the node stopped for good); ``gap``: the node will never
deliver the message ``id``, or ``seq`` messages; ``discard``: it dropped that by agreement;
``state``: what it holds at this moment; ``crash``: its process ended at once; ``restart``: a
process begins at the node with nothing, the records before are of an earlier *life*; ``view``: it
installed view ``seq`` of the cluster, ``members``.
"""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

MessageId: TypeAlias = int | str
"""Names a publication. The simulator counts, live nodes write text; only equality matters."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One event at one node.

    Without the cyclic collector (``gc=False``): the fields hold numbers, text and a tuple of these,
    which can form no cycle, and a run makes millions of records.
    """

    kind: Kind
    time: int
    node: int
    topic: str = ""
    id: MessageId | None = None
    source: int = -1
    """The publisher, as the protocol claims it; -1: not stated."""
    seq: int = -1
    """The protocol's number of the message; of a ``gap`` or ``discard`` without an id, how many
    messages it reports; of a ``view``, its number."""
    peer: int = -1
    """The node that a ``send`` goes to, or that a ``receive`` comes from."""
    message: str = ""
    """The kind of protocol message sent or received: "pub", "ack", ...; of a ``subscribe``: "lossy"
    if it would rather miss messages; of a live node's ``gap``: "lossy" if only subscriptions that
    asked for it missed anything."""
    reply_to: tuple[MessageId, ...] = ()
    """The publications that this one answers."""
    held: int = 0
    """Messages received and not delivered yet."""
    retained: int = 0
    """Messages kept for repair."""
    limit: int = 0
    """The stated bound on held + retained; 0: none stated."""
    members: int = 0
    """The nodes of a ``view`` as a bit mask; 0: the node is out of the cluster for good."""
    lives: tuple[str, ...] = ()
    """The lives of the nodes of a ``view``, in ascending order of nodes; a node that was excluded
    and is back is in another life.  Empty: not stated."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a run: enough to run it again."""

    schema: str = SCHEMA
    scenario: str = ""
    protocol: str = ""
    seed: int = 0
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    time_unit: str = "ut"
    """Unit of ``Record.time``: "ut" is the papers' unit of time; a live node writes "us"."""
