"""Measures of overlays ([N] 3.1): view sizes, unknown nodes, weak components.

An overlay is a mapping from each of its nodes to that node's view.  These are the plain versions,
for small worlds and as oracles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

Overlay: TypeAlias = Mapping[int, Sequence[int]]
"""One topic's views."""
Overlays: TypeAlias = Mapping[int, Overlay]
"""The overlay of each topic."""


def logical_sizes(overlays: Overlays) -> dict[int, int]:
    """LVS of each node: the sizes of its views, added up."""
    sizes: dict[int, int] = {}
    for overlay in overlays.values():
        for node, view in overlay.items():
            sizes[node] = sizes.get(node, 0) + len(view)
    return sizes


def physical_sizes(overlays: Overlays) -> dict[int, int]:
    """PVS of each node: the distinct ids in its views (out-links, as [N] counts)."""
    links: dict[int, set[int]] = {}
    for overlay in overlays.values():
        for node, view in overlay.items():
            links.setdefault(node, set()).update(view)
    return {node: len(others) for node, others in links.items()}


def in_degrees(overlay: Overlay) -> dict[int, int]:
    """How many views of the overlay hold each of its nodes."""
    degrees = dict.fromkeys(overlay, 0)
    for view in overlay.values():
        for other in view:
            if other in degrees:
                degrees[other] += 1
    return degrees


def unknown(overlay: Overlay) -> set[int]:
    """The nodes that no view holds; a topic of one node has none."""
    if len(overlay) < 2:
        return set()
    return {node for node, degree in in_degrees(overlay).items() if degree == 0}


def dead_links(overlay: Overlay) -> int:
    """How many entries of views name a node that is not in the overlay."""
    return sum(other not in overlay for view in overlay.values() for other in view)


def weak_components(overlay: Overlay) -> int:
    """The number of parts of the overlay, with links taken without direction."""
    neighbours: dict[int, set[int]] = {node: set() for node in overlay}
    for node, view in overlay.items():
        for other in view:
            if other in neighbours:
                neighbours[node].add(other)
                neighbours[other].add(node)
    components = 0
    left = set(overlay)
    while left:
        components += 1
        border = [left.pop()]
        while border:
            reached = neighbours[border.pop()] & left
            left -= reached
            border.extend(reached)
    return components


@dataclass(frozen=True, slots=True)
class Measures:
    """All overlays at one moment."""

    logical: float
    """Mean LVS over the nodes with a topic."""
    physical: float
    """Mean PVS over the same."""
    unknown_nodes: int
    """Pairs of a topic and a node that no view of it holds."""
    topics_with_unknown: int
    most_components: int
    dead_links: int


def measure(overlays: Overlays) -> Measures:
    """The measures of all overlays together."""
    missing = [len(unknown(overlay)) for overlay in overlays.values()]
    logical, physical = logical_sizes(overlays), physical_sizes(overlays)
    return Measures(
        logical=fmean(logical.values()) if logical else 0.0,
        physical=fmean(physical.values()) if physical else 0.0,
        unknown_nodes=sum(missing),
        topics_with_unknown=sum(count > 0 for count in missing),
        most_components=max(map(weak_components, overlays.values()), default=0),
        dead_links=sum(map(dead_links, overlays.values())),
    )
