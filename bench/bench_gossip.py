"""What does an event cost on the overlays of a universe, and which subscribers does it reach?

A universe of one of the sizes of [N] Table 1 is generated (or a table of subscriptions is read),
its overlays are played, and made events are sent over them by the compiled gossip, in one process
without Spark.  For the views before StaN and after 8 rounds of either mode, and for each loss:

- delivered: the share of pairs of event and subscriber;
- complete: the share of events that miss no subscriber;
- messages per delivery, and the share of them that sharing links between topics saves;
- duplicates per delivery, the mean round of a delivery;
- seconds of processor time, and nanoseconds per message.

Above them: the memory of a network, and how many overlays are not strongly connected.  If none is
and nothing is lost, then every event whose author subscribes to its topics reaches all subscribers.

    python bench/bench_gossip.py [--size L8] [--table FILE.parquet] [--events 1000]
        [--losses 0,0.01,0.05,0.1] [--back 0]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from cubecast.kernel.gossip import (
    GossipConfig,
    GossipEvents,
    GossipNetwork,
    made_events,
    network_of,
    spread,
)
from cubecast.kernel.rounds import Played, Subscribers, overlay_metrics, play_overlays
from cubecast.overlay.rounds import MODES, RoundConfig
from cubecast.overlay.universes.bipartite import chunks, plan
from cubecast.overlay.universes.presets import preset

ROUNDS = 8


def generated(size: str) -> Subscribers:
    """The subscriptions of a universe of Table 1."""
    parts = list(chunks(plan(0, preset(size)), 0, preset(size).topics))
    users = np.concatenate([members for _, _, members in parts])
    topics = np.concatenate([np.repeat(topics, np.diff(offsets)) for topics, offsets, _ in parts])
    return Subscribers.of_pairs(users, topics)


def read(path: Path) -> Subscribers:
    table = pq.read_table(path, columns=["user", "topic"])
    return Subscribers.of_pairs(table["user"].to_numpy(), table["topic"].to_numpy())


def tell_overlays(name: str, played: Played, round_: int, network: GossipNetwork) -> None:
    metrics = overlay_metrics(played, round_, exact_up_to=0, sources=2)
    outside = int((metrics.outside > 0).sum())
    print(
        f"{name}: {len(network.members):,} subscriptions, {len(network.links):,} links, "
        f"{network.nbytes / 1e6:.1f} MB; {outside} of {len(played.topics)} overlays are not "
        "strongly connected"
    )


def tell_spread(
    name: str, network: GossipNetwork, events: GossipEvents, config: GossipConfig
) -> None:
    begun = time.process_time()
    found = spread(network, events, config)
    seconds = time.process_time() - begun
    messages, reached = int(found.messages.sum()), int(found.reached.sum())
    print(
        f"{name:>10} {config.loss:>5.0%} {reached / found.due.sum():>11.5%} "
        f"{(found.missed == 0).mean():>8.2%} {messages / reached:>9.2f} "
        f"{1 - messages / found.topic_messages.sum():>7.2%} "
        f"{found.duplicates.sum() / reached:>10.2f} {found.rounds.sum() / reached:>6.2f} "
        f"{seconds:>8.2f} {1e9 * seconds / messages:>8.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="L8")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--losses", default="0,0.01,0.05,0.1")
    parser.add_argument("--back", type=int, default=0)
    given = parser.parse_args()
    subscribers = generated(given.size) if given.table is None else read(given.table)
    networks: dict[str, GossipNetwork] = {}
    for mode in MODES:
        played = play_overlays(subscribers, RoundConfig(mode=mode), (0, ROUNDS))
        for name, round_ in (("start", 0), (mode, ROUNDS)):
            if name not in networks:
                networks[name] = network_of(played, round_, given.back)
                tell_overlays(name, played, round_, networks[name])
    events = made_events(networks["start"], given.events)
    print(f"{len(events):,} events, {len(events.topics) / len(events):.2f} topics each")
    spread(networks["start"], made_events(networks["start"], 1), GossipConfig())  # loads the code
    print(
        f"{'views':>10} {'loss':>5} {'delivered':>11} {'complete':>8} {'msg/deliv':>9} "
        f"{'shared':>7} {'dup/deliv':>10} {'round':>6} {'cpu s':>8} {'ns/msg':>8}"
    )
    for name, network in networks.items():
        for loss in map(float, given.losses.split(",")):
            tell_spread(name, network, events, GossipConfig(loss=loss))


if __name__ == "__main__":
    main()
