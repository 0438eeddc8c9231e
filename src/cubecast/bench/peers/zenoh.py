"""Zenoh: peers connected to each other; publishers wait rather than drop.

Messages are taken in by a callback: with the default queue two processes that publish and
subscribe can block each other for ever.
"""

from __future__ import annotations

import json
import time
from importlib import import_module
from typing import Any

from cubecast.bench.peers import TOPIC, BlockingClient, Receive
from cubecast.bench.peers.brokerless import port_to_dial, servers
from cubecast.bench.workloads import Task

__all__ = ["client", "servers"]


class ZenohClient(BlockingClient):
    """A session in peer mode that connects to the processes before it."""

    def open(self, publishes: bool, subscribes: bool, receive: Receive) -> None:
        zenoh: Any = import_module("zenoh")
        zenoh.init_log_from_env_or("error")
        task = self.task
        config = zenoh.Config()
        config.insert_json5("mode", '"peer"')
        config.insert_json5("scouting/multicast/enabled", "false")
        # Peers do not pass on the addresses of others, so there is no way around a relay.
        config.insert_json5("scouting/gossip/enabled", "false")
        own = f"tcp/127.0.0.1:{task.ports[task.index]}"
        config.insert_json5("listen/endpoints", json.dumps([own]))
        before = [f"tcp/127.0.0.1:{port_to_dial(task, other)}" for other in range(task.index)]
        config.insert_json5("connect/endpoints", json.dumps(before))
        self._session = zenoh.open(config)
        self._publisher = self._session.declare_publisher(
            TOPIC,
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
            allowed_destination=zenoh.Locality.REMOTE,
        )
        put = self._publisher.put

        def take(sample: Any) -> None:
            answer = receive(sample.payload.to_bytes())
            if answer is not None:
                put(answer)

        if subscribes:
            self._subscriber = self._session.declare_subscriber(TOPIC, take)

    def publish(self, payload: bytes) -> None:
        self._publisher.put(payload)

    def poll(self, timeout: float) -> None:
        if timeout:
            time.sleep(timeout)

    def close(self) -> None:
        self._session.close()


def client(task: Task) -> BlockingClient:
    """A process's end."""
    return ZenohClient(task)
