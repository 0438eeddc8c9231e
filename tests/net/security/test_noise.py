"""The handshake of Noise and what it seals: published vectors, and what must not open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from cubecast.net.security import noise
from cubecast.net.security.noise import PROTOCOL, TAG_BYTES, Broken, CipherState, NoiseHandshake

VECTORS = json.loads((Path(__file__).parent / "noise_vectors.json").read_text())["vectors"]
PSK = bytes(range(32))


def side(vector: dict[str, Any], who: str) -> NoiseHandshake:
    ephemeral = X25519PrivateKey.from_private_bytes(bytes.fromhex(vector[f"{who}_ephemeral"]))
    return NoiseHandshake(
        who == "init",
        bytes.fromhex(vector[f"{who}_psks"][0]),
        bytes.fromhex(vector[f"{who}_prologue"]),
        ephemeral=ephemeral,
    )


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["protocol_name"])
def test_the_published_vectors(vector: dict[str, Any]) -> None:
    assert vector["protocol_name"].encode() == PROTOCOL
    ends = [side(vector, "init"), side(vector, "resp")]
    messages = vector["messages"]
    for number in (0, 1):
        payload = bytes.fromhex(messages[number]["payload"])
        said = ends[number].write(payload)
        assert said.hex() == messages[number]["ciphertext"]
        assert ends[1 - number].read(said) == payload
    assert ends[0].hash == ends[1].hash == bytes.fromhex(vector["handshake_hash"])
    ciphers = [end.split() for end in ends]
    for number, message in enumerate(messages[2:]):
        ours, theirs = ciphers[number % 2][0], ciphers[1 - number % 2][1]
        payload = bytes.fromhex(message["payload"])
        sealed = ours.seal(payload)
        assert sealed.hex() == message["ciphertext"]
        assert theirs.open(sealed) == payload


def test_there_is_a_vector() -> None:
    assert VECTORS


def shaken(psk: bytes = PSK, prologue: bytes = b"p") -> list[tuple[CipherState, CipherState]]:
    ends = NoiseHandshake(True, PSK, b"p"), NoiseHandshake(False, psk, prologue)
    assert ends[1].read(ends[0].write(b"one")) == b"one"
    assert ends[0].read(ends[1].write(b"two")) == b"two"
    return [end.split() for end in ends]


@pytest.mark.parametrize(("psk", "prologue"), [(bytes(32), b"p"), (PSK, b"q"), (PSK, b"")])
def test_another_key_or_another_prologue_opens_nothing(psk: bytes, prologue: bytes) -> None:
    with pytest.raises(Broken):
        shaken(psk, prologue)


def test_every_flipped_bit_of_the_handshake_is_seen() -> None:
    dialler = NoiseHandshake(True, PSK, b"")
    first = dialler.write(b"who I am")
    for position in range(8 * len(first)):
        changed = bytearray(first)
        changed[position // 8] ^= 1 << position % 8
        with pytest.raises(Broken):
            NoiseHandshake(False, PSK, b"").read(bytes(changed))


@pytest.mark.parametrize("point", [bytes(32), (1).to_bytes(32, "little")])
def test_a_point_of_low_order_is_no_key(point: bytes) -> None:
    dialler = NoiseHandshake(True, PSK, b"")
    dialler.write(b"")
    with pytest.raises(Broken, match="ephemeral key"):
        dialler.read(point + bytes(TAG_BYTES))


def test_a_sealed_packet_repeated_out_of_turn_or_reflected_does_not_open() -> None:
    (mine, _), (back, theirs) = shaken()
    one, two, three = mine.seal(b"1"), mine.seal(b"2"), mine.seal(b"3")
    assert theirs.open(one) == b"1"
    for wrong in (one, three, b"", two[:-1], back.seal(b"2")):
        with pytest.raises(Broken):
            theirs.open(wrong)
    assert theirs.open(two) == b"2"
    assert theirs.open(three) == b"3"


@pytest.mark.parametrize("limit", ["REKEY_BYTES", "REKEY_MESSAGES"])
def test_both_ends_take_a_new_key_at_the_same_message(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise, limit, 10)
    (mine, _), (_, theirs) = shaken()
    for number in range(100):
        sealed = mine.seal(b"%04d" % number)
        assert theirs.open(sealed) == b"%04d" % number
    assert mine._since == theirs._since > 0
