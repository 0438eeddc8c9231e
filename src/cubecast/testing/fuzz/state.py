"""The state of a run of the fuzzer: what was done, seen and found; a file to go on from."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec

MODES = ("decoders", "stranger", "member", "client")
SHARES = {"decoders": 60, "stranger": 5, "member": 25, "client": 10}
"""Of a hundred packets, where all modes are run."""
GROWTH_BYTES = 64 << 20
GROWTH_DESCRIPTORS = 32
"""Between early and late medians of one life of the victims; more is a finding."""


class FuzzFinding(msgspec.Struct):
    """Something that must not happen, and where it did."""

    what: str
    mode: str
    block: int
    detail: str
    packets: list[str] = []
    """The latest packets, in hexadecimal."""
    seen: int = 1


class VictimSample(msgspec.Struct, array_like=True):
    """Measurements of the victims after a block."""

    mode: str
    life: int
    """Counts starts of the victims."""
    packets: int
    resident: list[int]
    descriptors: list[int]
    round_trip_s: float
    slowest_s: float
    exclusions: int


class FuzzState(msgspec.Struct):
    """The state of a run."""

    seed: int
    blocks: dict[str, int] = {}
    packets: dict[str, int] = {}
    """Looked at by a decoder or a victim, by mode."""
    sent: dict[str, int] = {}
    refused: dict[str, int] = {}
    connections: dict[str, int] = {}
    seconds: dict[str, float] = {}
    lives: int = 0
    reasons: dict[str, int] = {}
    """Why victims closed connections."""
    samples: list[VictimSample] = []
    findings: list[FuzzFinding] = []

    @property
    def total(self) -> int:
        return sum(self.packets.values())


def load(path: Path | None, seed: int) -> FuzzState:
    """The state in a file, or a new one; `ValueError` if the file is of another seed."""
    if path is None or not path.exists():
        return FuzzState(seed)
    try:
        state = msgspec.json.decode(path.read_bytes(), type=FuzzState)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} is no state of the fuzzer: {error}") from None
    if state.seed != seed:
        raise ValueError(f"{path} is of seed {state.seed}, not {seed}: name another file")
    return state


def save(path: Path | None, state: FuzzState) -> None:
    """Write the state, whole or not at all."""
    if path is not None:
        scratch = path.with_suffix(path.suffix + ".tmp")
        scratch.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
        scratch.replace(path)


def wanted(packets: int, modes: Sequence[str]) -> dict[str, int]:
    """How many packets of each mode make `packets` of all."""
    whole = sum(SHARES[mode] for mode in modes)
    return {mode: -(-packets * SHARES[mode] // whole) for mode in modes}


def progress(state: FuzzState, mode: str, rate: float) -> str:
    """One line of progress."""
    sample = state.samples[-1] if state.samples and state.samples[-1].mode == mode else None
    line = f"{mode}: {state.packets[mode]:,} packets ({rate:,.0f}/s)"
    if sample is not None:
        resident = max(sample.resident) / (1 << 20)
        line += (
            f", {state.connections[mode]:,} connections, resident {resident:.0f} MiB, "
            f"{max(sample.descriptors)} descriptors, round trip {sample.round_trip_s:.2f} s, "
            f"{sample.exclusions} exclusions"
        )
    return f"{line}; {len(state.findings)} findings"


def growth(samples: Sequence[VictimSample]) -> list[str]:
    """What grew in a life of the victims: the median of its second fifth against the last."""
    found = []
    for (mode, life), victims in _by_life(samples).items():
        for name, allowed, series in victims:
            fifth = len(series) // 5
            if fifth < 2:
                continue
            early = statistics.median(series[fifth : 2 * fifth])
            late = statistics.median(series[-fifth:])
            if late - early > allowed:
                found.append(
                    f"{name} grew from {early:,.0f} to {late:,.0f} in life {life} ({mode})"
                )
    return found


def _by_life(
    samples: Sequence[VictimSample],
) -> dict[tuple[str, int], list[tuple[str, int, list[int]]]]:
    lives: dict[tuple[str, int], list[VictimSample]] = {}
    for sample in samples:
        lives.setdefault((sample.mode, sample.life), []).append(sample)
    return {
        key: [
            series
            for victim in range(len(of_life[0].resident))
            for series in (
                (f"memory of victim {victim}", GROWTH_BYTES,
                 [one.resident[victim] for one in of_life]),
                (f"descriptors of victim {victim}", GROWTH_DESCRIPTORS,
                 [one.descriptors[victim] for one in of_life]),
            )
        ]
        for key, of_life in lives.items()
    }  # fmt: skip
