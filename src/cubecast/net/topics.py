"""Checks of topic names and payloads, made before anything is published."""

from __future__ import annotations

import re
from typing import TypeAlias

from cubecast.protocol.port import Topic

Payload: TypeAlias = bytes | bytearray | memoryview | str
"""What may be published: bytes, or text, which is sent as UTF-8."""

MAX_PAYLOAD = 8 * 1024 * 1024
"""A single message may not be larger; a frame of the largest still fits a packet."""
MAX_TOPIC_BYTES = 1024
WILDCARDS = ("+", "#")
"""In a subscription these stand for other topics, so no topic has them in its name."""


_REPLY_TOPIC = re.compile(r"\$replies/[^/+#\0\s]{1,64}/[0-9a-f]{32}")
_LEVEL = re.compile(r"[^/+#\0\s]{1,64}")
NAMELESS = "~"
"""Stands for the name of a node or client without a name that can be a level of a topic."""


def reply_topic(name: str, uid: str) -> Topic:
    """The topic for answers to a node or client; `name` is the one that permissions use."""
    return f"$replies/{name if _LEVEL.fullmatch(name) else NAMELESS}/{uid}"


def is_reply_topic(topic: str) -> bool:
    """Whether `topic` has the form of a reply topic: a peer's request may name any text."""
    return _REPLY_TOPIC.fullmatch(topic) is not None


def check_topic(topic: Topic) -> None:
    """TypeError or ValueError, in one line, unless `topic` may be published to."""
    check_name(topic)
    if any(wildcard in topic for wildcard in WILDCARDS):
        raise ValueError(
            f"{topic!r} is a pattern; only a topic without wildcards has publishers: "
            "publish to each topic by its name"
        )


def check_name(topic: Topic) -> None:
    """TypeError or ValueError, in one line, unless `topic` may be a topic or a pattern."""
    if not isinstance(topic, str):
        advice = "call once for each, or subscribe to a pattern such as 'chat/#'"
        if isinstance(topic, bytes):
            advice = "give topic.decode()"
        elif not isinstance(topic, list | tuple | set):
            advice = "name it, as 'chat/room1'"
        raise TypeError(f"a topic must be a str, not {type(topic).__name__}: {advice}")
    if not topic:
        raise ValueError("a topic must not be empty: name it, as 'chat/room1'")
    try:
        size = len(topic.encode())
    except UnicodeEncodeError:
        raise ValueError(f"a topic must be valid Unicode, not {topic!r}") from None
    if size > MAX_TOPIC_BYTES:
        raise ValueError(f"a topic must have at most {MAX_TOPIC_BYTES} bytes, not {size}")
    if "\0" in topic:
        raise ValueError(f"a topic must not contain NUL: {topic!r}")


def too_large(size: int) -> str:
    """Why a payload is not sent."""
    return f"{size} bytes are more than {MAX_PAYLOAD}, the most of one message: send it in parts"


def encode_payload(payload: Payload) -> bytes:
    """The bytes of a payload, a copy if they can change; TypeError if it is no payload."""
    if isinstance(payload, str):
        try:
            return payload.encode()
        except UnicodeEncodeError:
            raise ValueError("a payload of text must be valid Unicode; send bytes") from None
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise TypeError(
        f"a payload must be bytes or str, not {type(payload).__name__}: "
        "encode it, for instance with cubecast.codecs.json().encode(...)"
    )
