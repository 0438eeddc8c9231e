"""One overlay per topic, aligned so that topics share connections (StaN, docs/overlays.md).

    python examples/share_links.py

Needs the extra `lab`.  Ends within seconds; the first time it compiles.
"""

from cubecast.kernel.rounds import overlay_metrics, play_topics, played_view_sizes
from cubecast.overlay.rounds import RoundConfig
from cubecast.overlay.universes.bipartite import universe

# 1,381 users, 576 topics: the sizes of the smallest Wikipedia universe in the StaN paper.
topics, offsets, members = universe("W8")

for mode in ("faithful", "repairing"):
    played = play_topics(topics, offsets, members, RoundConfig(mode=mode), keep=(0, 2, 8))
    print(mode)
    for round_ in played.keep:
        sizes = played_view_sizes(played, round_)
        unknown = overlay_metrics(played, round_).unknown.sum()
        print(
            f"  round {round_}: {sizes.logical.mean():.1f} links per user over all topics, "
            f"to {sizes.physical.mean():.1f} different users; {unknown} subscribers in no view"
        )
