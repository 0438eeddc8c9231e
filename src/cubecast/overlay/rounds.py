"""One topic's overlay in rounds, written as plainly as possible: the oracle of faster engines.

Overlays of different topics never interact, so a run is played topic by topic.  Chance comes from
numbered draws alone (`chance.py`); every engine that makes the same draws gives the same views.

The steps of a node in a round ([N] Algorithm 2):

- A1-A4: it sends a walk to a random member of its view (draw 0).
- A5-A11: a node that the walk visits adds its id and its view to the set, and sends the walk on to
  a random member of its view (draw i for the i-th further hop).  A11 prints the constant TTL - 1,
  with which a walk never ends; here ttl falls by one per hop.  So ttl + 1 nodes are visited.
- A12-A13: the last one replies to the source.  That makes ttl + 2 messages.
- A14-A17: the source removes itself from the set, and keeps the lightest of the set and its view,
  as many as its view held.  Weight, then id, gives the order, and the view is stored in it.

*Lock step*: walks read the views of the round before, and all views change together.  *In turn*:
nodes act one after the other in the order of their ids, each on the views as they are.

Repairing mode
--------------

In Algorithm 2 the source of a walk learns, and the nodes that it visits learn nothing.  A node that
drops out of all views of a topic is therefore never found again: in-degree 0 is absorbing.  The
cure has two parts.

*Offers.*  A walk's source is offered to each node that it visits, which takes it if it is light
enough, as if it had come in a reply.  This spreads news of a node, and is not sufficient: by the
rule of view sizes about one overlay in a hundred holds a node that is among the lightest of no
other node.

*Keepers.*  Each node p has at most one keeper: a node u that holds p in its view whatever p
weighs.  We say that u *pins* p.  A walk tells p its last hop, a node that holds p in its view; and
p can compute weight(u, p).  The rules:

1. p asks the lightest of its last hops of this round to be its keeper, if that is lighter than
   the keeper it has.  Lighter: by (weight(u, p), u), the order in which u itself ranks p.
2. A node that has no keeper and is visited by no walk asks a random member of its view (draw 2000).
3. u accepts the lightest of those that ask, while it pins fewer than `pins_limit(|view|)`.  It
      refuses the others; they stay with the keeper they have.
   4. A view holds the pinned ids, then the lightest others that its node knows of.  Its size is
   constant.  Every merge (reply, offer, pin) stores the view by weight; in lock step every view is
   merged in every round, even if nothing came.

All of it is local: p knows the senders of its messages, its own view, its keeper and the answer it
got; u knows its own view and its pins.

Why it works.  Once a node has a keeper it always has one, because it gives one up only for another
that has accepted; so it is in some view for good.  A node without one asks in every round: a last
hop, or a member of its view.  A node's keeper only ever becomes lighter, so keepers come to rest;
from then on the part of a view that is not pinned only ever becomes lighter, so views come to rest.
Cost: a keeper that moves to lighter and lighter holders soon is one that would hold the node
anyway, so that at rest a pin displaces a lighter link only for those nodes that would be unknown
without it.

With loss, a walk or reply that is lost ends the walk, and a request that is lost is not accepted.
Leases of keepers are not modelled here (`stan.py` has them): nodes of this model never die.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from cubecast.overlay.chance import below, draw, stream
from cubecast.overlay.view_sizes import CONNECTED, ROUNDINGS, Rounding, view_size
from cubecast.overlay.weights import HASHES, Hash, weight

Mode = Literal["faithful", "repairing"]
MODES: tuple[Mode, ...] = get_args(Mode)
Order = Literal["lock step", "in turn"]
ORDERS: tuple[Order, ...] = get_args(Order)

FIRST_LOSS = 1000
"""The draw that decides about the first message of a walk; the others follow."""
RANDOM_KEEPER = 2000
"""The draw by which an unvisited node chooses an id of its view."""

Views: TypeAlias = dict[int, tuple[int, ...]]
"""The view of each node, in its stored order."""


@dataclass(frozen=True, slots=True)
class RoundConfig:
    """The parameters of a run in rounds; [N] leaves ttl, order, hash and rounding open."""

    rounds: int = 8
    ttl: int = 5
    """Further hops of a walk after its first."""
    mode: Mode = "faithful"
    order: Order = "lock step"
    hashing: Hash = "mixed"
    rounding: Rounding = "up"
    connected: float = CONNECTED
    loss: float = 0.0
    """The chance that a message is lost."""

    def __post_init__(self) -> None:
        if self.rounds < 0:
            raise ValueError(f"rounds must be 0 or more, not {self.rounds}")
        if not 0 <= self.ttl <= FIRST_LOSS - 3:
            raise ValueError(f"ttl must be 0 to {FIRST_LOSS - 3}, not {self.ttl}")
        if not 0 <= self.loss <= 1:
            raise ValueError(f"loss must be 0 to 1, not {self.loss}")
        for name, value, known in (
            ("mode", self.mode, MODES),
            ("order", self.order, ORDERS),
            ("hashing", self.hashing, HASHES),
            ("rounding", self.rounding, ROUNDINGS),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}")


def start_views(run: int, topic: int, members: Iterable[int], k: int) -> Views:
    """The overlay before StaN: k distinct random others each, in the order of drawing.

    Draws 0, 1, 2, ... of round 0 are indices into the sorted members; a node's own index and those
    drawn before are skipped.  A node that is to have all others has them in the order of ids.
    """
    ids = sorted(set(members))
    if not 0 <= k <= max(0, len(ids) - 1):
        raise ValueError(f"a view of {k} is not possible among {len(ids)} members")
    return {node: _start_view(run, topic, node, ids, k) for node in ids}


def _start_view(run: int, topic: int, node: int, ids: Sequence[int], k: int) -> tuple[int, ...]:
    if k == len(ids) - 1:
        return tuple(other for other in ids if other != node)
    name = stream(run, topic, node, 0)
    view: list[int] = []
    number = 0
    while len(view) < k:
        other = ids[below(draw(name, number), len(ids))]
        number += 1
        if other != node and other not in view:
            view.append(other)
    return tuple(view)


def play(run: int, topic: int, members: Iterable[int], config: RoundConfig) -> list[Views]:
    """The views before StaN and after each round: `config.rounds` + 1 of them."""
    ids = sorted(set(members))
    k = view_size(len(ids), config.connected, config.rounding)
    overlay = Overlay(run, topic, start_views(run, topic, ids, k), config)
    played = [dict(overlay.views)]
    for round_ in range(1, config.rounds + 1):
        overlay.advance(round_)
        played.append(dict(overlay.views))
    return played


def pins_limit(size: int) -> int:
    """How many nodes a view of this size may pin: half of it, so that weights decide the rest."""
    return max(1, size // 2) if size else 0


def is_lost(name: int, message: int, loss: float) -> bool:
    """Whether a message of the stream's walk is lost: its draw, as a fraction, is below `loss`."""
    return (draw(name, FIRST_LOSS + message) >> 11) * 2.0**-53 < loss


