"""Figures 3 and 4 of the VCube-PB paper ([B] 6), redrawn by the simulator.

    python bench/bench_figures_b.py [--nodes 8 64 512] [--runs 5]
        [--serve-acks] [--serve-members] [--root-publishes]

Figure 3: hops from a publisher to its subscribers, for five layouts.  Figure 4: delivery latency of
VCube-PB and of the fixed tree.  The paper has 8 to 2048 nodes and 40 runs of each; 2048 nodes
take about a minute per run.
"""

from __future__ import annotations

import argparse
from statistics import fmean

from cubecast.sim.workloads.vcube_pb_figures import LAYOUTS, figure_3, figure_4


def print_figure_3(sizes: list[int], runs: int) -> None:
    print("Figure 3: hops, mean over subscribers (to the last one)")
    print(f"{'nodes':>6}" + "".join(f"{layout:>16}" for layout in LAYOUTS))
    for nodes in sizes:
        cells = []
        for layout in LAYOUTS:
            points = [figure_3(layout, nodes, seed).metrics for seed in range(runs)]
            mean = fmean(point["latency_mean"] for point in points)
            most = fmean(point["latency_max"] for point in points)
            cells.append(f"{mean:9.2f} ({most:4.1f})")
        print(f"{nodes:>6}" + "".join(cells), flush=True)


def print_figure_4(sizes: list[int], runs: int, **options: bool) -> None:
    print("Figure 4: delivery latency, u.t. (paper: 37 % below at 8 nodes, 17 % at 2048)")
    print(f"{'nodes':>6}{'vcube-pb':>12}{'fixed-tree':>12}{'below':>9}{'blocked':>10}")
    for nodes in sizes:
        ours, fixed = (
            [figure_4(protocol, nodes, seed, **options).metrics for seed in range(runs)]
            for protocol in ("vcube-pb", "fixed-tree")
        )
        low = fmean(point["latency_mean"] for point in ours)
        high = fmean(point["latency_mean"] for point in fixed)
        blocked = sum(p["held"] for p in ours) / sum(p["held"] + p["deliveries"] for p in ours)
        print(
            f"{nodes:>6}{low:>12.1f}{high:>12.1f}{1 - low / high:>9.1%}{blocked:>10.2%}", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[8, 16, 32, 64, 128, 256])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--serve-acks", action="store_true", help="ACKs take a turn at a node too")
    parser.add_argument(
        "--serve-members", action="store_true", help="joins and leaves take a turn at the root too"
    )
    parser.add_argument("--root-publishes", action="store_true", help="the root may be a publisher")
    options = parser.parse_args()
    print_figure_3(options.nodes, options.runs)
    print()
    print_figure_4(
        options.nodes,
        options.runs,
        serve_acks=options.serve_acks,
        serve_members=options.serve_members,
        root_publishes=options.root_publishes,
    )


if __name__ == "__main__":
    main()
