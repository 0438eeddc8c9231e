"""W3C trace context: a span that publishes is the parent of the spans that read.

Where an application has imported OpenTelemetry before it starts a node, connects or subscribes, a
publication inside a valid span carries the headers ``traceparent`` and, if there is any,
``tracestate``; a callback of `node.on` runs in that context.  In ``async for`` an application
continues it itself:

    async for message in messages:
        with cubecast.tracing.continued(message), tracer.start_as_current_span("handle"):
            ...

1. Headers of the application win: under these names, and if there is no room for both.
2. An application without OpenTelemetry pays nothing, and a message from outside of a span carries
   no more headers.
3. The trace context of a peer is text; OpenTelemetry checks it and ignores what is no context.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from cubecast.net.message import Message
from cubecast.net.wire.headers import MAX_HEADER_BYTES, MAX_HEADERS, Headers

PARENT = "traceparent"
STATE = "tracestate"
MAX_STATE = 512
"""The longest ``tracestate`` that is passed on, in characters: the least that W3C asks for."""


def is_used() -> bool:
    """Whether the application has imported OpenTelemetry: without it there is no span."""
    return "opentelemetry.trace" in sys.modules


@cache
def _propagator() -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()


def current() -> dict[str, str]:
    """The headers that pass on the span that is open now; empty if there is none."""
    carrier: dict[str, str] = {}
    _propagator().inject(carrier)
    if len(carrier.get(STATE, "")) > MAX_STATE:
        del carrier[STATE]
    return carrier


def context_of(message: Message[Any]) -> Any:
    """The context of OpenTelemetry that a message carries, or the present one if it has none."""
    headers = message.headers
    carrier = {name: headers[name] for name in (PARENT, STATE) if name in headers}
    return _propagator().extract(carrier)


@contextmanager
def continued(message: Message[Any]) -> Iterator[None]:
    """Spans that are opened inside are children of the span that published a message.

    Without OpenTelemetry, or where the message carries no context, it does nothing.
    """
    if not is_used() or PARENT not in message.headers:
        yield
        return
    from opentelemetry import context

    token = context.attach(context_of(message))
    try:
        yield
    finally:
        context.detach(token)


def added(headers: Headers | None) -> Headers | None:
    """The headers of a publication and those of the open span, if there is one and room."""
    carrier = current()
    if not carrier or not headers:
        return carrier or headers
    size = sum(len(str(name)) + len(str(value)) for name, value in headers.items())
    fits = len(headers) + len(carrier) <= MAX_HEADERS and size <= MAX_HEADER_BYTES // 2
    return {**carrier, **headers} if fits else headers
