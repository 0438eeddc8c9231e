"""What goes into an ordering module, and what comes out of it.

A module has one door: `step(cause, now)` returns the effects, in the order in which the world is to
bring them about.  It knows no socket, no clock and no chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from cubecast.ordering.messages import Member
from cubecast.ordering.timestamps import Stamp, Timestamp, Topic

Time: TypeAlias = int

# -- causes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Publish:
    """The application publishes an event."""

    topic: Topic
    payload: object


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The application wants a topic's events."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """The application wants a topic's events no more."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class Arrived:
    """The event service notifies an event (ENSnotify)."""

    topic: Topic
    payload: object
    timestamp: Timestamp | Stamp


@dataclass(frozen=True, slots=True)
class Received:
    """Another module's message."""

    message: msgspec.Struct


@dataclass(frozen=True, slots=True)
class Wake:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Start:
    """The member begins: a manager tells others that it lives."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The member is going to stop: others are to manage its topics."""


Cause: TypeAlias = Publish | Subscribe | Unsubscribe | Arrived | Received | Wake | Start | Leave

# -- effects ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """To another module, or to this one, from point to point."""

    to: Member
    message: msgspec.Struct


@dataclass(frozen=True, slots=True)
class ServicePublish:
    """ENSpublish."""

    topic: Topic
    payload: object
    timestamp: Timestamp | Stamp


@dataclass(frozen=True, slots=True)
class ServiceSubscribe:
    """ENSsubscribe."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class ServiceUnsubscribe:
    """ENSunsubscribe."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class Notify:
    """The application is notified; an event that is not in order is tagged."""

    topic: Topic
    payload: object
    timestamp: Timestamp | Stamp
    in_order: bool


@dataclass(frozen=True, slots=True)
class WakeAt:
    """`Wake` is wanted at this time or later."""

    time: Time


Effect: TypeAlias = Send | ServicePublish | ServiceSubscribe | ServiceUnsubscribe | Notify | WakeAt
