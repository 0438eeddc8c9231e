"""A script without async: sensors report, a loop reads, and nothing waits for ever.

    python examples/sync_script.py

Elsewhere the cluster would be `cubecast up`, and the script would begin with `connect`.
"""

import cubecast

READINGS = {"cellar": [7, 8], "kitchen": [21, 22]}


def main() -> None:
    with (
        cubecast.sync.start("127.0.0.1:0") as node,
        cubecast.sync.connect(node.address) as client,
        client.subscribe("sensors/#", timeout=30) as messages,
    ):
        for room, degrees in READINGS.items():
            for value in degrees:
                client.publish(f"sensors/{room}", str(value))
        receipt = client.publish("sensors/end", "no more", receipt=True)
        newest: dict[str, int] = {}
        for message in messages:
            room = message.topic.removeprefix("sensors/")
            if room == "end":
                break
            newest[room] = int(message.payload)
        receipt.stable(timeout=30)
        for room, value in sorted(newest.items()):
            print(f"{room}: {value} degrees")


if __name__ == "__main__":
    main()
