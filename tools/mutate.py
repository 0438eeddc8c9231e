"""Mutation testing: which small slips in the source would no test notice?  (docs/mutation.md)

    python tools/mutate.py collect [-- pytest arguments]     which tests run which lines
    python tools/mutate.py run --count 200 --seed 1          try a sample of mutants
    python tools/mutate.py run --again survived              try the survivors again
    python tools/mutate.py summary

`collect` runs the tests once with coverage and adds the result to `.mutation/`.  `run` draws a
sample by its seed, copies the project once per worker, changes one place at a time, and runs the
tests that run the changed line, the fastest first, until one fails.  Verdicts are appended to
`.mutation/verdicts.jsonl`; a mutant with a verdict is not run again while its function is the same.

1. The working tree is never changed.
2. A mutant is *killed* if a test fails or raises, or if it exceeds its time (`timeout`).  Only
   tests that passed in `collect` are asked.
3. `survived` says whether all tests that run the line were asked (`complete`), or only those that
   fit in `--budget` seconds.  A mutant whose line no test runs survives.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from fnmatch import fnmatch
from pathlib import Path
from queue import Queue
from random import Random
from typing import Any

import pytest
from mutations import Mutant, all_mutants

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".mutation"
COVERAGE = WORK / "coverage"
TIMES = WORK / "times.json"
VERDICTS = WORK / "verdicts.jsonl"
KNOWN = ROOT / "docs" / "mutation.md"
COPIED = ("src", "tests", "scenarios", "docs", "examples", "bench", "tools", "pyproject.toml",
          "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "LICENSE")  # fmt: skip

SUBJECTS = ("protocol/*.py", "net/*.py", "lab/verdicts/*.py")
NOT_OURS = ("protocol/paper/*.py",)
"""The papers' protocols are kept as printed, flaws included."""
START_S = 3.0
"""Seconds that a run of pytest takes besides its tests."""
PATIENCE = 5
"""A mutant may take so many times as long as its tests do without it, in processor time."""


def subjects(patterns: tuple[str, ...]) -> list[Path]:
    """The files that are changed."""
    source = ROOT / "src" / "cubecast"
    names = {path.relative_to(source).as_posix(): path for path in source.rglob("*.py")}
    return [
        path
        for name, path in names.items()
        if any(fnmatch(name, pattern) for pattern in patterns)
        and not any(fnmatch(name, pattern) for pattern in NOT_OURS)
    ]


# -- which tests run which lines -------------------------------------------------------------------


class Collector:
    """A pytest plugin: every test is a context of coverage, and its time is kept if it passes."""

    def __init__(self, coverage: Any) -> None:
        self._coverage = coverage
        self._failed: set[str] = set()
        self.times: dict[str, float] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        begun = time.process_time()
        yield
        self._coverage.switch_context("")
        if item.nodeid not in self._failed:
            self.times[item.nodeid] = time.process_time() - begun

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)


def collect(arguments: list[str]) -> int:
    """Run tests once, and note which lines each of them runs, in this process."""
    try:
        import coverage
    except ImportError:
        sys.exit("mutate: collecting needs coverage: .venv/bin/pip install coverage")
    WORK.mkdir(exist_ok=True)
    include = [str(path) for path in subjects(SUBJECTS)]
    measured = coverage.Coverage(data_file=str(COVERAGE), include=include, config_file=False)
    if COVERAGE.exists():
        measured.load()
    collector = Collector(measured)
    measured.start()
    status = pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=[collector])
    measured.stop()
    measured.save()
    times = json.loads(TIMES.read_text()) if TIMES.exists() else {}
    times.update({name: round(spent, 3) for name, spent in collector.times.items()})
    TIMES.write_text(json.dumps(times, indent=0, sort_keys=True))
    print(f"{len(collector.times)} tests passed, {len(times)} known")
    return int(status)


