"""StaN in rounds as compiled code: the views of `cubecast.overlay.rounds`, much faster.

`play_topics` takes the subscribers of many topics as flat arrays and plays all of their overlays in
one call.  `docs/overlays-at-scale.md` has the speed and what else is here.  Needs numba.
"""

from cubecast.kernel.rounds.play import Played, play_topics

__all__ = ["Played", "play_topics"]
