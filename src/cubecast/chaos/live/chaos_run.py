"""A whole chaos run: carried out, measured and judged."""

from __future__ import annotations

from collections.abc import Callable

from cubecast.chaos.live.driver import Driver, LiveOptions
from cubecast.chaos.live.placement import Placement
from cubecast.chaos.live.story import happenings, judgement
from cubecast.chaos.live.verdict import LiveVerdict, judge
from cubecast.chaos.schedule import Schedule, schedule_text

SCHEDULE_FILE = "schedule.toml"
STORY_FILE = "story.txt"


def chaos_run(
    schedule: Schedule,
    options: LiveOptions,
    say: Callable[[str], None] = lambda line: None,
    places: Placement | None = None,
) -> LiveVerdict:
    """Make a run and judge it; the directory keeps traces, story and the schedule to repeat it."""
    options.directory.mkdir(parents=True, exist_ok=True)
    text = schedule_text(schedule)
    (options.directory / SCHEDULE_FILE).write_text(text, encoding="utf-8")
    run = Driver(schedule, options, say, places).run()
    say("checking the traces")
    verdict = judge(run)
    story = "\n".join((*happenings(run), "", *judgement(verdict)))
    (options.directory / STORY_FILE).write_text(story + "\n", encoding="utf-8")
    return verdict
