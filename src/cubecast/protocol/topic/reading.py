"""Whether a node takes the messages of a topic, and from which cut on.

A node is *taking*, or *expecting* (it will, as soon as its cut is known), or *absent*: then it only
passes frames on.
"""

from __future__ import annotations

from collections.abc import Mapping

from cubecast.protocol.port import Seq, Stream


class Reading:
    """The reading side of one topic at one node; `Delivery` acts by it."""

    __slots__ = ("began", "expecting", "start", "stranded", "taking")

    def __init__(self) -> None:
        self.taking = False
        self.expecting = False
        self.start: dict[Stream, Seq] = {}
        """The cut from which the node began to take messages."""
        self.began = 0
        """The view in which it began."""
        self.stranded = False
        """A message waits for one that will not come: the node has to jump."""

    @property
    def absent(self) -> bool:
        """Whether this node only passes frames on: it has unsubscribed."""
        return not self.taking and not self.expecting

    def expect(self) -> None:
        """Wait for a cut."""
        self.expecting = True

    def begin(self, cut: Mapping[Stream, Seq], epoch: int) -> None:
        """Take what lies above the cut."""
        self.taking = True
        self.expecting = False
        self.start = dict(cut)
        self.began = epoch

    def pause(self) -> None:
        """Take nothing until another cut is known."""
        self.taking = False
        self.expecting = True

    def give_up(self) -> None:
        """Stop expecting a cut."""
        self.expecting = False

    def stop(self) -> None:
        """Take nothing more."""
        self.taking = False

    def forget(self, stream: Stream) -> None:
        """Forget a stream that is over and that no node asks for."""
        self.start.pop(stream, None)

    def strand(self) -> None:
        """Note that a message waits in vain."""
        self.stranded = True

    def look_again(self) -> None:
        """Clear `stranded`: the node jumps, or the view has changed and all waits are rechecked."""
        self.stranded = False