class Selection:
    """Which tests to ask about a mutant, the fastest first."""

    def __init__(self) -> None:
        import coverage

        if not COVERAGE.exists():
            sys.exit("mutate: no tests are known; run `collect` first")
        data = coverage.CoverageData(basename=str(COVERAGE))
        data.read()
        self._times: dict[str, float] = json.loads(TIMES.read_text())
        measured = [path for path in data.measured_files() if Path(path).exists()]
        self._texts = {path: Path(path).read_text().splitlines() for path in measured}
        self._lines = {
            path: {
                line: set(tests) - {""}
                for line, tests in data.contexts_by_lineno(path).items()
                if line <= len(self._texts[path])  # compiled code may call its source the same
            }
            for path in measured
        }

    def forget_all_but(self, tests: set[str]) -> None:
        """Ask only these: a test that no longer exists would seem to fail."""
        gone = self._times.keys() - tests
        if gone:
            print(f"{len(gone)} tests are not there any more; `collect` again", flush=True)
        self._times = {test: spent for test, spent in self._times.items() if test in tests}

    def tests(self, mutant: Mutant) -> list[str]:
        """Tests that run a line of the changed statement.

        A line that runs as its module is imported (a bound, a default) is looked for by the name it
        defines: first the tests that run a line with that name, then those that run its module.
        """
        path = str(ROOT / mutant.path)
        lines = self._lines.get(path, {})
        first, last = mutant.lines
        found: set[str] = set()
        for line in range(first, last + 1):
            found |= lines.get(line, set())
        others: set[str] = set()
        if not found and first in lines:
            found = self._by_name(path, first)
            others = set().union(*lines.values()) - found
        return [*self._fastest(found), *self._fastest(others)]

    def _fastest(self, tests: set[str]) -> list[str]:
        known = [test for test in tests if test in self._times]
        return sorted(known, key=lambda test: (self._times[test], test))

    def _by_name(self, path: str, line: int) -> set[str]:
        text = self._texts[path][line - 1]
        names = re.findall(r"^\s*(?:async )?(?:def |class )?(\w+)", text)
        if not names or names[0] in ("return", "if", "for", "with"):
            return set()
        word = re.compile(rf"\b{names[0]}\b")
        found: set[str] = set()
        for other, lines in self._lines.items():
            for number, tests in lines.items():
                if tests and word.search(self._texts[other][number - 1]):
                    found |= tests
        return found

    def within(self, tests: list[str], budget_s: float) -> list[str]:
        """The fastest of them that take no longer together; at least one."""
        total, chosen = 0.0, []
        for test in tests:
            total += self._times[test]
            if chosen and total > budget_s:
                break
            chosen.append(test)
        return chosen

    def seconds(self, tests: list[str]) -> float:
        return sum(self._times[test] for test in tests)


# -- running ---------------------------------------------------------------------------------------


