"""StaN in rounds as compiled code: the views of `cubecast.overlay.rounds`, much faster.

`play_topics` takes the subscribers of many topics as flat arrays and plays all of their overlays in
one call.  Beside it: the metrics of overlays, physical view sizes, the omniscient optimum, the
estimates and a covering heuristic.  `docs/overlays-at-scale.md` describes them.  Needs numba.
"""

from cubecast.kernel.rounds.covering import covering_links
from cubecast.kernel.rounds.estimates import Estimates, coverage, estimates
from cubecast.kernel.rounds.metrics import OverlayMetrics, in_degrees, overlay_metrics
from cubecast.kernel.rounds.optimum import Optimum, optimal_views
from cubecast.kernel.rounds.physical import ViewSizes, physical_view_sizes, played_view_sizes
from cubecast.kernel.rounds.play import Played, Subscribers, play_overlays, play_topics

__all__ = [
    "Estimates",
    "Optimum",
    "OverlayMetrics",
    "Played",
    "Subscribers",
    "ViewSizes",
    "coverage",
    "covering_links",
    "estimates",
    "in_degrees",
    "optimal_views",
    "overlay_metrics",
    "physical_view_sizes",
    "play_overlays",
    "play_topics",
    "played_view_sizes",
]
