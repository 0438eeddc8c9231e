"""How fast is the compiled kernel, how do time and memory grow with N, and beside the reference?

Three series in the papers' network with VCube-PS, each point in a process of its own so that its
peak memory is its own: all nodes publish once (N up to 4096; 2 N (N - 1) sends), one publication
to N nodes (N up to 2^20), and the reference on both as far as it gets in reasonable time.  Seconds
are those of the run and, under `all`, with planning and set-up; loading the compiled code is left
out, as it is paid once per process.

    python bench/bench_kernel.py [--quick] [--protocol vcube-ps] [--plot kernel.png] [--json]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ALL = "multi-publisher"
ONE = "single-publisher"


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(engine: str, protocol: str, scenario: str, nodes: int, seed: int) -> dict[str, Any]:
    """One run, timed by the processor time of this process."""
    if engine == "kernel":
        from cubecast import kernel

        def once(count: int) -> dict[str, float]:
            params = kernel.Params(nodes=count)
            return kernel.run(protocol, params, seed, scenario=scenario).metrics

        once(8)  # loads the compiled code, or compiles
    else:
        from cubecast.sim.params import Params
        from cubecast.sim.run import run
        from cubecast.sim.scenarios import SCENARIOS

        def once(count: int) -> dict[str, float]:
            return run(
                SCENARIOS[scenario], protocol, Params(nodes=count), seed, checked=False
            ).metrics

    before = peak_mib()
    started = time.process_time()
    metrics = once(nodes)
    total = time.process_time() - started
    sends = metrics["events"]
    return {
        "engine": engine,
        "scenario": scenario,
        "nodes": nodes,
        "sends": int(sends),
        "seconds": sends / metrics["events_per_second"],
        "all_seconds": total,
        "sends_per_second": metrics["events_per_second"],
        "peak_mib": peak_mib(),
        "base_mib": before,
    }


def apart(engine: str, protocol: str, scenario: str, nodes: int, seed: int) -> dict[str, Any]:
    """`measure` in a process of its own."""
    point = [engine, protocol, scenario, str(nodes), str(seed)]
    done = subprocess.run(
        [sys.executable, __file__, "--one", *point], check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def points(quick: bool) -> list[tuple[str, str, int]]:
    most_all, most_one = (10, 16) if quick else (12, 20)
    reference_all, reference_one = (8, 11) if quick else (10, 12)  # it has a row for every pair
    return [
        *(("kernel", ALL, 1 << d) for d in range(3, most_all + 1)),
        *(("reference", ALL, 1 << d) for d in range(3, reference_all + 1)),
        *(("kernel", ONE, 1 << d) for d in range(3, most_one + 1)),
        *(("reference", ONE, 1 << d) for d in range(3, reference_one + 1)),
    ]


def plot(rows: list[dict[str, Any]], target: Path) -> None:
    """Seconds, sends per second and memory over N."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    columns = [
        ("all_seconds", "seconds (planning and set-up included)"),
        ("sends_per_second", "sends per second"),
        ("peak_mib", "peak memory of the process, MiB"),
    ]
    for axis, (column, title) in zip(axes, columns, strict=True):
        for engine, colour in (("kernel", "tab:blue"), ("reference", "tab:orange")):
            for scenario, style, what in ((ALL, "-o", "all publish"), (ONE, "--s", "one message")):
                chosen = [r for r in rows if (r["engine"], r["scenario"]) == (engine, scenario)]
                axis.plot(
                    [r["nodes"] for r in chosen],
                    [max(r[column], 1e-3) for r in chosen],
                    style,
                    color=colour,
                    markersize=4,
                    label=f"{engine}, {what}",
                )
        axis.set(xscale="log", yscale="log", xlabel="nodes", title=title)
        axis.set_xscale("log", base=2)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.savefig(target, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="smaller N")
    parser.add_argument("--protocol", default="vcube-ps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, help="draw the growth into this file")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        engine, protocol, scenario, nodes, seed = options.one
        print(json.dumps(measure(engine, protocol, scenario, int(nodes), int(seed))))
        return
    if not options.json:
        print(
            f"{'engine':>10} {'scenario':>17} {'nodes':>8} {'sends':>11} {'seconds':>9} "
            f"{'all':>7} {'sends/s':>11} {'peak MiB':>9} {'of it run':>9}"
        )
    rows = []
    for engine, scenario, nodes in points(options.quick):
        row = apart(engine, options.protocol, scenario, nodes, options.seed)
        rows.append(row)
        if options.json:
            print(json.dumps(row), flush=True)
            continue
        print(
            f"{engine:>10} {scenario:>17} {nodes:>8,} {row['sends']:>11,} {row['seconds']:>9.3f} "
            f"{row['all_seconds']:>7.2f} {row['sends_per_second']:>11,.0f} "
            f"{row['peak_mib']:>9,.0f} {row['peak_mib'] - row['base_mib']:>9,.0f}",
            flush=True,
        )
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
