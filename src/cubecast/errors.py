"""The errors of cubecast, by cause, and by what is known of the outcome."""

from __future__ import annotations


class CubecastError(Exception):
    """The base class of all errors that cubecast raises on purpose."""


class JoinError(CubecastError):
    """The cluster could not be joined; `reason` says why."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot join the cluster at {address}: {reason}")
        self.address = address
        self.reason = reason


class ConfigError(CubecastError, ValueError):
    """A configuration is invalid; the text names the source and the key."""


class AttachError(CubecastError):
    """No node accepted this client; `reasons` says why, {address: reason}."""

    def __init__(self, reasons: dict[str, str]) -> None:
        tried = ", ".join(f"{address} ({reason})" for address, reason in reasons.items())
        super().__init__(f"cannot attach to a node at {tried}")
        self.reasons = reasons


class NotSent(CubecastError):
    """A publication was not sent, and will not be."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"not sent to {topic!r}: {reason}")
        self.topic = topic
        self.reason = reason


class NotSubscribed(CubecastError):
    """The members that order these topics did not answer: nothing of them will be notified."""

    def __init__(self, topics: tuple[str, ...], reason: str) -> None:
        super().__init__(f"not subscribed to {', '.join(map(repr, topics))}: {reason}")
        self.topics = topics
        self.reason = reason


class NotAllowed(CubecastError):
    """The cluster's permissions do not allow this node or client to do `what`; nothing was done.

    `what` is "publish", "subscribe" or "ask".
    """

    def __init__(self, topic: str, what: str, reason: str = "no rule allows it") -> None:
        asked = f"{what} about" if what == "ask" else f"{what} to"
        super().__init__(f"not allowed to {asked} {topic!r}: {reason}")
        self.topic = topic
        self.what = what
        self.reason = reason


class NameTaken(CubecastError):
    """Another member has the same name; of two, the one that began later stays."""

    def __init__(self, name: str) -> None:
        super().__init__(f"another member that began later is named {name!r}, too")
        self.name = name


class Unknown(CubecastError):
    """A publication was sent, or may be; whether every subscriber received it is not known."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"not known whether everyone received it, in {topic!r}: {reason}")
        self.topic = topic
        self.reason = reason


class NoAnswer(Unknown):
    """No answer to a request came in time: it was sent, or may be, and may have been handled."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(topic, reason)
        self.args = (f"no answer to a request in {topic!r} ({reason}): it may have been handled",)


class RequestFailed(CubecastError):
    """A request was answered with an error: its handler raised `error`, which said `text`."""

    def __init__(self, topic: str, error: str, text: str, source: int) -> None:
        super().__init__(f"a request in {topic!r} failed at node {source}: {error}: {text}")
        self.topic = topic
        self.error = error
        self.text = text
        self.source = source


class DecodeError(CubecastError, ValueError):
    """The codec of a subscription cannot decode a payload; `payload` has the bytes."""

    def __init__(self, message: str, payload: bytes, reason: str) -> None:
        shown = repr(payload[:60]) + ("..." if len(payload) > 60 else "")
        super().__init__(f"cannot decode {shown} of message {message!r} with {reason}")
        self.message = message
        self.payload = payload
        self.reason = reason


class Closed(CubecastError):
    """The node or the subscription is closed."""


class Overflow(CubecastError):
    """A subscription with the policy "disconnect" was read too slowly and cut off."""

    def __init__(self, topic: str, limit: int, reason: str = "") -> None:
        reason = reason or f"more than {limit} bytes unread"
        super().__init__(f"subscription to {topic!r} cut off: {reason}")
        self.topic = topic
        self.limit = limit
        self.reason = reason


class TooManyTopics(CubecastError):
    """There are more topics than can be listed or followed, so a pattern would miss some."""

    def __init__(self, pattern: str | None = None) -> None:
        self.pattern = pattern
        what = "list them" if pattern is None else f"follow {pattern!r}"
        super().__init__(f"there are too many topics to {what}")
