"""Modules of the production mode for a world in which the manager of a topic has its name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from cubecast.ordering.messages import Member
from cubecast.ordering.production.layout import LIFE_BITS, MAKER_BITS, Layout
from cubecast.ordering.production.messages import Source
from cubecast.ordering.production.module import OrderingModule
from cubecast.ordering.timestamps import Topic


class Production:
    """Makes modules; `options` are those of `OrderingModule`.

    If `opened`, a layout with all managers is open from the start; otherwise the managers make one,
    as managers do that return in a later life.
    """

    def __init__(self, *, opened: bool = True, pinned: bool = True, **options: Any) -> None:
        """`pinned`: whether each topic has the manager of its name, as long as it lives."""
        self._opened = opened
        self._pinned = pinned
        self._options = options
        self._layout: Layout | None = None  # the same for all modules of a world

    def __call__(
        self,
        name: Member,
        order: Sequence[Topic],
        manager_of: Callable[[Topic], Member],
        managed: Collection[Topic],
        life: int = 1,
    ) -> OrderingModule:
        if self._layout is None or self._layout.first != tuple(order):
            self._layout = first_layout(order, manager_of)
        layout = self._layout
        return OrderingModule(
            name,
            layout.names,
            life=life << LIFE_BITS,
            manages=bool(managed),
            first=order,
            pinned=layout.pinned if self._pinned else (),
            layout=layout if self._opened and life == 1 else None,
            **self._options,
        )


def first_layout(order: Sequence[Topic], manager_of: Callable[[Topic], Member]) -> Layout:
    """A layout of members in their first lives."""
    pinned = tuple((topic, manager_of(topic)) for topic in order)
    managers = dict.fromkeys(member for _, member in pinned)
    sources = tuple(Source(member, 1 << LIFE_BITS) for member in managers)
    return Layout(1 << MAKER_BITS, sources[0].member, sources, tuple(order), pinned)
