"""One seed, one trace: in another process, under another hash seed, byte for byte."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "cubecast.cli.main", "sim"]


def trace_of(arguments: list[str], target: Path, hash_seed: str) -> bytes:
    subprocess.run(
        [*COMMAND, *arguments, "--seeds", "1", "--trace", str(target), "--trace-messages"],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    return target.read_bytes()


@pytest.mark.parametrize(
    "arguments",
    [
        ["storm", "--first-seed", "11"],
        ["discussion", "--nodes", "16"],
        ["churn", "--nodes", "16", "--protocol", "vcube-ps"],
        ["question-answer", "--protocol", "best-effort", "--network", "service"],
        ["multi-publisher", "--protocol", "srpt", "--nodes", "16"],
    ],
    ids=lambda arguments: "-".join(a.lstrip("-") for a in arguments),
)
def test_trace_is_byte_identical_under_another_hash_seed(
    arguments: list[str], tmp_path: Path
) -> None:
    first = trace_of(arguments, tmp_path / "first.jsonl", "0")
    second = trace_of(arguments, tmp_path / "second.jsonl", "4242")
    assert first == second
    assert len(first.splitlines()) > 100


def test_another_seed_is_another_trace(tmp_path: Path) -> None:
    first = trace_of(["storm", "--first-seed", "1"], tmp_path / "a.jsonl", "0")
    second = trace_of(["storm", "--first-seed", "2"], tmp_path / "b.jsonl", "0")
    assert first.split(b"\n")[1:] != second.split(b"\n")[1:]
