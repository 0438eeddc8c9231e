"""Two replicas of an account end up equal, because they apply two topics in one order.

Deposits come in one topic and interest in another.  Both replicas see each topic in causal order
anyway; but a deposit before the interest gives another balance than one after it.
"""

from __future__ import annotations

import asyncio

import cubecast

DEPOSITS, INTERESTS = 20, 10


async def replica(account: cubecast.Ordered) -> float:
    """Apply all messages, in the order in which they are notified."""
    balance = 100.0
    for _ in range(DEPOSITS + INTERESTS):
        message = await anext(account)
        if message.topic == "deposits":
            balance += float(message.payload)
        else:
            balance *= 1 + float(message.payload)
    return balance


async def main() -> None:
    async with (
        cubecast.start("127.0.0.1:0") as bank,
        cubecast.join(bank.address) as first,
        cubecast.join(bank.address) as second,
    ):
        managers = [bank.address]
        async with (
            cubecast.ordered(bank, managers=managers) as teller,
            cubecast.ordered(first, managers=managers) as one,
            cubecast.ordered(second, managers=managers) as other,
        ):
            await asyncio.gather(*(who.subscribe("deposits", "interest") for who in (one, other)))
            balances = asyncio.gather(replica(one), replica(other))
            for number in range(DEPOSITS):
                await teller.publish("deposits", str(10 * number))
                if number < INTERESTS:
                    await one.publish("interest", "0.01")  # from another node, at the same time
            mine, theirs = await balances
            print(f"{mine:.2f} and {theirs:.2f}: {'equal' if mine == theirs else 'different'}")
            assert mine == theirs


asyncio.run(main())
