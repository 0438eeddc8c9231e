"""Carries out a schedule against real processes, and brings them to rest after it.

A run is: all nodes start and talk; the faults of the schedule, under load; the calm, in which links
are whole and no process is stopped; silence, in which messages under way arrive.  It has
*converged* if within `LiveOptions.settle_s` of silence every process that runs is at rest, has
the same members as the others, and these are the processes that run.
"""

from __future__ import annotations

import queue
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random

from cubecast.chaos.condition import Action, Condition, actions_of
from cubecast.chaos.live.live_schedules import delay_s
from cubecast.chaos.live.messages import (
    ApplicationLoad,
    Failed,
    Finish,
    LeaveCluster,
    Live,
    NodeStanding,
    NodeTold,
    PublishBatch,
    Quiet,
    Report,
    SetLinks,
    SubscribeTopic,
    TellStanding,
    TraceFinished,
    UnsubscribeTopic,
    Up,
)
from cubecast.chaos.live.node_process import Heard, NodeProcess
from cubecast.chaos.live.placement import Loopback, Placement
from cubecast.chaos.live.tracelog import mend
from cubecast.chaos.schedule import ApplicationStep, Fault, Schedule
from cubecast.interrupts import held
from cubecast.net.links.faults import CLEAR, Rule
from cubecast.processes.child import end_all

START_S = 60.0
LOOK_EVERY_S = 0.2
FINISH_S = 20.0
LEAVE_S = 30.0


class ChaosFailed(Exception):
    """The run could not be made; this says nothing about the protocol."""


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """The parameters of a run besides its schedule."""

    directory: Path
    load: ApplicationLoad = field(default_factory=ApplicationLoad)
    seed: int = 0
    preset: str = "local"
    settle_s: float = 60.0
    talk_s: float = 5.0
    """How long the load goes on, at least, after the last change, so that each node hears each."""
    join_s: float = 60.0
    """How long a process may take to join while others fail around it."""


@dataclass(frozen=True, slots=True)
class DriverMark:
    """A mark: an action was done, or a process finished joining; times are monotonic."""

    at: float
    action: Action | None
    """None: node `joined` has joined, and talks."""
    joined: int = -1
    life: int = 0
    note: str = ""
    """What an application was told to do, if the mark is neither of the two."""


@dataclass(frozen=True, slots=True)
class ProcessLife:
    """One process from its beginning to its end."""

    number: int
    life: int
    trace: Path
    began: float
    up: Up | None
    ended_at: float | None
    """None: it ran until the end."""
    ending: str


