"""Names of members: each has an inbox in the event service, a topic that no other member reads."""

from __future__ import annotations

from cubecast.ordering.messages import Member

INBOX = "cubecast.ordering."
"""The prefix of the topics of inboxes; no event is published there."""
MAX_NAME_BYTES = 255


def check_name(name: Member) -> None:
    """Raise TypeError or ValueError, in one line, unless the name is valid in any service."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a member must be a str, not {type(name).__name__}")
    if not name:
        raise ValueError("the name of a member must not be empty")
    if not name.isprintable() or any(sign.isspace() or sign in "*>+#" for sign in name):
        raise ValueError(
            f"the name of a member must have no spaces, control characters or wildcards "
            f"(* > + #), but is {name!r}"
        )
    if name.startswith(".") or name.endswith(".") or ".." in name:
        raise ValueError(f"the name of a member must have no empty part, but is {name!r}")
    size = len(name.encode())
    if size > MAX_NAME_BYTES:
        raise ValueError(f"the name of a member must have at most {MAX_NAME_BYTES} bytes: {size}")
