"""A whole chaos run: carried out, measured and judged."""

from __future__ import annotations

from collections.abc import Callable

from cubecast.chaos.live.driver import Driver, Options, Run
from cubecast.chaos.live.merged_trace import records_of, tenancies, trace_of
from cubecast.chaos.live.placement import Places
from cubecast.chaos.live.recovery import audience_of, measure
from cubecast.chaos.live.story import Verdict, happenings, judgement
from cubecast.chaos.schedule import Schedule, schedule_text
from cubecast.trace import ALL, answers_before_questions, check

SCHEDULE_FILE = "schedule.toml"
STORY_FILE = "story.txt"


def chaos_run(
    schedule: Schedule,
    options: Options,
    say: Callable[[str], None] = lambda line: None,
    places: Places | None = None,
) -> Verdict:
    """Do it and judge it; traces, story and the schedule to repeat it stay in the directory."""
    options.directory.mkdir(parents=True, exist_ok=True)
    text = schedule_text(schedule)
    (options.directory / SCHEDULE_FILE).write_text(text, encoding="utf-8")
    run = Driver(schedule, options, say, places).run()
    say("checking the traces")
    verdict = judge(run)
    story = "\n".join((*happenings(run), "", *judgement(verdict)))
    (options.directory / STORY_FILE).write_text(story + "\n", encoding="utf-8")
    return verdict


def judge(run: Run) -> Verdict:
    """Check the traces of a run, and measure what its faults cost."""
    found = tenancies(run.lives)
    # Nodes that keep no views cannot agree on one; who their members are the driver has asked.
    left_out = set() if any(one.has_views for one in found) else {"convergence"}
    report = check(trace_of(found), [name for name in ALL if name not in left_out])
    answers = answers_before_questions(trace_of(found))
    lives = [(life.number, records_of(life.trace)) for life in run.lives]
    audience = audience_of(run.schedule)
    curve = measure(lives, audience, run.marks, run.began, run.silent)
    return Verdict(run, report, answers, curve)
