"""Causes and effects: the input and the output of an ordering module.

A module has one method: `step(cause, now)` returns the effects, in the order in which the world
carries them out.  It knows no socket, no clock and no chance.
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
class PublishCall:
    """The application publishes an event."""

    topic: Topic
    payload: object


@dataclass(frozen=True, slots=True)
class SubscribeCall:
    """The application wants a topic's events."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class UnsubscribeCall:
    """The application wants a topic's events no longer."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class ServiceNotified:
    """The event service notifies an event (ENSnotify)."""

    topic: Topic
    payload: object
    timestamp: Timestamp | Stamp


@dataclass(frozen=True, slots=True)
class ReceivedFromModule:
    """A message of another module has arrived."""

    message: msgspec.Struct


@dataclass(frozen=True, slots=True)
class Wake:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Start:
    """The member begins: a manager tells others that it lives."""


@dataclass(frozen=True, slots=True)
class LeaveCall:
    """The member is going to stop: others are to manage its topics."""


Cause: TypeAlias = (
    PublishCall
    | SubscribeCall
    | UnsubscribeCall
    | ServiceNotified
    | ReceivedFromModule
    | Wake
    | Start
    | LeaveCall
)

# -- effects ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendToModule:
    """Send a message to another module, or to this one, from point to point."""

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
    """Notify the application; an event that is not in order is tagged."""

    topic: Topic
    payload: object
    timestamp: Timestamp | Stamp
    in_order: bool


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Ask for a `Wake` at this time or later."""

    time: Time


Effect: TypeAlias = (
    SendToModule | ServicePublish | ServiceSubscribe | ServiceUnsubscribe | Notify | WakeAt
)
