"""The fuzzer: a small run of each mode, and that it finds what is broken on purpose."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import inspect

from cubecast.net.wire.clients import decode_from_client, decode_from_node
from cubecast.net.wire.hello import decode_greeting
from cubecast.net.wire.packet_buffer import PacketBuffer
from cubecast.net.wire.packets import (
    CLIENT,
    CONTROL,
    DETECTOR,
    HELLO,
    VIEW,
    WireError,
    decode_control,
)
from cubecast.net.wire.views import decode_detector, decode_view
from cubecast.protocol.cluster.leader_watch import LOOKS, LeaderWatch
from cubecast.protocol.subscriptions.discovery import Discovery
from cubecast.testing.fuzz import (
    Campaign,
    FuzzState,
    Lore,
    Maker,
    Mutator,
    Target,
    campaign,
    decoders,
    fleet,
    fuzz_decoders,
    growth,
    load,
    scene,
    session,
    wanted,
)
from cubecast.testing.fuzz.packets import FROM_CLIENT, FROM_NODE, TYPES
from cubecast.testing.fuzz.state import GROWTH_BYTES, GROWTH_DESCRIPTORS, VictimSample
from support.paths import SUPPORT

MUTANTS = str(SUPPORT / "fuzz_mutants.py")


# -- packets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("union", "make", "decode"),
    [
        (TYPES[CONTROL], lambda maker: maker.make(CONTROL), decode_control),
        (TYPES[HELLO], lambda maker: maker.make(HELLO), decode_greeting),
        (TYPES[VIEW], lambda maker: maker.make(VIEW), decode_view),
        (TYPES[DETECTOR], lambda maker: maker.make(DETECTOR), decode_detector),
        (FROM_CLIENT, lambda maker: maker.make(CLIENT), decode_from_client),
        (FROM_NODE, Maker.from_node, decode_from_node),
    ],
    ids=["control", "hello", "view", "detector", "from client", "from node"],
)
def test_messages_of_every_type_get_past_their_decoder(union: Any, make: Any, decode: Any) -> None:
    maker = Maker(Random(1), Lore(lives={0: 5, 1: 6}))
    taken: set[str] = set()
    for _ in range(600):
        try:
            taken.add(type(decode(make(maker))).__name__)
        except WireError:
            continue
    assert isinstance(union, inspect.UnionType)
    assert taken == {one.cls.__name__ for one in union.types if isinstance(one, inspect.StructType)}


def test_mutations_are_packets_that_differ() -> None:
    random = Random(2)
    maker, mutator = Maker(random, Lore()), Mutator(random)
    whole = differing = 0
    for _ in range(300):
        raw = maker.make(random.randrange(1, 10))
        mutated = mutator.mutate(raw, [maker.make(CONTROL)])
        differing += mutated != raw
        try:
            whole += len(PacketBuffer().feed(mutated)) == 1
        except WireError:
            continue
    assert differing > 280
    assert whole > 280


# -- decoders --------------------------------------------------------------------------------------


def test_decoders_take_or_refuse_whatever_comes() -> None:
    refused, complaints = fuzz_decoders("test/decoders/1", 4000)
    assert not complaints, complaints[0].what + complaints[0].detail
    assert 1000 < refused < 3500


def test_a_block_is_the_same_every_time() -> None:
    assert fuzz_decoders("test/decoders/1", 500) == fuzz_decoders("test/decoders/1", 500)


def broken_target(fault: Any) -> list[Target]:
    def decode(raw: bytes) -> None:
        if b"Wave" in raw:
            fault(raw)

    return [Target("broken", decode, lambda maker: maker.make(CONTROL))]


def raises(raw: bytes) -> None:
    raise IndexError(len(raw))


def burns(raw: bytes) -> None:
    ends = time.thread_time() + 0.06
    while time.thread_time() < ends:
        pass


def hoards(raw: bytes) -> None:
    bytearray(8 << 20)


@pytest.mark.parametrize(
    ("fault", "what"),
    [(raises, "raises IndexError"), (burns, "is slow"), (hoards, "takes much memory")],
)
def test_a_broken_decoder_is_found(fault: Any, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders, "SLOW_S", 0.05)
    monkeypatch.setattr(decoders, "MEASURE_EVERY", 1)
    _, complaints = fuzz_decoders("test/broken", 200, broken_target(fault))
    assert [one.what for one in complaints] == [f"decoder broken {what}"]
    assert b"Wave" in complaints[0].packet


# -- state -----------------------------------------------------------------------------------------


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(campaign.BLOCKS, "decoders", 100)
    path, at_once = tmp_path / "state.json", FuzzState(7)
    Campaign(at_once, decoders=broken_target(raises)).run({"decoders": 400})
    for goal in (150, 400):
        state = load(path, 7)
        Campaign(state, path=path, decoders=broken_target(raises)).run({"decoders": goal})
    state = load(path, 7)
    assert state.packets == at_once.packets == {"decoders": 400}
    assert state.blocks == {"decoders": 5}  # one of them of 50 packets
    assert [one.what for one in state.findings] == ["decoder broken raises IndexError"]
    assert state.findings[0].packets
    Campaign(state, path=path).run({"decoders": 400})
    assert load(path, 7).blocks == {"decoders": 5}


def test_a_state_of_another_seed_or_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    Campaign(FuzzState(7), path=path).run({})
    with pytest.raises(ValueError, match="is of seed 7, not 8"):
        load(path, 8)
    path.write_text("{}")
    with pytest.raises(ValueError, match="is no state of the fuzzer"):
        load(path, 7)
    assert path.read_text() == "{}"


def test_shares_of_the_modes_make_the_whole() -> None:
    assert wanted(1000, ["decoders", "stranger", "member", "client"]) == {
        "decoders": 600, "stranger": 50, "member": 250, "client": 100
    }  # fmt: skip
    assert wanted(100, ["client"]) == {"client": 100}


def sample(packets: int, resident: int, descriptors: int) -> VictimSample:
    return VictimSample("member", 1, packets, [resident], [descriptors], 0.0, 0.0, 0)


def test_growth_of_memory_and_descriptors_is_found() -> None:
    flat = [sample(one, 50 << 20, 20) for one in range(20)]
    assert growth(flat) == []
    leaky = [sample(one, one * GROWTH_BYTES // 10, 20) for one in range(20)]
    assert len(growth(leaky)) == 1
    assert growth(leaky)[0].startswith("memory of victim 0 grew from")
    open_ends = [sample(one, 50 << 20, one * GROWTH_DESCRIPTORS) for one in range(20)]
    assert growth(open_ends)[0].startswith("descriptors of victim 0 grew from")


# -- live nodes ------------------------------------------------------------------------------------


def test_live_nodes_stand_a_little_of_every_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three victims in processes of their own, on both loops; the long run is `make soak`'s."""
    monkeypatch.setattr(campaign, "BLOCKS", {"stranger": 60, "member": 200, "client": 150})
    state = Campaign(FuzzState(3)).run({"stranger": 60, "client": 150, "member": 200})
    assert state.findings == []
    assert {mode: packets >= 60 for mode, packets in state.packets.items()} == {
        "stranger": True, "client": True, "member": True
    }  # fmt: skip
    assert state.connections["stranger"] > 20