@dataclass(slots=True)
class Run:
    """The record of a run: actions, reports and problems."""

    schedule: Schedule
    began: float = 0.0
    """When all processes were up."""
    silent: float = 0.0
    """When the load ended."""
    settled_s: float | None = None
    """From then until all processes were at rest; None: not in time."""
    marks: list[DriverMark] = field(default_factory=list)
    told: list[tuple[int, NodeTold]] = field(default_factory=list)
    """Events that the nodes told their applications, with the number of the process."""
    lives: list[ProcessLife] = field(default_factory=list)
    standings: dict[int, NodeStanding] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Driver:
    """One run; `say` is called with a line of progress now and then."""

    def __init__(
        self,
        schedule: Schedule,
        options: LiveOptions,
        say: Callable[[str], None] = lambda line: None,
        places: Placement | None = None,
    ) -> None:
        self._schedule = schedule
        self._options = options
        self._say = say
        self._places: Placement = places or Loopback()
        self._condition = Condition(schedule.nodes)
        self._heard: queue.Queue[Heard] = queue.Queue()
        self.processes: list[NodeProcess] = []
        """All processes that were ever started."""
        self._now: dict[int, NodeProcess] = {}
        """The present life of each node that has one."""
        self._chance = Random(options.seed)
        self._loss = options.load.loss
        self._finished: set[NodeProcess] = set()
        self._run = Run(schedule)

    def run(self) -> Run:
        """Carry out the run; no process is left behind, whatever happens."""
        self._options.directory.mkdir(parents=True, exist_ok=True)
        with self._places, self._processes():
            self._start_all()
            self._run.began = time.monotonic()
            self._say(f"{self._schedule.nodes} processes are up and talk")
            self._perform()
            self._calm_down()
            self._settle()
            self._finish()
        for process in self.processes:
            if process.trace.exists():
                mend(process.trace)
        self._run.lives = [_life_of(process) for process in self.processes]
        return self._run

    @contextmanager
    def _processes(self) -> Iterator[None]:
        try:
            yield
        finally:
            end_all(self.processes)

    # -- starting ---------------------------------------------------------------------------------

    def _start_all(self) -> None:
        """Start all processes at once; they join in turn, so that slots equal numbers at first."""
        waiting = [self._spawn(number) for number in range(self._schedule.nodes)]
        for process in waiting:
            self._bring_to_life(process)
            self._wait(partial(self._known, process), START_S)
            if process.up is None:
                reason = self._run.problems[-1] if self._run.problems else "no answer"
                raise ChaosFailed(f"node {process.number} did not start: {reason}")
        self._run.marks.clear()

    def _known(self, process: NodeProcess) -> bool:
        """Whether a process has joined, or failed to."""
        return process.up is not None or self._now.get(process.number) is not process

    def _spawn(self, number: int) -> NodeProcess:
        life = sum(process.number == number for process in self.processes)
        trace = self._options.directory / f"node-{number}-{life}.jsonl"
        with held():
            process = NodeProcess(number, life, trace, self._heard, self._places.command(number))
            self.processes.append(process)
            self._now[number] = process
        return process

    def _bring_to_life(self, process: NodeProcess) -> None:
        number, options = process.number, self._options
        live = Live(
            str(process.trace),
            self._seeds(number),
            [topic for topic, nodes in self._schedule.members().items() if number in nodes],
            options.load,
            self._links(number),
            self._address(number),
            options.preset,
            self._chance.getrandbits(32),
            options.join_s,
        )
        process.order(live)

    def _address(self, number: int) -> str:
        """The address of a node; a restarted process listens at its old one, as a service does."""
        earlier = [one.up.address for one in self.processes if one.number == number and one.up]
        return earlier[-1] if earlier else self._places.listen(number)

    def _seeds(self, number: int) -> list[str]:
        """The addresses to join by: connected nodes, else all that are up; none: begin one."""
        up = {other: one.up.address for other, one in self._now.items() if one.up is not None}
        well = [up[other] for other in up if self._condition.connected(number, other)]
        seeds = well or list(up.values())
        self._chance.shuffle(seeds)
        return seeds

    # -- faults -----------------------------------------------------------------------------------

    def _perform(self) -> None:
        plan = self._schedule
        entries: list[tuple[float, Action | ApplicationStep]] = [
            (one.at, one) for one in actions_of(plan, plan.seconds)
        ]
        entries += [(plan.seconds(step.at), step) for step in plan.steps]
        length = plan.seconds(plan.length)
        for at, entry in sorted(entries, key=lambda entry: entry[0]):
            if at > length:
                break
            self._listen_until(self._run.began + at)
            if isinstance(entry, ApplicationStep):
                self._step(entry)
            else:
                self._do(entry)
        self._listen_until(self._run.began + length)

    def _calm_down(self) -> None:
        """Mend links, resume stopped processes, and wait until all restarted ones have joined."""
        self._loss = 0.0
        for action in self._condition.calm(self._schedule.seconds(self._schedule.length)):
            self._do(action)
        self._tell_links()
        self._wait(lambda: not self._joining(), self._options.join_s)
        late = self._joining()
        if late:
            self._run.problems.append(f"not joined in {self._options.join_s:g} s: nodes {late}")
        last = max((mark.at for mark in self._run.marks), default=0.0)
        self._listen_until(last + self._options.talk_s)

    def _joining(self) -> list[int]:
        return sorted(number for number, one in self._now.items() if one.up is None)

    def _step(self, step: ApplicationStep) -> None:
        """Tell an application to carry out a step, if its process runs."""
        process = self._now.get(step.node)
        topic = step.topic or next(iter(self._schedule.members()))
        if process is None:
            return
        match step.act:
            case "publish" | "burst":
                process.order(PublishBatch(topic, step.count))
            case "subscribe":
                process.order(SubscribeTopic(topic))
            case "unsubscribe":
                process.order(UnsubscribeTopic(topic))
        self._run.marks.append(DriverMark(time.monotonic(), None, note=f"{step}, {topic!r}"))

    def _do(self, action: Action) -> None:
        if not self._condition.can(action):
            return
        process = self._now.get(action.node)
        self._condition.apply(action)
        at = time.monotonic()
        match action.act:
            case "restart":
                self._bring_to_life(self._spawn(action.node))
            case "crash" | "leave" | "pause" | "resume" if process is None:
                return  # it ended by itself, which is a problem that was noted
            case "crash":
                assert process is not None
                at = process.crash()
                self._forget(process, at, "crash")
            case "leave":
                assert process is not None
                process.order(LeaveCluster())
                self._forget(process, None, "leave")
            case "pause":
                assert process is not None
                process.signal(signal.SIGSTOP)
            case "resume":
                assert process is not None
                process.signal(signal.SIGCONT)
            case _:
                self._places.links_changed(self._condition)
                self._tell_links()
        self._run.marks.append(DriverMark(at, action))
        self._say(f"{at - self._run.began:7.2f} s  {action}")

    def _forget(self, process: NodeProcess, at: float | None, ending: str) -> None:
        process.ending = ending
        process.ended_at = at
        self._now.pop(process.number, None)

    def _links(self, number: int) -> SetLinks:
        """The faults of one node's links with every process that has a name."""
        rules: dict[str, Rule] = {}
        for other, process in self._now.items():
            if other != number and process.up is not None:
                rule = self._rule(number, other)
                if rule != CLEAR:
                    rules[process.up.uid] = rule
        return SetLinks(rules, self._loss)

    def _rule(self, number: int, other: int) -> Rule:
        """The rule for a peer; it replaces the rule for all peers, so it has the same loss."""
        out, back = self._condition.link(number, other), self._condition.link(other, number)
        delay = sum(delay_s(self._schedule, fault) for fault in out.slow)
        loss = self._loss
        if self._places.cuts_links:
            return Rule(delay, loss=loss) if delay else CLEAR
        both = out.cut and back.cut
        rule = Rule(delay, cut=both, cut_outgoing=out.cut and not both)
        return rule if rule == CLEAR else replace(rule, loss=loss)

    def _tell_links(self) -> None:
        for number, process in self._now.items():
            process.order(self._links(number))

    # -- listening --------------------------------------------------------------------------------

    def _listen_until(self, moment: float) -> None:
        self._wait(lambda: False, moment - time.monotonic())

    def _wait(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Take reports in until `done`, for at most `timeout_s`; return whether it is."""
        deadline = time.monotonic() + timeout_s
        while not done():
            try:
                process, report = self._heard.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return False
            self._take(process, report)
        return True

    def _take(self, process: NodeProcess, report: Report | None) -> None:
        match report:
            case None:
                self._ended(process)
            case Up():
                process.up = report
                if self._now.get(process.number) is process:
                    mark = DriverMark(report.at, None, process.number, process.life)
                    self._run.marks.append(mark)
                    if self._condition.links:
                        self._tell_links()  # the others know its name now
            case NodeTold():
                self._run.told.append((process.number, report))
            case NodeStanding():
                if self._now.get(process.number) is process:  # else of a life that is over
                    self._run.standings[process.number] = report
            case TraceFinished():
                self._finished.add(process)
                if process.ending == "leave":
                    process.ended_at = report.at
            case Failed():
                process.complaints.append(report.reason)

    def _ended(self, process: NodeProcess) -> None:
        """Note the end of a process; it is a problem unless the driver caused it."""
        if process.ending == "leave" and process not in self._finished:
            self._run.problems.append(f"{process} did not leave well: {process.last_words()}")
            process.ended_at = process.ended_at or time.monotonic()
        if process.ending or self._now.get(process.number) is not process:
            return
        now = time.monotonic()
        self._forget(process, now, "crash")
        action = Action(now - self._run.began, "crash", Fault(0.0, "crash", process.number), -1)
        self._condition.apply(action)
        self._run.marks.append(DriverMark(now, action))
        self._run.problems.append(f"{process} ended by itself, {process.last_words()}")
        self._say(self._run.problems[-1])

    # -- coming to rest ---------------------------------------------------------------------------

    def _settle(self) -> None:
        run = self._run
        for process in self._now.values():
            process.order(Quiet())
        run.silent = time.monotonic()
        run.standings.clear()
        before: dict[int, int] = {}
        while time.monotonic() < run.silent + self._options.settle_s:
            asked = time.monotonic()
            for process in self._now.values():
                process.order(TellStanding())
            self._wait(partial(self._answered, asked), 10 * LOOK_EVERY_S)
            delivered = {number: one.delivered for number, one in run.standings.items()}
            if self._answered(asked) and self._agree() and delivered == before:
                run.settled_s = time.monotonic() - run.silent
                return
            before = delivered
            self._listen_until(asked + LOOK_EVERY_S)
        run.problems.append(f"not at rest {self._options.settle_s:g} s after the load ended")
        run.problems += self._unsettled()

    def _answered(self, since: float) -> bool:
        standings = self._run.standings
        return all(number in standings and standings[number].at >= since for number in self._now)

    def _agree(self) -> bool:
        """Whether all processes are at rest and their members are exactly the running ones."""
        standings = [self._run.standings[number] for number in self._now]
        slots = sorted(one.slot for one in standings)
        return all(one.at_rest and one.members == slots for one in standings)

    def _unsettled(self) -> Iterator[str]:
        slots = sorted(one.slot for one in self._run.standings.values())
        for number in sorted(self._now):
            one = self._run.standings.get(number)
            if one is None:
                yield f"node {number} does not answer"
            elif one.members != slots:
                yield f"node {number} (slot {one.slot}) has slots {one.members}, not {slots}"
            elif not one.at_rest:
                yield f"node {number} (slot {one.slot}) waits: {one.why}"

    def _finish(self) -> None:
        """End the traces with everything open; nodes that are leaving still get time for it."""
        self._finished -= set(self._now.values())
        for process in self._now.values():
            process.order(Finish())
        if not self._wait(lambda: self._finished >= set(self._now.values()), FINISH_S):
            self._run.problems.append("not every trace could be ended")
        leaving = [process for process in self.processes if process.ending == "leave"]
        self._wait(lambda: all(process.ended_at is not None for process in leaving), LEAVE_S)


def _life_of(process: NodeProcess) -> ProcessLife:
    return ProcessLife(
        process.number,
        process.life,
        process.trace,
        process.began,
        process.up,
        process.ended_at,
        process.ending,
    )
