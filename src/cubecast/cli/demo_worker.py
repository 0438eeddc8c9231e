"""One member of the live demo: a process of its own with one node, which takes orders on stdin.

    python -m cubecast.cli.demo_worker

Orders come in and reports go out as one JSON object a line.  The process ends when it has
reported its trace, when its orders end (so it never outlives the process that started it), or after
`LIFE_S`.
"""

from __future__ import annotations

import asyncio
import sys
from random import Random

import msgspec

import cubecast
from cubecast.cli.demo_chat import answer, question
from cubecast.net.links.faults import LinkFaults, parse_rules
from cubecast.net.loop import run_loop
from cubecast.trace import Record

TOPIC = "demo/questions"
LIFE_S = 30.0
THINKING_S = 0.03
"""Readers think up to this long before they answer."""


class DemoJoin(msgspec.Struct, tag=True):
    """Begin a cluster, or join that of `seed`; then subscribe."""

    seed: str | None


class DemoTalk(msgspec.Struct, tag=True):
    """Talk, under these faults; all members are subscribed."""

    faults: str
    members: list[int]
    rounds: int


class DemoLeave(msgspec.Struct, tag=True):
    """Leave; all members have read everything."""


class DemoReady(msgspec.Struct, tag=True):
    """Subscribed, at this slot."""

    slot: int
    address: str


class DemoFinished(msgspec.Struct, tag=True):
    """Everything was read."""


class Left(msgspec.Struct, tag=True):
    """The trace of a member that has left."""

    trace: list[Record]


Order = DemoJoin | DemoTalk | DemoLeave
Report = DemoReady | DemoFinished | Left


class DemoMessage(msgspec.Struct):
    """A message of the conversation: a question, or the answer to one."""

    round: int
    answer: bool
    text: str


class DemoMember:
    """Asks when it is its turn, and answers the questions of others."""

    def __init__(self, node: cubecast.Node, talk: DemoTalk) -> None:
        self._node = node
        self._talk = talk
        self._chance = Random(node.slot)
        self._published = 0
        self._answering: set[asyncio.Task[None]] = set()
        self.replies: dict[int, str] = {}
        """Our number of an answer -> the id of its question in the trace."""

    async def converse(self, messages: cubecast.Subscription) -> None:
        """Talk until all messages of the conversation were read here."""
        members, rounds = self._talk.members, self._talk.rounds
        answers = [0] * rounds
        await self._ask_if_our_turn(0)
        for _ in range(rounds * len(members)):
            message = await anext(messages)
            said = msgspec.json.decode(message.payload, type=DemoMessage)
            if said.answer:
                answers[said.round] += 1
                if answers[said.round] == len(members) - 1:
                    await self._ask_if_our_turn(said.round + 1)
            elif message.source != self._node.slot:
                task = asyncio.create_task(self._answer(message, said.round))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    async def _ask_if_our_turn(self, number: int) -> None:
        members = self._talk.members
        if number < self._talk.rounds and members[number % len(members)] == self._node.slot:
            await self._publish(DemoMessage(number, False, question(number)))

    async def _answer(self, asked: cubecast.Message, number: int) -> None:
        await asyncio.sleep(self._chance.random() * THINKING_S)
        stream = asked.frame.stream
        self.replies[self._published] = f"{stream.source}.{stream.incarnation:x}.{asked.seq}"
        text = answer(number, asked.source, self._node.slot)
        await self._publish(DemoMessage(number, True, text))

    async def _publish(self, said: DemoMessage) -> None:
        self._published += 1
        await self._node.publish(TOPIC, msgspec.json.encode(said))

    def with_replies(self, record: Record) -> Record:
        """Add to a publication of ours the message that it answers."""
        if record.kind == "publish" and record.seq in self.replies:
            return msgspec.structs.replace(record, reply_to=(self.replies[record.seq],))
        return record


class Orders:
    """Orders from the process that started us; we end when they end."""

    def __init__(self) -> None:
        self._reader = asyncio.StreamReader()
        self._queue: asyncio.Queue[Order] = asyncio.Queue()

    async def read_for(self, worker: asyncio.Task[None]) -> None:
        """Read on while `worker` works, to notice the end of orders at once."""
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self._reader), sys.stdin)
        while line := await self._reader.readline():
            self._queue.put_nowait(msgspec.json.decode(line, type=Order))
        worker.cancel()

    async def next(self) -> Order:
        return await self._queue.get()


def report(what: Report) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.flush()


async def take_part(orders: Orders) -> None:
    trace: list[Record] = []
    faults = LinkFaults()
    join = await orders.next()
    assert isinstance(join, DemoJoin)
    config = cubecast.NodeConfig(trace_arrivals=True, leave_timeout_s=3.0)
    async with (
        cubecast.join(join.seed, config=config, trace=trace, faults=faults) as node,
        node.subscribe(TOPIC) as messages,
    ):
        report(DemoReady(node.slot, node.address))
        talk = await orders.next()
        assert isinstance(talk, DemoTalk)
        for peer, rule in parse_rules(talk.faults)[0].items():
            faults.set(peer, rule)
        member = DemoMember(node, talk)
        await member.converse(messages)
        report(DemoFinished())
        await orders.next()
        faults.clear()
    report(Left([member.with_replies(record) for record in trace]))


async def main() -> None:
    """Take part until the end, the end of our orders, or the end of our time."""
    cubecast.logs.install(logger="")  # stderr is read only if we fail
    orders = Orders()
    worker = asyncio.create_task(take_part(orders))
    reading = asyncio.create_task(orders.read_for(worker))
    async with asyncio.timeout(LIFE_S):
        await asyncio.wait([worker])
    reading.cancel()
    if worker.cancelled():
        sys.exit("demo worker: stdin was closed before the last order")
    worker.result()


if __name__ == "__main__":
    run_loop(main())
