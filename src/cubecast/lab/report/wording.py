"""Words and numbers as people read them: names of settings and metrics, quantities, differences.

Figures, tables and the page all use these, so that each thing has one name everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cubecast.lab.cells import Settings, Value
from cubecast.lab.papers import Printed, rows
from cubecast.lab.stan import PRESET
from cubecast.lab.verdicts import Verdict

MINUS, NARROW, TIMES = "\N{MINUS SIGN}", "\N{NARROW NO-BREAK SPACE}", "\N{MULTIPLICATION SIGN}"
NONE = "\N{EN DASH}"
DISTANCE_FROM_ITSELF = "0 by definition"
DISTANCE = "distance of the distributions (Kolmogorov-Smirnov)"
"""What is compared of a distribution: it is 0 from itself."""

PROTOCOL_NAMES = {
    "vcube-ps": "VCube-PS", "srpt": "SRPT", "srpt-b": "SRPT-B", "fixed-tree": "fixed tree",
    "srpt-told": "SRPT", "vcube-pb": "VCube-PB", "cubecast": "cubecast",
    "best-effort": "best effort",
}  # fmt: skip
SHARES = ("subscribers", "publishers", "churn")
"""Settings that are a share of something and read better in per cent."""
COUNTS = ("nodes", "brokers", "topics", "messages", "seeds")
"""Settings that read better after their number."""
YES_OR_NO = {
    "queue_acks": ("ACKs queued", "ACKs not queued"),
    "serve_members": ("joins take a turn", "joins are free"),
    "whole_views": ("whole views in ACKs", "senders alone in ACKs"),
    "at_once": ("sessions begin with the call", "sessions begin with its return"),
}
"""The two labels of a setting that is true or false."""
MOST_TIMES = 5
"""A difference of more times the number is shown in its unit, as per cent would mislead."""
LONGEST = 48
"""The longest text of a setting on the page; the files beside it have all of it."""


def setting_label(name: str, value: Value) -> str:
    """A setting as the name of a curve: "SRPT", "25 % subscribers", "256 brokers", "hop 1,000"."""
    if name == "protocol":
        return PROTOCOL_NAMES.get(str(value), str(value))
    if isinstance(value, bool):
        yes, no = YES_OR_NO.get(name, (spaced(name), f"no {spaced(name)}"))
        return yes if value else no
    if name == "skew":
        return f"Zipf {plain(float(value))}" if value else "uniform"
    if name == "session_s":
        return f"median session {plain(float(value) / 60)} min" if value else "static"
    if name == "buffer" and isinstance(value, int):
        return f"buffer {plain(value)}" if value >= 0 else "infinite buffer"
    if name == "correlation" and value == PRESET:
        return "correlation of the preset"
    if name == "span":
        return f"within {plain(float(value))} u.t."
    if name in SHARES and isinstance(value, float):
        return f"{plain(100 * value)}{NARROW}% {name}"
    if name in COUNTS and isinstance(value, int):
        return f"{value:,} {name}" if value else f"no {name}"
    if isinstance(value, str):
        return shortened(value)
    return f"{spaced(name)} {plain(value)}"


def setting_text(value: Value) -> str:
    """A setting's value alone."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (shortened(value) or NONE) if isinstance(value, str) else plain(value)


def shortened(text: str) -> str:
    """The text, or its beginning."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def metric_label(name: str) -> str:
    """A metric as the name of a curve; the axis says that it is a mean."""
    return spaced(name.removesuffix("_mean"))


def spaced(name: str) -> str:
    """A name of the code as words: "pub_messages" is "pub messages"."""
    return name.replace("_", " ")


def varying(points: list[Settings]) -> list[str]:
    """The settings that are not the same at all points, in the order of the settings."""
    names = list(dict.fromkeys(name for point in points for name in point))
    return [name for name in names if len({repr(point.get(name)) for point in points}) > 1]


# -- numbers --------------------------------------------------------------------------------------


def plain(value: float) -> str:
    """A number as given, never as a power of ten unless it is huge or tiny: 0.25, 533, 10,525.7."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else signed("infinity", value)
    if value != 0 and not 1e-4 <= abs(value) < 1e12:
        return f"{value:.3g}".replace("-", MINUS)
    text = f"{abs(value):,.6f}".rstrip("0").rstrip(".")
    return signed(text, value)