class Worker:
    """A copy of the project in which one mutant at a time lives."""

    def __init__(self, number: int) -> None:
        self.root = WORK / f"worker-{number}"
        shutil.rmtree(self.root, ignore_errors=True)
        ignore = shutil.ignore_patterns("__pycache__")
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, self.root / name, ignore=ignore)
            elif source.exists():
                shutil.copy2(source, self.root / name)
        compiling = ["compileall", "-q", "--invalidation-mode", "checked-hash", "src", "tests"]
        subprocess.run([sys.executable, "-m", *compiling], cwd=self.root, check=True)

    def known_tests(self) -> set[str]:
        """The present tests, by name: `collect` may have seen others."""
        listing = subprocess.run(
            [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"],
            cwd=self.root, env=self._environment(), capture_output=True, text=True,
        )  # fmt: skip
        return {line for line in listing.stdout.splitlines() if "::" in line}

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(self.root / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
        }

    def try_(self, mutant: Mutant, tests: list[str], seconds: float) -> dict[str, Any]:
        """Run tests on a mutant."""
        path = self.root / mutant.path
        source = path.read_bytes()
        path.write_bytes(mutant.applied(source))
        try:
            return self._run(tests, seconds)
        finally:
            path.write_bytes(source)

    def _run(self, tests: list[str], seconds: float) -> dict[str, Any]:
        limit = int(PATIENCE * (seconds + START_S)) + 10
        names = self.root / "tests.txt"
        names.write_text("\n".join(tests))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=line", "--no-header",
                   "-p", "no:cacheprovider", "-p", "no:xdist", f"@{names}"]  # fmt: skip
        with subprocess.Popen(
            command, cwd=self.root, env=self._environment(), start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5)),
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(timeout=10 * limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.communicate()
                return {"verdict": "timeout"}
        if process.returncode == 0:
            return {"verdict": "survived"}
        if process.returncode < 0:
            return {"verdict": "timeout"}
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        return {"verdict": "killed", "by": failed[0] if failed else output.strip()[-200:]}


def examine(
    mutant: Mutant, worker: Worker, selection: Selection, budget_s: float
) -> dict[str, Any]:
    """The verdict on one mutant."""
    tests = selection.tests(mutant)
    chosen = selection.within(tests, budget_s)
    begun = time.monotonic()
    found: dict[str, Any] = {"verdict": "survived"}
    if chosen:
        found = worker.try_(mutant, chosen, selection.seconds(chosen))
    return {
        "mutant": mutant.name,
        "digest": mutant.digest,
        "at": f"{mutant.path}:{mutant.line}",
        "before": mutant.before,
        "after": mutant.after,
        **found,
        "tests": len(chosen),
        "complete": len(chosen) == len(tests),
        "seconds": round(time.monotonic() - begun, 1),
    }


def verdicts() -> dict[tuple[str, str], dict[str, Any]]:
    """The last verdict on each mutant."""
    if not VERDICTS.exists():
        return {}
    rows = map(json.loads, VERDICTS.read_text().splitlines())
    return {(row["mutant"], row["digest"]): row for row in rows}


def run(options: argparse.Namespace) -> int:
    """Try the mutants of the sample that have no verdict yet, or one that is to be tried again."""
    population = list(all_mutants(subjects(options.only or SUBJECTS), ROOT))
    known = verdicts()
    if options.mutant:
        chosen = [one for one in population if one.name in options.mutant]
    else:
        drawn = Random(options.seed).sample(population, min(options.count, len(population)))
        judged = {name for name, row in known.items() if not fnmatch(row["verdict"], options.again)}
        chosen = [one for one in drawn if (one.name, one.digest) not in judged]
    print(f"{len(population)} mutants, {len(chosen)} to try", flush=True)
    selection = Selection()
    workers: Queue[Worker] = Queue()
    for number in range(options.workers):
        workers.put(Worker(number))
    selection.forget_all_but(workers.queue[0].known_tests())

    def one(mutant: Mutant) -> tuple[Mutant, dict[str, Any]]:
        worker = workers.get()
        try:
            return mutant, examine(mutant, worker, selection, options.budget)
        finally:
            workers.put(worker)

    with ThreadPoolExecutor(options.workers) as pool, VERDICTS.open("a") as file:
        running = [pool.submit(one, mutant) for mutant in chosen]
        for number, done in enumerate(as_completed(running), 1):
            if done.exception() is not None:
                pool.shutdown(wait=False, cancel_futures=True)  # or all would run in vain
            mutant, row = done.result()
            file.write(json.dumps({**row, "seed": options.seed}) + "\n")
            file.flush()
            why = f"{row['tests']} tests, {row['seconds']} s, {row.get('by', '')}"
            print(f"{number}/{len(chosen)} {row['verdict']:>8} {mutant} [{why}]", flush=True)
    return 0


# -- what came of it -------------------------------------------------------------------------------


def known_survivors() -> dict[str, str]:
    """Mutants that docs/mutation.md lists, and what it says of each: `equivalent` or not."""
    rows = re.findall(r"^\| `([^`]+:\d+)` \|.*\| (\w+) \|", KNOWN.read_text(), re.MULTILINE)
    return dict(rows)


def summary(options: argparse.Namespace) -> int:
    """Count the verdicts on mutants that still exist; list the survivors."""
    living = {(one.name, one.digest): one for one in all_mutants(subjects(SUBJECTS), ROOT)}
    rows = {key: row for key, row in verdicts().items() if key in living}
    if options.seed is not None:
        rows = {key: row for key, row in rows.items() if row["seed"] == options.seed}
    listed = known_survivors()
    counts: Counter[str] = Counter()
    for (name, _), row in sorted(rows.items()):
        verdict = row["verdict"]
        if verdict == "survived" and listed.get(name) == "equivalent":
            verdict = "equivalent"
        counts[verdict] += 1
        if verdict == "survived":
            note = "" if row["complete"] else " (not all tests asked)"
            print(f"survived: {living[name, _]} [{row['tests']} tests]{note}")
    caught = counts["killed"] + counts["timeout"]
    matter = caught + counts["survived"]
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    if matter:
        print(f"score: {caught} of {matter} that are not equivalent, {100 * caught / matter:.1f} %")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect", help="learn which tests run which lines")
    collecting.add_argument("arguments", nargs="*", help="for pytest")
    running = commands.add_parser("run", help="try a sample of mutants")
    running.add_argument("--count", type=int, default=200)
    running.add_argument("--seed", type=int, default=1)
    running.add_argument("--only", nargs="*", help="files, as in protocol/subscriptions/links.py")
    running.add_argument("--mutant", nargs="*", help="these, by name")
    running.add_argument("--again", default="nothing", help="verdicts that do not count: survived")
    running.add_argument("--budget", type=float, default=60.0, help="CPU seconds of tests a mutant")
    running.add_argument("--workers", type=int, default=2)
    counting = commands.add_parser("summary", help="count the verdicts, list the survivors")
    counting.add_argument("--seed", type=int, help="only those that this seed drew")
    options = parser.parse_args()
    if options.command == "collect":
        return collect(options.arguments)
    return run(options) if options.command == "run" else summary(options)


if __name__ == "__main__":
    sys.exit(main())
