"""A log record as a line: for people, or as one JSON object for machines."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from cubecast.logs.escape import escaped

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; anything else was given by `extra`."""


def _moment(created: float) -> datetime:
    """When a record was made; a clock that is set beyond all calendars counts as 1970."""
    try:
        return datetime.fromtimestamp(created, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


def message_of(record: logging.LogRecord) -> str:
    """The record's message in one line; also if its arguments do not fit its template."""
    try:
        return escaped(record.getMessage())
    except Exception as error:
        return escaped(f"{record.msg} (its arguments do not fit: {error!r})")


def _traceback_of(record: logging.LogRecord) -> str:
    if record.exc_info and record.exc_info[0] is not None:
        return logging.Formatter().formatException(record.exc_info)
    return ""


class Text(logging.Formatter):
    """Local time, level, message; the lines of a traceback are indented.

    So a peer cannot forge a line that begins with a time.
    """

    def format(self, record: logging.LogRecord) -> str:
        try:
            local = _moment(record.created).astimezone()
        except (OverflowError, ValueError, OSError):
            local = datetime.fromtimestamp(0, UTC)
        when = local.isoformat(" ", "milliseconds")[:23].replace(".", ",")
        lines = [f"{when} {record.levelname} {message_of(record)}"]
        lines += [f"    {escaped(line)}" for line in _traceback_of(record).splitlines()]
        return "\n".join(lines)


class Json(logging.Formatter):
    """One object a line: time (UTC), level, logger, message, source, and what `extra` gave."""

    def format(self, record: logging.LogRecord) -> str:
        when = _moment(record.created).isoformat(timespec="milliseconds")
        fields: dict[str, object] = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": message_of(record),
            "source": f"{record.module}:{record.lineno}",
        }
        for key, value in vars(record).items():
            if key not in _USUAL and key not in fields:
                plain = value is None or isinstance(value, bool | int | float)
                fields[key] = value if plain else escaped(str(value))
        if traceback := _traceback_of(record):
            fields["traceback"] = traceback
        return json.dumps(fields)


FORMATS: dict[str, type[logging.Formatter]] = {"text": Text, "json": Json}