@dataclass(frozen=True, slots=True)
class Walk:
    """A node's walk in one round."""

    source: int
    hops: tuple[tuple[int, int], ...]
    """(last hop, visited node) for each visit."""
    collected: frozenset[int]
    """The ids of the reply, without the source; empty if the walk or its reply was lost."""
    replied: bool


@dataclass
class Overlay:
    """One topic's overlay between two rounds."""

    run: int
    topic: int
    views: Views
    config: RoundConfig
    keepers: dict[int, int] = field(default_factory=dict)
    """The keeper of each node that has one; stays empty in faithful mode."""
    pins: dict[int, set[int]] = field(default_factory=dict)
    """The nodes that each node pins: those whose keeper it is."""
    visited: set[int] = field(default_factory=set)
    """In turn: the nodes that a walk visited since their own last turn."""

    def advance(self, round_: int) -> None:
        """Play one round."""
        if self.config.order == "lock step":
            self._advance_together(round_)
        else:
            for node in sorted(self.views):
                self._take_turn(node, round_)

    # -- lock step -------------------------------------------------------------------------------

    def _advance_together(self, round_: int) -> None:
        before = dict(self.views)
        walks = {node: self.walk(node, round_, before) for node in before}
        offers: dict[int, set[int]] = {node: set() for node in before}
        if self.config.mode == "repairing":
            last_hops: dict[int, set[int]] = {node: set() for node in before}
            for walk in walks.values():
                for last, at in walk.hops:
                    last_hops[at].add(last)
                    offers[at].add(walk.source)
            self._settle_keepers(round_, before, last_hops)
        for node, walk in walks.items():
            if walk.replied or self.config.mode == "repairing":
                self.views[node] = self.lightest(node, walk.collected | offers[node])

    def _settle_keepers(
        self, round_: int, before: Mapping[int, tuple[int, ...]], last_hops: Mapping[int, set[int]]
    ) -> None:
        """Rules 1 to 3: all nodes ask, then all answer, then all give their former keepers up."""
        requests: dict[int, list[int]] = {}
        for node in before:
            asked = self.wanted_keeper(node, round_, before[node], last_hops[node])
            if asked is not None:
                requests.setdefault(asked, []).append(node)
        accepted: dict[int, int] = {}
        for keeper, asking in requests.items():
            ranked = sorted((self.rank(keeper, node), node) for node in asking)
            room = pins_limit(len(before[keeper])) - len(self.pins.get(keeper, ()))
            accepted.update((node, keeper) for _, node in ranked[:room])
        for node, keeper in accepted.items():
            self._change_keeper(node, keeper)

    # -- in turn ---------------------------------------------------------------------------------

    def _take_turn(self, node: int, round_: int) -> None:
        """Read the whole walk; then apply its visits; then the reply; then rule 2.

        A visit: the visited node asks its last hop (rule 1), then it is offered the source.
        """
        walk = self.walk(node, round_, self.views)
        if self.config.mode == "repairing":
            for last, at in walk.hops:
                self.visited.add(at)
                self._ask(at, round_, {last})
                if at != node:
                    self.views[at] = self.lightest(at, {node})
        if walk.replied:
            self.views[node] = self.lightest(node, walk.collected)
        if self.config.mode == "repairing":
            if node not in self.visited:
                self._ask(node, round_, set())
            self.visited.discard(node)

    def _ask(self, node: int, round_: int, last_hops: set[int]) -> None:
        """Ask for a keeper for a node, and answer at once."""
        keeper = self.wanted_keeper(node, round_, self.views[node], last_hops)
        if keeper is None:
            return
        if len(self.pins.get(keeper, ())) >= pins_limit(len(self.views[keeper])):
            return
        self._change_keeper(node, keeper)
        self.views[keeper] = self.lightest(keeper, set())

    # -- both ------------------------------------------------------------------------------------

    def walk(self, source: int, round_: int, views: Mapping[int, tuple[int, ...]]) -> Walk:
        """A1-A13: the walk of a node over these views."""
        name = stream(self.run, self.topic, source, round_)
        hops: list[tuple[int, int]] = []
        collected: set[int] = set()
        at = source
        for hop in range(self.config.ttl + 1):
            if not views[at] or is_lost(name, hop, self.config.loss):
                return Walk(source, tuple(hops), frozenset(), replied=False)
            last, at = at, views[at][below(draw(name, hop), len(views[at]))]
            hops.append((last, at))
            collected |= {at, *views[at]}
        if is_lost(name, self.config.ttl + 1, self.config.loss):
            return Walk(source, tuple(hops), frozenset(), replied=False)
        return Walk(source, tuple(hops), frozenset(collected - {source}), replied=True)

    def wanted_keeper(
        self, node: int, round_: int, view: Sequence[int], last_hops: set[int]
    ) -> int | None:
        """Rules 1 and 2: the node that is asked to be keeper; none if its request is lost.

        One draw decides about all requests of a node in a round.
        """
        name = stream(self.run, self.topic, node, round_)
        keeper = self.keepers.get(node)
        candidates = set(last_hops)
        if keeper is not None:
            candidates.add(keeper)
        elif not candidates and view:
            candidates.add(view[below(draw(name, RANDOM_KEEPER), len(view))])
        best = min(candidates, key=lambda at: (self.weight(at, node), at), default=None)
        if best == keeper or is_lost(name, self.config.ttl + 2, self.config.loss):
            return None
        return best

    def _change_keeper(self, node: int, keeper: int) -> None:
        """Set a keeper that has accepted: it pins the node, and the former one no longer does."""
        if node in self.keepers:
            self.pins[self.keepers[node]].discard(node)
        self.keepers[node] = keeper
        self.pins.setdefault(keeper, set()).add(node)

    def lightest(self, node: int, offered: Iterable[int]) -> tuple[int, ...]:
        """A14-A17 and rule 4: pinned ids, then the lightest others; the size stays."""
        view = self.views[node]
        pinned = self.pins.get(node, set())
        others = sorted(
            {*view, *offered} - pinned - {node}, key=lambda other: self.rank(node, other)
        )
        kept = [*pinned, *others[: len(view) - len(pinned)]]
        return tuple(sorted(kept, key=lambda other: self.rank(node, other)))

    def rank(self, node: int, other: int) -> tuple[int, int]:
        """The order in which a node prefers others: by weight, then by id."""
        return self.weight(node, other), other

    def weight(self, node: int, other: int) -> int:
        """Algorithm 1."""
        return weight(node, other, self.config.hashing)
