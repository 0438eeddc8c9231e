"""Every branch of recovery is taken by a test, and nothing is kept of the dead but two numbers."""

from __future__ import annotations

import re
from pathlib import Path

from cubecast.protocol import member
from cubecast.sim.chaos import _Run, draw_schedule, population

PROTOCOL = Path(member.__file__).parent
NAMED = re.compile(r'marks\["([^"]+)"\]')


def names() -> set[str]:
    """The branches that have a name."""
    return {
        name
        for path in PROTOCOL.glob("*.py")
        for name in NAMED.findall(path.read_text(encoding="utf-8"))
    }


def test_two_numbers_are_kept_of_a_stream_whose_publisher_is_gone() -> None:
    """However many lives nodes have had: what is delivered, and what everyone has."""
    lives = 0
    for seed in range(40):
        run = _Run(draw_schedule(seed), population("cubecast"))
        run.perform()
        assert not run.failures
        for node in run.world.running():
            core = run.world.processes[node].core  # type: ignore[attr-defined]
            for membership in core.memberships.values():
                topic = membership.core
                lives += sum(not core.is_live(stream) for stream in topic.front.delivered)
                kept = {**topic.finals, **topic.ends, **topic.cut, **topic.lost_routes}
                kept.update({**topic.heirs, **topic.inherited})
                assert not {stream for stream in kept if not core.is_live(stream)}, (seed, node)
    assert lives > 100
