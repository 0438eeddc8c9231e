"""The topics that events and subscriptions choose ([T] 6.1: uniform, or by a power law).

Reading: the power law is Pareto's with x_m = 1, a topic is the whole part of a draw.  With 1,000
topics that gives what the paper says of its shapes: 5 topics (0.5 %) have 80.1 % at 0.901, and 396
(40 %) have 80 % at 0.269, if the tail beyond the last topic counts, which the paper leaves open.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cubecast.ordering.sim.links import Floats, Ints

TAILS = ("redrawn", "clipped")
DRAWS = ("distinct", "repeated")


def shares(topics: int, shape: float, tail: str = "redrawn") -> Floats:
    """The probability of each topic, the most popular first; shape 0 is uniform.

    A draw beyond the last topic is drawn again, or is the last topic.
    """
    if not shape:
        return np.full(topics, 1.0 / topics)
    reach = np.arange(1, topics + 2, dtype=np.float64) ** -shape
    found: Floats = reach[:-1] - reach[1:]
    if tail == "clipped":
        found[-1] += reach[-1]
    found /= found.sum()
    return found


def subscriptions(
    rng: np.random.Generator, subscribers: int, count: int, chances: Floats, draws: str
) -> npt.NDArray[np.bool_]:
    """A matrix: whether a node (row) subscribes to a topic (column).

    `count` *distinct* topics each, or as many as `count` *repeated* draws yield.
    """
    topics = len(chances)
    found = np.zeros((subscribers, topics), dtype=np.bool_)
    if count >= topics and draws == "distinct":
        return np.ones_like(found)
    rows = np.repeat(np.arange(subscribers), count)
    if draws == "repeated":
        chosen: Ints = rng.choice(topics, size=subscribers * count, p=chances)
    else:  # the largest of log p + Gumbel: a sample without replacement, one after the other
        noise = np.log(chances) + rng.gumbel(size=(subscribers, topics))
        chosen = np.argpartition(-noise, count - 1, axis=1)[:, :count].ravel()
    found[rows, chosen] = True
    return found


def shared(subscribed: npt.NDArray[np.bool_], least: int = 2) -> npt.NDArray[np.bool_]:
    """Pairs of topics that share at least `least` subscriptions ([T] Figure 4)."""
    counts = subscribed.T.astype(np.float32) @ subscribed.astype(np.float32)
    return np.asarray(counts >= least)
