"""A chat with rooms: three users, each with a node of its own, talk over TCP.

    python examples/chat.py

Every user reads every room it is in and prints nothing until all have read everything; then each
screen is shown.  In one room, no user sees an answer before its question.
"""

import asyncio
from contextlib import AsyncExitStack

import cubecast

SCRIPT: dict[str, dict[str, list[str]]] = {
    "ann": {"lunch": ["Where do we eat?"], "music": []},
    "bob": {"lunch": [], "music": ["Who sings tonight?"]},
    "cem": {"lunch": [], "music": []},
}
"""The rooms of each user, and the first lines there."""
ANSWERS = {
    ("lunch", "Where do we eat?"): {"bob": "At the harbour.", "cem": "I brought soup."},
    ("music", "Who sings tonight?"): {"ann": "Not me."},
    ("lunch", "At the harbour."): {"ann": "Then I am late."},
}


class User:
    """One user: a node, the rooms, and a screen per room."""

    def __init__(self, name: str, node: cubecast.Node) -> None:
        self.name = name
        self.node = node
        self.screens: dict[str, list[str]] = {}

    async def say(self, room: str, text: str) -> None:
        await self.node.publish(f"chat/{room}", f"{self.name}: {text}")

    async def read(self, room: str, messages: cubecast.Subscription, lines: int) -> None:
        screen = self.screens.setdefault(room, [])
        async for message in messages:
            line = message.payload.decode()
            screen.append(line)
            answer = ANSWERS.get((room, line.split(": ", 1)[1]), {}).get(self.name)
            if answer:
                await self.say(room, answer)
            if len(screen) == lines:
                return


def lines_in(room: str) -> int:
    """The number of lines in a room, so that the example knows when to end."""
    asked = sum(len(rooms[room]) for rooms in SCRIPT.values())
    return asked + sum(len(said) for (where, _), said in ANSWERS.items() if where == room)


async def main() -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(30):
        users: list[User] = []
        for name in SCRIPT:
            seed = users[0].node.address if users else None
            node = await stack.enter_async_context(cubecast.join(seed))
            users.append(User(name, node))
        async with AsyncExitStack() as rooms, asyncio.TaskGroup() as reading:
            for user in users:
                for room in SCRIPT[user.name]:
                    messages = await rooms.enter_async_context(user.node.subscribe(f"chat/{room}"))
                    reading.create_task(user.read(room, messages, lines_in(room)))
            for user in users:
                for room, begins in SCRIPT[user.name].items():
                    for text in begins:
                        await user.say(room, text)
        for user in users:
            for room, screen in user.screens.items():
                print(f"-- {user.name}'s screen, room {room}")
                print("\n".join(screen))


asyncio.run(main())
