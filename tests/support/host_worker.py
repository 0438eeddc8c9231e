"""One node in a process of its own, driven by lines of JSON: `test_hosts` runs it in a namespace.

`python host_worker.py '{"seed": …}'` joins (`seed` null: begins) with the arguments of
`cubecast.join`, subscribes to `TOPIC` and prints its address; then it answers one line a command.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import cubecast

TOPIC = "hosts"


def say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


async def obey(node: cubecast.Node, messages: cubecast.Subscription, order: dict[str, Any]) -> None:
    match order["do"]:
        case "members":
            say(members=node.members)
        case "publish":
            receipt = await node.publish(TOPIC, order["text"], receipt=True)
            assert receipt is not None
            await receipt.stable(30)
            say(stable=True)
        case "read":
            say(text=(await anext(messages)).payload.decode())
        case "alone":  # until no other node is there, or only so many
            events = node.events()
            while len(node.members) > order["members"]:
                await anext(events)
            say(members=node.members)


async def main(arguments: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    seed = arguments.pop("seed")
    try:
        async with (
            cubecast.join(seed, **arguments) as node,
            node.subscribe(TOPIC) as messages,
        ):
            say(address=node.address)
            while line := await loop.run_in_executor(None, sys.stdin.readline):
                await obey(node, messages, json.loads(line))
    except cubecast.CubecastError as error:
        say(error=str(error))
    else:
        say(left=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
