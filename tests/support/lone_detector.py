"""One failure detector without a world."""

from __future__ import annotations

from typing import Any

from cubecast.net.settings.presets import detector_for
from cubecast.protocol.cluster.detector import Detector
from cubecast.protocol.port import Message, NodeId, Time

LAN = detector_for("lan")


class Alone:
    """One detector without a world: what it sends is kept."""

    def __init__(
        self,
        node: NodeId = 0,
        members: int = 0b1111,
        make: type[Detector] = Detector,
        **more: Any,
    ) -> None:
        self.sent: list[tuple[NodeId, Message]] = []
        self.wakes: list[Time] = []
        self.changes: list[int] = []
        self.detector = make(
            node,
            members,
            LAN,
            lambda peer, message: self.sent.append((peer, message)),
            self.wakes.append,
            0,
            on_change=lambda suspects, now: self.changes.append(suspects),
            **more,
        )

    def said(self, kind: type) -> list[Any]:
        return [message for _, message in self.sent if isinstance(message, kind)]
