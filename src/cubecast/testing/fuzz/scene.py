"""Constants that victims and attackers share: topics, secrets, and the settings of nodes."""

from __future__ import annotations

from dataclasses import replace

from cubecast.net.settings.config import NodeConfig, local_epochs
from cubecast.protocol.config import Config

QUIET = "quiet/conversation"
ATTACKED = "attacked"
HOSTILE = "127.0.0.2"
"""Attackers dial from here, so that a victim can count the hostile packets it looks at."""
END_OF_RECORD = "--"
"""A line on stderr after each error that a victim logs."""
SECRET = "what the members know"
CLIENT_SECRET = "what the clients know"


def config() -> NodeConfig:
    """A node that gives up soon and keeps little, so that an attack sees all of it."""
    return NodeConfig(
        secret=SECRET,
        client_secret=CLIENT_SECRET,
        join_timeout_s=60.0,
        publish_timeout_s=0.5,
        leave_timeout_s=0.2,
        epochs=replace(  # a liar that leads and changes nothing is gone on without in 25 s
            local_epochs(), answer_after=800_000, repeat_after=100_000, enter_every=200_000
        ),
        protocol=Config(
            window=64 * 1024,
            ack_delay=1_000,
            stable_delay=20_000,
            resend_after=100_000,
            resend_max=1_000_000,
            mute_after=4_000_000,  # as a node has by default: without it a wave may wait for ever
        ),
    )
