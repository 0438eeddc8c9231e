"""The attacks by name, and their results as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attacks import inside, operating, outside
from attacks.scene import Staged, control
from attacks.trial import ORDINARY, Row

CONTROL = "control"
ATTACKS: dict[str, Staged] = {
    CONTROL: Staged(control),
    "death": Staged(outside.death, 8.0),
    "relay of members": Staged(outside.relay_of_members, 8.0),
    "relay of clients": Staged(outside.relay_of_clients),
    "forged source": Staged(outside.forged_source, 6.0),
    "epoch": Staged(inside.epoch),
    "ballot": Staged(inside.ballot),
    "high ballot": Staged(inside.high_ballot, 8.0),
    "newcomers": Staged(inside.newcomers, 8.0),
    "mute leader": Staged(inside.mute_leader, 75.0, leads=True),
    "beacon": Staged(outside.beacon),
    "install": Staged(outside.install),
    "enter": Staged(outside.enter),
    "mute": Staged(inside.mute),
    "liar": Staged(inside.liar),
    "merge": Staged(outside.merge, 10.0),
    "hoard": Staged(outside.hoard, 6.0),
    "full disk": Staged(operating.full_disk),
    "blocked pipe": Staged(operating.blocked_pipe),
    "stopped sub": Staged(operating.stopped_sub, 8.0),
    "clock": Staged(operating.clock),
}
"""By name; all but the first two are attacks."""

HEAD = ("", "gap", "subscribe", "publish", "hear", "join", "out", "lost", "got", "told")
WIDTH = 100
"""Characters of an example of the log."""


def table(rows: Sequence[Row]) -> str:
    """A line for each attack, and under it what was logged most often."""
    lines = [_line(HEAD)]
    for row in rows:
        lines.append(
            _line(
                (
                    row.attack,
                    _ms(row.gap_s),
                    *map(_ms, (row.subscribe_s, row.publish_s, row.hear_s, row.join_s)),
                    _ms(row.out_s),
                    str(row.lost),
                    _counts(row.got) or "-",
                    told(row),
                )
            )
        )
        if row.log:
            lines.append(f"    log: {_short(next(iter(row.log)))}")
        lines.extend(f"    {note}" for note in row.notes)
    return "\n".join(lines)


def told(row: Row) -> str:
    """Events, lines of the log and of the audit, in numbers."""
    events = {name: count for name, count in row.events.items() if name not in ORDINARY}
    counts = {**events, "log": sum(row.log.values()), "audit": sum(row.audit.values())}
    return _counts({name: count for name, count in counts.items() if count}) or "-"


def _line(cells: Sequence[str]) -> str:
    name, *spans, lost, got, said = cells
    return f"{name:17}{''.join(f'{span:>10}' for span in spans)}{lost:>6}  {got}  {said}".rstrip()


def _ms(seconds: float | None) -> str:
    return "never" if seconds is None else f"{1e3 * seconds:,.0f} ms"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _short(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."
