"""Do two trees of cubecast measure the same?  Random cells of the shipped experiments, run by both.

    git worktree add ../before COMMIT
    python tools/compare_cells.py ../before --cells 200 --seed 1

Cells are drawn from the older tree, from experiments in turn, among those that cost little.  Each
tree runs them in a process of its own, with the defaults of settings that it has and the older tree
has not.  Metrics and histograms are compared byte for byte, and for every second cell that can be
traced all that happened in it.  Each cell that differs, or that the present tree refuses, is told
with its settings; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parents[1]


def draw(cells: int, seed: int, most: float) -> list[dict[str, Any]]:
    """Cells as JSON; each experiment has its turn, so that small ones are not left out."""
    from cubecast.lab.experiment import shipped

    rng = Random(seed)
    decks = []
    for experiment in shipped().values():
        deck = [cell for cell in experiment.cells(quick=True) if cell.cost <= most]
        deck += [cell for cell in experiment.cells() if cell.cost <= most]
        rng.shuffle(deck)
        decks.append(deck)
    drawn: list[dict[str, Any]] = []
    while len(drawn) < cells and any(decks):
        for deck in filter(None, decks):
            cell = deck.pop()
            drawn.append(
                {"experiment": cell.experiment, "settings": dict(cell.settings), "seed": cell.seed}
            )
    return drawn[:cells]


def digest(told: dict[str, Any], traced: bool) -> str:
    """What this tree makes of a cell, or why it refuses it."""
    from cubecast.lab.cells import Cell, measure
    from cubecast.lab.workloads import workload_of

    workload = workload_of(told["settings"])
    settings = {**workload.defaults, **told["settings"]}
    cell = Cell(told["experiment"], 0, settings, told["seed"])
    try:
        keep = ["traces"] if traced and workload.traced is not None else []
        done = measure(cell, keep)
    except Exception as error:
        return f"refused: {type(error).__name__}: {error}"
    numbers = [sorted(done.metrics.items()), sorted((k, sorted(v.items())) for k, v in
               done.histograms.items())]  # fmt: skip
    found = sha256(json.dumps(numbers).encode())
    if done.trace is not None:
        for record in done.trace.records:
            found.update(repr(record).encode())
    return f"{found.hexdigest()[:16]}{' traced' if done.trace is not None else ''}"


def in_tree(tree: Path, *args: str, given: str = "") -> Any:
    """The answer of this program, run with the sources of a tree."""
    done = subprocess.run(
        [sys.executable, __file__, *args], input=given, stdout=subprocess.PIPE, text=True,
        check=True, env={**os.environ, "PYTHONPATH": str(tree / "src")},
    )  # fmt: skip
    return json.loads(done.stdout)


def _serve(action: str, args: list[str]) -> None:
    if action == "--draw":
        print(json.dumps(draw(int(args[0]), int(args[1]), float(args[2]))))
        return
    cells = json.load(sys.stdin)
    found = []
    for number, cell in enumerate(cells):
        found.append(digest(cell, traced=number % 2 == 1))
        if number % 20 == 19:
            print(f"{number + 1} of {len(cells)} cells", file=sys.stderr)
    print(json.dumps(found))


def main() -> int:
    if sys.argv[1:2] in (["--draw"], ["--digest"]):
        _serve(sys.argv[1], sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("before", type=Path, help="the root of the older tree")
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn")
    parser.add_argument("--most", type=float, default=3.0, help="estimated seconds of a cell")
    options = parser.parse_args()
    if not (options.before / "src" / "cubecast").is_dir():
        parser.error(f"{options.before} has no src/cubecast")
    cells = in_tree(options.before, "--draw", str(options.cells), str(options.seed),
                    str(options.most))  # fmt: skip
    given = json.dumps(cells)
    before, now = (in_tree(tree, "--digest", given=given) for tree in (options.before, HERE))
    unlike = [n for n in range(len(cells)) if before[n] != now[n]]
    for n in unlike:
        print(f"{json.dumps(cells[n], sort_keys=True)}\n  before: {before[n]}\n  now:    {now[n]}")
    traced = sum(one.endswith(" traced") for one in before)
    kinds = len({cell["experiment"] for cell in cells})
    print(
        f"{len(cells)} cells of {kinds} experiments, {traced} of them with traces:"
        f" {len(cells) - len(unlike)} are the same, {len(unlike)} differ"
    )
    return 1 if unlike else 0


if __name__ == "__main__":
    raise SystemExit(main())
