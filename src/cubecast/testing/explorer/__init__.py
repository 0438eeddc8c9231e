"""Every interleaving of a small scenario, run with the protocol's own objects.

A *case* is a few nodes, a script of what their applications do, and rules for the network.  The
explorer starts from the agreed subscribers and makes every possible next move: any message in
flight arrives (so links reorder freely), or a node takes the next step of its script if its
condition holds.  Where nothing is in flight, timers may fire.  Wherever nothing more can happen
the histories of all nodes are merged into a trace and the usual checkers judge it.

    case = Case(3, make, (Step(0, "publish", "a"), Step(1, "publish", "b", after=("a",))),
                members={"t": 0b111})
    result = explore(case)
    assert result.ok, result

From the outside in: `search` (the search and its findings), `space` (global states and the moves
between them), `nodes` (one node: process, history, script), `processes` (the protocol objects),
`canonical_forms` (when two states are the same), `histories` (from histories to a trace).
"""

from cubecast.testing.explorer.canonical_forms import EXACT, LONG, MEMBERS, PRODUCTION, Likeness
from cubecast.testing.explorer.cases import Case, Exploration, Finding, Rules, Step
from cubecast.testing.explorer.search import explore

__all__ = [
    "EXACT",
    "LONG",
    "MEMBERS",
    "PRODUCTION",
    "Case",
    "Exploration",
    "Finding",
    "Likeness",
    "Rules",
    "Step",
    "explore",
]
