"""The packets of a light client's publications, and what each topic uses of the window."""

from __future__ import annotations

import asyncio

from cubecast.errors import CubecastError, NotAllowed, NotSent
from cubecast.protocol.port import Topic


class Flow:
    """The part of the window that one topic uses."""

    __slots__ = ("progress_at", "used")

    def __init__(self) -> None:
        self.used = 0
        self.progress_at = 0.0  # when the node took something of it


class Letter:
    """One publication that may be taken back until a node has it (`Pipeline.withdraw`)."""

    __slots__ = ("gone", "parcel", "payload")

    def __init__(self) -> None:
        self.gone = False  # whether a node has it, or may have it
        self.parcel: DeliveredPacket | None = None  # None: it is not accepted yet, or settled
        self.payload = b""

    def settle(self, gone: bool) -> None:
        """Note the fate of the publication: whether a node has it, or may have it."""
        self.gone, self.parcel, self.payload = gone, None, b""


class DeliveredPacket:
    """The messages of one packet, and what becomes of them."""

    __slots__ = (
        "bare",
        "doubtful",
        "failed",
        "left",
        "letters",
        "number",
        "payloads",
        "published",
        "receipt",
        "size",
        "stable",
        "taken",
        "topic",
        "unwatched",
    )

    def __init__(self, topic: Topic) -> None:
        loop = asyncio.get_running_loop()
        self.topic = topic
        self.number = -1
        self.payloads: list[bytes] = []
        self.size = 0
        self.published = 0  # bytes of it that no longer count against the window
        self.receipt = False
        self.bare = False  # whether one of its messages has no receipt
        self.doubtful = False  # whether a node that is gone may have sent it
        self.failed = False  # whether the application was told, or will be, that it failed
        self.left = False  # whether it was sent to a node
        self.letters: list[Letter] = []
        self.unwatched = False  # whether a `publish` returned before the node had taken it
        self.taken: asyncio.Future[None] = loop.create_future()
        self.stable: asyncio.Future[None] = loop.create_future()

    def fail(self, error: CubecastError) -> None:
        """Fail `taken` and `stable` with an error; calls that wait for them raise it."""
        self.failed = True
        for future in (self.taken, self.stable):
            if not future.done():
                future.set_exception(error)
                future.exception()
        self.settle(gone=not isinstance(error, NotSent | NotAllowed))

    def doubt(self) -> None:
        """Note that a node which is gone may have sent it, and that it waits for the next one."""
        self.doubtful, self.left, self.published = True, False, 0

    def settle(self, gone: bool) -> None:
        """Settle its letters: `gone` says that a node has them, or may have them."""
        for letter in self.letters:
            letter.settle(gone)
        self.letters.clear()
