"""A typed pipeline: sensors publish readings, a node averages them, a light client raises alarms.

    python examples/sensors.py

The readings are a class of your own.  Invalid bytes of a sensor cost one line and no more: they
are kept in the error.
"""

import asyncio

import msgspec

import cubecast


class Reading(msgspec.Struct):
    """A reading of a sensor."""

    sensor: str
    celsius: float


class Average(msgspec.Struct):
    """The average of all readings so far."""

    celsius: float
    readings: int


READINGS = cubecast.TypedTopic("sensors/hall", cubecast.codecs.json(Reading))
AVERAGES = cubecast.TypedTopic("averages/hall", cubecast.codecs.msgpack(Average))
SAID = [20.5, 21.0, 22.5, 40.0]
ALARM = 25.0


async def average(node: cubecast.Node, readings: cubecast.Subscription[Reading]) -> None:
    """Publish the average of all readings so far, after each."""
    total, count = 0.0, 0
    async for message in readings:
        try:
            total += message.value.celsius
        except cubecast.DecodeError as error:
            print(f"not a reading: {error.payload!r}")
            continue
        count += 1
        cause = {"cause": message.id}
        await AVERAGES.publish(node, Average(total / count, count), headers=cause)


async def watch(averages: cubecast.RemoteSubscription[Average]) -> None:
    """Print averages until one is alarming."""
    async for message in averages:
        mean = message.value
        print(f"{mean.celsius:.1f} degrees, of {mean.readings} readings")
        if mean.celsius > ALARM:
            print("alarm, because of a reading in", message.headers["cause"].partition("#")[0])
            return


async def main() -> None:
    async with (
        asyncio.timeout(30),
        cubecast.start("127.0.0.1:0") as sensor,
        cubecast.join(sensor.address) as pipeline,
        cubecast.connect(pipeline.address) as client,
        AVERAGES.subscribe(client) as averages,
        READINGS.subscribe(pipeline) as readings,
    ):
        averaging = asyncio.create_task(average(pipeline, readings))
        await sensor.publish(READINGS.name, b'{"sensor": "hall", "celsius": "warm"}')
        for celsius in SAID:
            receipt = await READINGS.publish(sensor, Reading("hall", celsius), receipt=True)
            await receipt.stable()
        await watch(averages)
        await readings.close()
        await averaging


asyncio.run(main())
