"""Universes of the sizes of [N] Table 1: L0 to L8 (LiveJournal) and W0 to W8 (Wikipedia).

Topics and nodes are the paper's.  It gives no number of subscriptions; ours are choices:

- L1 has 1.2 million and W1 20 million.  [N] 3.1 says that drawing a smaller universe preserves the
  distribution of subscriptions, so L2 to L8 have L1's mean subscribers per topic (87.9) and W2 to
  W8 that of W1 (60.9).
- The whole universes are not pruned.  L0 is L1's 13,652 topics, with their pairs, and the other
  15,252 topics evenly from 1 to 29 subscribers: 1.43 million pairs.  Of W0 a third of the topics
  are small, and all have 49 million pairs, as the node counts of Table 1 suggest.
- Activities end at 100 topics per node in L and at 10,000 in W, the cuts that fit the node counts
  of Table 1 best.  Their exponents follow from the mean.
- Correlation is higher in W, as [N] Figure 5 shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class BipartiteParameters:
    """The size and shape of a universe."""

    topics: int
    nodes: int
    pairs: int
    """Subscriptions, exactly so many."""
    smallest: int = 30
    """The least subscribers of a large topic; their sizes follow a power law from here on."""
    small_topics: int = 0
    """So many of the topics are small instead: evenly from 1 subscriber to below `smallest`."""
    busiest: int = 100
    """Activities of nodes follow a power law from 1 to this; half of all topics is the limit."""
    correlation: float = 0.5
    """The share of draws that stay in the community of the topic."""
    spread: float = 2.0
    """Interests of nodes in a community for each subscriber of the topic."""
    interest: int = 64
    """The most topics that a node looks for around one place."""

    def __post_init__(self) -> None:
        if self.topics < 1 or self.nodes < 1:
            raise ValueError(f"topics and nodes are needed, not {self.topics} and {self.nodes}")
        if not 0 <= self.small_topics < self.topics:
            raise ValueError(f"{self.small_topics} of {self.topics} topics cannot be small")
        if self.pairs < self.nodes:
            raise ValueError(f"{self.pairs:,} pairs are too few for {self.nodes:,} nodes")
        if not 1 <= self.smallest <= self.largest:
            raise ValueError(
                f"a topic has at most half of the {self.nodes} nodes: smallest must be from 1 to "
                f"{self.largest}, not {self.smallest}"
            )
        if not 0 <= self.correlation <= 1:
            raise ValueError(f"a correlation lies between 0 and 1, not {self.correlation}")
        if self.interest < 1:
            raise ValueError(f"an interest is at least 1 topic, not {self.interest}")
        if self.spread < 1 or self.busiest < 1:
            raise ValueError(f"spread and busiest start at 1, not {self.spread}, {self.busiest}")

    @property
    def largest(self) -> int:
        """The most subscribers of a topic: half of all nodes."""
        return max(1, self.nodes // 2)


L_SEEDS = (None, None, 20_000, 15_000, 10_000, 5_000, 1_000, 500, 100)
L_TOPICS = (28_904, 13_652, 13_129, 12_608, 11_674, 9_331, 3_215, 1_805, 253)
L_NODES = (301_315, 267_230, 237_612, 214_642, 182_828, 130_577, 40_407, 23_657, 4_689)
W_SEEDS = (None, 100_000, 50_000, 20_000, 10_000, 5_000, 1_000, 100, 20)
W_TOPICS = (715_710, 328_145, 245_977, 162_448, 114_646, 77_338, 26_525, 3_858, 576)
W_NODES = (2_015_060, 761_225, 497_854, 277_474, 175_152, 108_620, 33_956, 5_957, 1_381)
"""[N] Table 1."""

L1_PAIRS = 1_200_000
W1_PAIRS = 20_000_000
W0_PAIRS = 49_000_000
SMALL_OF_W0 = W_TOPICS[0] // 3
SMALLEST = 30
"""[N] 3.1: topics with fewer subscribers are pruned."""
L_CORRELATION = 0.5
W_CORRELATION = 0.9


def small_sizes(count: int, below: int) -> list[int]:
    """So many sizes, evenly from 1 to below this."""
    return [rank * (below - 1) // count + 1 for rank in range(count)]


def _presets() -> dict[str, BipartiteParameters]:
    found = {}
    for i in range(9):
        small = L_TOPICS[0] - L_TOPICS[1] if i == 0 else 0
        small_pairs = sum(small_sizes(small, SMALLEST))
        found[f"L{i}"] = BipartiteParameters(
            topics=L_TOPICS[i],
            nodes=L_NODES[i],
            pairs=round(L1_PAIRS * (L_TOPICS[i] - small) / L_TOPICS[1]) + small_pairs,
            small_topics=small,
            busiest=100,
            correlation=L_CORRELATION,
        )
    for i in range(9):
        found[f"W{i}"] = BipartiteParameters(
            topics=W_TOPICS[i],
            nodes=W_NODES[i],
            pairs=round(W1_PAIRS * W_TOPICS[i] / W_TOPICS[1]) if i else W0_PAIRS,
            small_topics=0 if i else SMALL_OF_W0,
            busiest=10_000,
            correlation=W_CORRELATION,
        )
    return found


PRESETS: Mapping[str, BipartiteParameters] = MappingProxyType(_presets())


def preset(name: str) -> BipartiteParameters:
    """The parameters of a universe of Table 1."""
    try:
        return PRESETS[name.upper()]
    except KeyError:
        raise ValueError(f"no universe {name!r} in [N] Table 1: L0 to L8, W0 to W8") from None
