"""Tests start their programs with the signals of a terminal, also where the tests have none."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

from support.paths import ROOT
from support.terminal import ignoring


def test_a_program_is_started_that_ignores_no_signal_of_a_terminal() -> None:
    status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
    found = re.search(r"^SigIgn:\s*([0-9a-f]+)$", status, re.MULTILINE)
    assert found is not None
    ignored = {number for number in signal.Signals if int(found[1], 16) >> (number - 1) & 1}
    assert not ignored & {signal.SIGINT, signal.SIGHUP}


def test_so_it_is_where_the_tests_run_under_nohup_and_in_the_background() -> None:
    here = f"{__file__}::{test_a_program_is_started_that_ignores_no_signal_of_a_terminal.__name__}"
    with ignoring(signal.SIGINT, signal.SIGHUP):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", here],
            cwd=ROOT, env=os.environ, capture_output=True, text=True,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