@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        ("clumsy", {"KeyError", "LookupError", "packets of one read are slow"}),
        ("mortal", {"a victim died", "given up"}),
        ("stuck", {"a victim hangs", "given up"}),
        ("mute", {"the quiet topic stays silent", "given up"}),
    ],
)
def test_a_broken_node_is_found(
    mutant: str, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "BLOCKS", {"client": 100})
    monkeypatch.setattr(campaign, "MAX_BARREN", 1)
    if mutant == "stuck":
        monkeypatch.setattr(fleet, "ANSWER_S", 1.0)
        monkeypatch.setattr(session, "PATIENCE_S", 1.0)
    command = (sys.executable, MUTANTS, mutant)
    patience_s = 1.0 if mutant == "mute" else campaign.ROUND_TRIP_S
    state = Campaign(
        FuzzState(4), command=command, loops=("asyncio",), round_trip_s=patience_s
    ).run({"client": 100})
    found = [one.what for one in state.findings]
    for part in expected:
        assert any(part in what for what in found), (part, found)
    assert all(one.packets for one in state.findings if "given up" not in one.what)


@pytest.mark.soak
def test_two_hundred_thousand_packets(tmp_path: Path) -> None:
    modes = ["decoders", "stranger", "member", "client"]
    state = Campaign(FuzzState(5), path=tmp_path / "state.json").run(wanted(200_000, modes))
    assert state.findings == []


# -- what it has found -----------------------------------------------------------------------------


class Joined:
    """A membership, as far as `Discovery.settle` looks at it."""

    def __init__(self, receiving: bool) -> None:
        self.receiving = receiving


class Desk:
    """Owner and port of a discovery: memberships, and the patterns that are followed."""

    def __init__(self) -> None:
        self.memberships = {"slow": Joined(False), "quick": Joined(True)}
        self.told: list[object] = []

    def followed(self, key: object, whole: bool) -> None:
        self.told.append((key, whole))


def test_a_topic_that_is_forgotten_while_its_pattern_joins_others() -> None:
    """A light client that subscribed to "#" and went on raised KeyError on every timer."""
    desk: Any = Desk()
    discovery = Discovery(desk, desk, desk)
    discovery.joining["#"] = ["quick", "slow"]
    discovery.settle()
    assert desk.told == []
    del desk.memberships["quick"]  # nothing happened in it, so it was let go
    desk.memberships["slow"].receiving = True
    discovery.settle()
    assert desk.told == [("#", True)]
    assert discovery.joining == {}


def test_the_others_go_on_without_a_mute_leader_before_the_fuzzer_gives_up() -> None:
    """A member that leads and lies by silence: the next in line may hear of the change last."""
    config = scene.config()
    wait, epochs = config.protocol.mute_after, config.epochs
    watch = LeaderWatch(wait, epochs.answer_after, epochs.enter_every)
    assert (watch.bound + wait + 3 * wait // LOOKS) / 1e6 < campaign.ROUND_TRIP_S
