"""A game: four players publish their positions many times a second on one hot topic.

    python examples/positions.py

A slow player wants only the newest positions, and must not slow the others down: its subscription
drops the oldest.  Ends within three seconds, with the board as each player knows it and the rates.
"""

import asyncio
import math
import time

import cubecast

PLAYERS = 4
TOPIC = "game/positions"
PLAY_S = 1.0
TICK_S = 0.002
SLOW_FRAME_S = 0.05
QUEUE_BYTES = 256
"""A dozen positions: the most that a slow player is behind."""
WIDTH, HEIGHT = 32, 9


class Player:
    """Moves on a curve of its own, and keeps the newest position of each player."""

    def __init__(self, node: cubecast.Node, frame_s: float) -> None:
        self.node = node
        self.frame_s = frame_s
        self.board: dict[int, tuple[int, int]] = {}
        self.sent = self.seen = 0

    async def move(self) -> None:
        end = time.monotonic() + PLAY_S
        while (left := end - time.monotonic()) > 0:
            await self.publish_position(left)
            await asyncio.sleep(TICK_S)
        await self.publish_position(0.0)

    async def publish_position(self, left: float) -> None:
        angle = 2 * math.pi * (left + self.node.slot / PLAYERS)
        x = round((math.cos(angle) + 1) / 2 * (WIDTH - 1))
        y = round((math.sin(angle) + 1) / 2 * (HEIGHT - 1))
        await self.node.publish(TOPIC, f"{x} {y}")
        self.sent += 1

    async def draw(self, positions: cubecast.Subscription) -> None:
        """Read the queued positions, then take as long as a frame takes."""
        async for message in positions:
            x, y = message.payload.split()
            self.board[message.source] = (int(x), int(y))
            self.seen += 1
            if self.frame_s:
                await asyncio.sleep(self.frame_s)

    def picture(self) -> str:
        rows = [["."] * WIDTH for _ in range(HEIGHT)]
        for player, (x, y) in self.board.items():
            rows[y][x] = str(player)
        return "\n".join("".join(row) for row in rows)


async def play(nodes: list[cubecast.Node]) -> None:
    players = [Player(node, SLOW_FRAME_S if node.slot == 3 else 0.0) for node in nodes]
    views = [node.subscribe(TOPIC, policy="drop-oldest", queue_bytes=QUEUE_BYTES) for node in nodes]
    for view in views:
        await view.__aenter__()
    drawing = [
        asyncio.create_task(player.draw(view)) for player, view in zip(players, views, strict=True)
    ]
    await asyncio.gather(*(player.move() for player in players))
    published = sum(player.sent for player in players)
    while any(
        player.seen + view.dropped < published for player, view in zip(players, views, strict=True)
    ):
        await asyncio.sleep(TICK_S)
    for view in views:
        await view.close()
    await asyncio.gather(*drawing)

    print(players[0].picture())
    assert all(player.board == players[0].board for player in players)
    print("all players end with this board, also the slow one")
    for player, view in zip(players, views, strict=True):
        print(
            f"player {player.node.slot}: {player.sent / PLAY_S:5.0f} positions published a second,"
            f" {player.seen / PLAY_S:5.0f} drawn, {view.dropped} dropped"
        )


async def main() -> None:
    async with (
        asyncio.timeout(20),
        cubecast.start("127.0.0.1:0") as first,
        cubecast.join(first.address) as second,
        cubecast.join(first.address) as third,
        cubecast.join(first.address) as fourth,
    ):
        await play([first, second, third, fourth])


asyncio.run(main())
