"""A service that answers requests, two nodes and a light client that ask.

    python examples/service.py

One node keeps the stock.  The result of its handler answers a request; a refusal raises an error at
the asker.  Then every node is asked at once for its name.
"""

import asyncio
from contextlib import AsyncExitStack

import msgspec

import cubecast


class Order(msgspec.Struct):
    item: str
    count: int


class Left(msgspec.Struct):
    item: str
    left: int


ORDER = cubecast.codecs.json(Order)
LEFT = cubecast.codecs.json(Left)


class Stock:
    """The stock; one call at a time changes it."""

    def __init__(self) -> None:
        self.items = {"apple": 10, "pear": 1}

    async def take(self, message: cubecast.Message[Order]) -> bytes | None:
        """The handler: its result is the answer.

        An exception would be answered as well, and logged: for an invalid `Order`, say.
        """
        order = message.value
        if self.items.get(order.item, 0) < order.count:
            await message.reply_error(f"there are not {order.count} of {order.item!r}")
            return None
        self.items[order.item] -= order.count
        return LEFT.encode(Left(order.item, self.items[order.item]))


async def buy(asker: cubecast.Node | cubecast.Client, item: str, count: int) -> str:
    """Ask, and return the outcome as text, which says whether something was taken."""
    try:
        order = ORDER.encode(Order(item, count))
        answer = await asker.request("stock/take", order, timeout=5, codec=LEFT)
    except cubecast.RequestFailed as error:
        return f"refused: {error.text}"
    except cubecast.NoAnswer as error:
        return f"perhaps taken, perhaps not: {error}"
    except cubecast.NotSent as error:
        return f"not taken: {error}"
    return f"{count} {item}, {answer.value.left} left"


async def main() -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(30):
        shop = await stack.enter_async_context(cubecast.start("127.0.0.1:0"))
        other = await stack.enter_async_context(cubecast.join(shop.address))
        phone = await stack.enter_async_context(cubecast.connect(other.address))
        await stack.enter_async_context(shop.on("stock/take", Stock().take, codec=ORDER))
        await stack.enter_async_context(shop.on("who", lambda _: "shop"))
        await stack.enter_async_context(other.on("who", lambda _: "other"))
        print(await buy(other, "apple", 3))
        print(await buy(phone, "apple", 3))
        print(await buy(phone, "pear", 2))
        names = [one.payload.decode() async for one in phone.request_many("who", count=2)]
        print("there are", ", ".join(sorted(names)))


asyncio.run(main())