def rounded(value: float) -> str:
    """A measured number with about four digits: 533.2, 10,526, 2.482, 0.0312."""
    if not math.isfinite(value) or value == 0:
        return plain(value)
    size = math.floor(math.log10(abs(value)))
    decimals = min(max(3 - size, 0), 6)
    return plain(round(value, decimals))


def signed(text: str, value: float, *, plus: bool = False) -> str:
    """The text with the value's sign before it."""
    return (MINUS if value < 0 else "+" if plus and value > 0 else "") + text


def with_unit(text: str, unit: str) -> str:
    """The number with its unit, kept on one line; "2.5×" is written closely."""
    if not unit:
        return text
    return text + unit if unit == TIMES else f"{text}{NARROW}{unit}"


def measured(mean: float, ci: float) -> str:
    """A mean with its confidence interval: two digits of the one, and no more of the other."""
    if not ci > 0 or not math.isfinite(mean) or not math.isfinite(ci):
        return rounded(mean)
    decimals = min(max(1 - math.floor(math.log10(ci)), 0), 6)
    width = round(ci, decimals)
    if width == 0 or abs(mean) >= 1e12:
        return rounded(mean)
    return f"{plain(round(mean, decimals))} ± {plain(width)}"


def paper_text(verdict: Verdict) -> str:
    """The number as the paper prints it; of a claim without a number our limit."""
    if not verdict.counts:
        return limit_text(verdict)
    printed = rows().get(verdict.row)
    return printed_text(printed) if printed else with_unit(plain(verdict.paper), verdict.unit)


def printed_text(printed: Printed) -> str:
    """A row of the papers' table as the paper prints it, with the word before it."""
    if printed.kind == "distribution":
        return DISTANCE_FROM_ITSELF
    word = "" if printed.kind == "value" else f"{printed.kind} "
    if printed.tolerance_from == "the word about":
        word += "about "
    return word + with_unit(plain(printed.number), printed.unit)


def limit_text(verdict: Verdict) -> str:
    """A limit of ours: "≤ 10 %", "100 ± 5 u.t."."""
    value, allowed = verdict.paper, verdict.allowed
    if sign := {"at most": "≤", "at least": "≥"}.get(verdict.bound):
        edge = value + allowed if verdict.bound == "at most" else value - allowed
        return f"{sign} {with_unit(plain(edge), verdict.unit)}"
    text = f"{plain(value)} ± {plain(allowed)}" if allowed else plain(value)
    return with_unit(text, verdict.unit)


def ours_text(verdict: Verdict) -> str:
    """Our value, with its confidence interval if there is one."""
    if verdict.ours is None:
        return NONE
    return with_unit(measured(verdict.ours, verdict.ci), verdict.unit)


def difference_text(verdict: Verdict) -> str:
    """Ours minus the paper's, in per cent of it; in points where the number is in per cent."""
    if verdict.difference is None:
        return NONE
    size = abs(verdict.difference)
    if verdict.unit == "%":
        text = f"{plain(round(size, 1))}{NARROW}points"
    elif verdict.paper == 0 or size > MOST_TIMES * abs(verdict.paper):
        text = with_unit(rounded(size), verdict.unit)
    else:
        text = f"{plain(round(100 * size / abs(verdict.paper), 1))}{NARROW}%"
    nothing = text.startswith("0") and text[1:2] not in (".", ",")
    told = text if nothing else signed(text, verdict.difference, plus=True)
    return f"{told} from our limit" if verdict.counts and verdict.limited else told


def seeds_text(counts: Sequence[int]) -> str:
    """The range of seeds of an experiment's points, and their number per point."""
    few, most = min(counts, default=0), max(counts, default=0)
    if few != most:
        return f"from {few} to {most} per point, beginning with 0"
    if most < 2:
        return "0" if most else "none"
    return f"0 to {most - 1}, {most} per point"


def counted(counts: Mapping[str, int]) -> str:
    """ "3 reproduced, 1 differs", "2 differ": the counts above 0."""
    plural = {"differs": "differ"}
    return ", ".join(
        f"{count} {name if count == 1 else plural.get(name, name)}"
        for name, count in counts.items()
        if count
    )
