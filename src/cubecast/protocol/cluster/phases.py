"""The phases of a node in the agreement on views, and the steps between them.

`TABLE` is the state machine of `cubecast.protocol.cluster.agreement`: a node changes its phase only
by a line of it.  docs/design.md prints the table.  tests/protocol/cluster/test_phases.py takes
every line, and compares the phase with the attributes after every event.

Invariants (`attempt`, `_retry_at` and `_install` are attributes of `ViewAgreement`):

1. `LEADING`: there is an `attempt`.  In every other phase there is none.
2. `FOLLOWING`: `_retry_at` is set.  In `SETTLED` and `WAITING` it is not.
3. `LEAVING`: `_install` is a view without this node.  In every other phase it is the present view,
   or None in the first one.
4. In every phase but `SETTLED` the node, or a node it counts on, has reported what it holds of the
   streams of others: it changes nothing about these streams before the next view.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class Phase(Enum):
    """What a node does in the agreement."""

    SETTLED = "settled"
    """It is in its view, and knows of no change that is under way."""
    LEADING = "leading"
    """It has asked the survivors for reports, and waits for them."""
    FOLLOWING = "following"
    """It lets another node lead until `_retry_at`."""
    WAITING = "waiting"
    """It knows that a change is under way, and knows no node that leads it."""
    LEAVING = "leaving"
    """It has decided on a view without itself, and tells the others."""


class PhaseCause(Enum):
    """What changes the phase."""

    BEGIN = "begin"
    FOLLOW = "follow"
    GIVE_WAY = "give way"
    GIVE_UP = "give up"
    RESUME = "resume"
    HEAR_OF_CHANGE = "hear of a change"
    LEAVE = "leave"
    GO_OVER = "go over"


class PhaseRule(NamedTuple):
    """One line of the table: in which phase a cause leads to which, and when it comes."""

    phase: Phase
    step: PhaseCause
    after: Phase
    when: str


TABLE: tuple[PhaseRule, ...] = (
    PhaseRule(Phase.SETTLED, PhaseCause.BEGIN, Phase.LEADING,
              "it leads and has a reason to change the view"),
    PhaseRule(Phase.WAITING, PhaseCause.BEGIN, Phase.LEADING,
              "it leads, or pursues a view that it refused"),
    PhaseRule(Phase.SETTLED, PhaseCause.FOLLOW, Phase.FOLLOWING,
              "`Prepare` of a ballot that it may follow"),
    PhaseRule(Phase.FOLLOWING, PhaseCause.FOLLOW, Phase.FOLLOWING,
              "`Prepare` of a later ballot"),
    PhaseRule(Phase.WAITING, PhaseCause.FOLLOW, Phase.FOLLOWING,
              "`Prepare` of a later ballot"),
    PhaseRule(Phase.LEADING, PhaseCause.FOLLOW, Phase.FOLLOWING,
              "`Prepare` of a higher ballot than its own"),
    PhaseRule(Phase.LEADING, PhaseCause.GIVE_WAY, Phase.FOLLOWING,
              "a survivor follows a higher ballot; or the next view cannot be told"),
    PhaseRule(Phase.LEADING, PhaseCause.GIVE_UP, Phase.WAITING,
              "a survivor is suspected, silent or lost, or objects too often"),
    PhaseRule(Phase.FOLLOWING, PhaseCause.RESUME, Phase.WAITING,
              "`_retry_at` has come, or the node it follows is suspected"),
    PhaseRule(Phase.SETTLED, PhaseCause.HEAR_OF_CHANGE, Phase.WAITING,
              "`Stuck`: a member waits for the next view; or one that may lead later asks"),
    PhaseRule(Phase.LEADING, PhaseCause.LEAVE, Phase.LEAVING,
              "all reports are in, and it departs"),
    PhaseRule(Phase.LEADING, PhaseCause.GO_OVER, Phase.SETTLED,
              "all reports are in, or one has the view"),
    PhaseRule(Phase.SETTLED, PhaseCause.GO_OVER, Phase.SETTLED,
              "only by a lie: it is told a view that it was not asked for"),
    PhaseRule(Phase.FOLLOWING, PhaseCause.GO_OVER, Phase.SETTLED,
              "it is told the next view"),
    PhaseRule(Phase.WAITING, PhaseCause.GO_OVER, Phase.SETTLED,
              "it is told the next view"),
    PhaseRule(Phase.LEAVING, PhaseCause.GO_OVER, Phase.SETTLED,
              "only by a lie: it is told a view of a later ballot that has it"),
)  # fmt: skip

NEXT: Mapping[tuple[Phase, PhaseCause], Phase] = {
    (line.phase, line.step): line.after for line in TABLE
}
"""The table, to look up."""


def as_markdown() -> str:
    """The table as docs/design.md prints it."""
    lines = ["| phase | step | next phase | when |", "|---|---|---|---|"]
    lines += [
        f"| {line.phase.value} | {line.step.value} | {line.after.value} | {line.when} |"
        for line in TABLE
    ]
    return "\n".join(lines) + "\n"
