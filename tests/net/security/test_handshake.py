"""The handshake by itself: which peers get through, and what others learn."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import pytest

from cubecast.net.security import keys
from cubecast.net.security.handshake import WRONG_SECRET, WRONG_TOKEN, Handshake, Refusal
from cubecast.net.security.keys import MIN_SECRET, Keys, Purpose, check_secret, new_secret, salt_of
from cubecast.net.security.noise import Broken, NoiseHandshake
from cubecast.net.wire.hello import Door, Hello, Opening, Ready, decode_greeting, encode_greeting
from cubecast.net.wire.packets import VERSION, WireError

SECRET, OTHER = "a secret of length", "another of length"
HOME, ABROAD = salt_of("home"), salt_of("abroad")


@dataclass
class Side:
    """One side of a handshake."""

    uid: str
    keys: Keys = field(default_factory=lambda: Keys(SECRET))
    purpose: Purpose = "member"
    name: str = ""
    slot: int = 3
    salt: str = HOME

    def learn_salt(self, salt: str) -> None:
        self.salt = salt


def shake(
    dialler: Side, dialled: Side, peer: str = "", heard: list[bytes] | None = None
) -> tuple[Handshake, Handshake]:
    """Carry every greeting over; `heard` is what a listener gets."""
    ends = Handshake(dialler, True, peer), Handshake(dialled, False)
    packet: bytes | None = ends[0].begin()
    turn = 1
    while packet is not None:
        if heard is not None:
            heard.append(packet)
        packet = ends[turn].take(decode_greeting(packet), packet)
        turn = 1 - turn
    return ends


def carry_on(dialler: Handshake, dialled: Handshake, packet: bytes) -> None:
    """Carry greetings over from this one to the dialler's introduction."""
    for end in (dialled, dialler, dialled):
        answer = end.take(decode_greeting(packet), packet)
        assert answer is not None
        packet = answer


def same_keys(ends: tuple[Handshake, Handshake]) -> bool:
    """Whether each end opens what the other seals."""
    first, second = ends[0].ciphers(), ends[1].ciphers()
    assert first is not None
    assert second is not None
    return first[1].open(second[0].seal(b"x")) == second[1].open(first[0].seal(b"x")) == b"x"


def test_two_members_know_each_other_and_a_listener_learns_neither_name() -> None:
    heard: list[bytes] = []
    ends = shake(Side("dialler-uid"), Side("dialled-uid", slot=5), "dialled-uid", heard)
    assert all(end.complete for end in ends)
    assert same_keys(ends)
    introductions = [end.introduction for end in ends]
    assert [one and (one.uid, one.slot) for one in introductions] == [
        ("dialled-uid", 5),
        ("dialler-uid", 3),
    ]
    said = b"".join(heard)
    for secret in (b"dialler-uid", b"dialled-uid", b"home", SECRET.encode()):
        assert secret not in said


def test_without_a_secret_nothing_is_sealed() -> None:
    ends = shake(Side("a", Keys()), Side("b", Keys()))
    assert all(end.complete for end in ends)
    assert [end.ciphers() for end in ends] == [None, None]


@pytest.mark.parametrize(
    ("dialler", "dialled", "reason"),
    [
        (Side("a", Keys(OTHER)), Side("b"), WRONG_SECRET),
        (Side("a", Keys()), Side("b"), "this cluster has one"),
        (Side("a"), Side("b", Keys()), "this cluster has none"),
        (Side("a", salt=ABROAD), Side("b"), "another cluster"),
        (Side("a", Keys(), salt=ABROAD), Side("b", Keys()), "another cluster"),
        (Side("a"), Side("b", salt=""), "in no cluster yet"),
        (Side("same"), Side("same"), "the node itself"),
        (Side("a", purpose="client"), Side("b", Keys(SECRET, OTHER)), WRONG_SECRET),
        (Side("a", Keys(OTHER)), Side("b", Keys(SECRET, OTHER)), WRONG_SECRET),
        (
            Side("a", Keys(tokens={"ann": SECRET}), "client", "ann"),
            Side("b", Keys(SECRET, tokens={"ann": OTHER})),
            WRONG_TOKEN,
        ),
        (
            Side("a", Keys(tokens={"ann": SECRET}), "client", "ann"),
            Side("b", Keys(SECRET)),
            WRONG_TOKEN,
        ),
    ],
)
def test_a_wrong_side_is_refused_with_a_reason(dialler: Side, dialled: Side, reason: str) -> None:
    with pytest.raises(Refusal, match=reason):
        shake(dialler, dialled)


def test_a_handshake_with_another_node_than_the_one_meant_is_refused() -> None:
    with pytest.raises(Refusal, match="another node is meant"):
        shake(Side("a"), Side("b"), "c")
    shake(Side("a"), Side("b"), "b")


def test_one_that_answers_although_it_is_not_meant_is_given_up() -> None:
    """It knows the secret and lies about being meant: what it says of itself counts."""
    dialler = Handshake(Side("a"), True, "c")
    liar = Handshake(Side("b"), False)
    hello = decode_greeting(dialler.begin())
    assert isinstance(hello, Hello)
    forged = Hello(hello.version, hello.nonce, sealed=True, salt=hello.salt)
    door = liar.take(forged, encode_greeting(hello))  # the bytes that the dialler said
    assert door is not None
    opening = dialler.take(decode_greeting(door), door)
    assert opening is not None
    answer = liar.take(decode_greeting(opening), opening)
    assert answer is not None
    with pytest.raises(Refusal, match="another node answers"):
        dialler.take(decode_greeting(answer), answer)


def test_a_newcomer_learns_the_salt_from_who_proved_the_secret_alone() -> None:
    newcomer = Side("a", salt="")
    shake(newcomer, Side("b"))
    assert newcomer.salt == HOME
    newcomer = Side("a", Keys(OTHER), salt="")
    with pytest.raises(Refusal):
        shake(newcomer, Side("b"))
    assert newcomer.salt == ""


@pytest.mark.parametrize("field_name", ["purpose", "salt", "peer", "nonce", "sealed", "name"])
def test_a_hello_that_is_changed_on_the_way_is_seen(field_name: str) -> None:
    changes: dict[str, object] = {
        "purpose": "client",
        "salt": "",
        "peer": "",
        "nonce": "0" * 32,
        "sealed": False,
        "name": "ann",
    }
    dialler, dialled = Handshake(Side("a"), True, "b"), Handshake(Side("b"), False)
    hello = decode_greeting(dialler.begin())
    assert isinstance(hello, Hello)
    fields = {name: getattr(hello, name) for name in hello.__struct_fields__}
    changed = Hello(**{**fields, field_name: changes[field_name]})
    with pytest.raises((Refusal, WireError)):
        carry_on(dialler, dialled, encode_greeting(changed))


def test_an_opening_of_a_client_is_none_of_a_member() -> None:
    """One secret for both: still a relay cannot make a member of a client."""
    client, node = Handshake(Side("a", purpose="client"), True), Handshake(Side("b"), False)
    client.begin()
    hello = Hello(VERSION, "0" * 32, purpose="member", sealed=True)
    door = node.take(hello, encode_greeting(hello))
    assert door is not None
    opening = client.take(decode_greeting(door), door)
    assert opening is not None
    with pytest.raises(Refusal, match=WRONG_SECRET):
        node.take(decode_greeting(opening), opening)


def test_an_opening_that_was_recorded_opens_nothing_later() -> None:
    heard: list[bytes] = []
    first = shake(Side("a"), Side("b"), "", heard)
    again = Handshake(Side("b"), False)
    door = again.take(decode_greeting(heard[0]), heard[0])
    assert door is not None
    with pytest.raises(Refusal, match=WRONG_SECRET):  # the new door has another nonce
        again.take(decode_greeting(heard[2]), heard[2])
    assert same_keys(first)


def test_a_token_makes_a_client_of_that_name_and_no_member() -> None:
    node = Side("b", Keys(SECRET, tokens={"ann": OTHER}))
    ann = Side("a", Keys(tokens={"ann": OTHER}), "client", "ann", salt="")
    ends = shake(ann, node)
    assert [end.name for end in ends] == ["ann", "ann"]
    assert same_keys(ends)
    with pytest.raises(WireError, match="a token is a client's"):
        shake(Side("a", Keys(OTHER, tokens={"ann": OTHER}), "member", "ann"), node)


@pytest.mark.parametrize("message", [Opening(b""), Door("0" * 32, "0" * 32), Ready()])
def test_greetings_out_of_turn(message: Opening | Door | Ready) -> None:
    end = Handshake(Side("b"), False)
    with pytest.raises(WireError, match="out of turn"):
        end.take(message, encode_greeting(message))


# -- what an attacker can do all the same ----------------------------------------------------------


def opens(secret: str, purpose: Purpose, salt: str, prologue: bytes, opening: Opening) -> bool:
    """Whether a guess of the secret opens what a dialler said first."""
    noise = NoiseHandshake(False, Keys(secret).key(purpose, "", salt), prologue)
    try:
        noise.read(opening.data)
    except Broken:
        return False
    return True


def test_a_listener_can_try_guesses_of_the_secret_on_its_own_machine() -> None:
    """One handshake is enough, and each guess has to be stretched."""
    heard: list[bytes] = []
    shake(Side("a"), Side("b"), "", heard)
    door, opening = decode_greeting(heard[1]), decode_greeting(heard[2])
    assert isinstance(door, Door)
    assert isinstance(opening, Opening)
    keys._stretched.cache_clear()
    guesses = [OTHER, SECRET]
    said = [opens(guess, "member", door.salt, heard[0] + heard[1], opening) for guess in guesses]
    assert said == [False, True]
    assert keys._stretched.cache_info().misses == len(guesses)
    parameters = keys.SCRYPT_COST, keys.SCRYPT_BLOCKS
    assert 128 * parameters[0] * parameters[1] == 32 * 1024 * 1024, "bytes for one guess"


@pytest.mark.parametrize("purpose", ["member", "client"])
def test_an_impostor_that_is_dialled_first_can_try_guesses_that_it_stretched_once(
    purpose: Purpose,
) -> None:
    """It chooses the salt for who is in no cluster yet; a member asks for that of its own."""
    keys._stretched.cache_clear()
    for uid in ("first", "second"):
        dialler = Handshake(Side(uid, purpose=purpose, salt=""), True)
        hello, door = dialler.begin(), encode_greeting(Door(ABROAD, "0" * 32))
        packet = dialler.take(decode_greeting(door), door)
        assert packet is not None
        opening = decode_greeting(packet)
        assert isinstance(opening, Opening)
        said = [opens(guess, purpose, ABROAD, hello + door, opening) for guess in (OTHER, SECRET)]
        assert said == [False, True]
    assert keys._stretched.cache_info().misses == 2, "the guesses, of which one is the secret"
    member = Handshake(Side("third"), True)
    member.begin()
    with pytest.raises(Refusal, match="another cluster"):
        member.take(decode_greeting(door), door)


def test_a_recorded_conversation_stays_closed_though_the_secret_becomes_known() -> None:
    """All but the dialler's uid and slot, which the first message says under the secret alone."""
    heard: list[bytes] = []
    shake(Side("dialler-uid"), Side("dialled-uid"), "", heard)
    said = [decode_greeting(packet) for packet in heard]
    assert isinstance(said[2], Opening)
    assert isinstance(said[3], Opening)
    key, prologue = Keys(SECRET).key("member", "", HOME), heard[0] + heard[1]
    assert b"dialler-uid" in NoiseHandshake(False, key, prologue).read(said[2].data)
    spy = NoiseHandshake(True, key, prologue)
    spy.write(b"with a key of its own: that of the dialler is gone")
    with pytest.raises(Broken):
        spy.read(said[3].data)


# -- keys ------------------------------------------------------------------------------------------


def test_keys_differ_by_purpose_cluster_and_secret() -> None:
    made = {
        Keys(secret).key(purpose, "", salt)
        for secret in (SECRET, OTHER)
        for purpose in ("member", "client")
        for salt in (HOME, ABROAD)
    }
    assert len(made) == 8
    assert Keys(SECRET, OTHER).key("client", "", HOME) == Keys(OTHER).key("client", "", HOME)
    assert Keys(SECRET, OTHER).key("member", "", HOME) == Keys(SECRET).key("member", "", HOME)


def test_a_guess_of_a_secret_costs_as_much_as_the_page_on_security_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """About 0.1 s and 32 MiB: 128 x N x r bytes.  Lower numbers make each guess cheaper."""
    asked: list[dict[str, Any]] = []

    def stretched(secret: bytes, **costs: Any) -> bytes:
        asked.append({**costs, "secret": secret})
        return bytes(costs["dklen"])

    monkeypatch.setattr(hashlib, "scrypt", stretched)
    secret = new_secret()  # one that is in no cache
    Keys(secret).key("member", "", HOME)
    assert len(asked) == 1
    memory = asked[0].pop("maxmem")
    salt = bytes.fromhex(HOME)
    assert asked == [
        {"secret": secret.encode(), "salt": salt, "n": 32_768, "r": 8, "p": 1, "dklen": 32}
    ]
    assert memory >= 128 * 32_768 * 8 == 32 * 1024 * 1024
    assert len(salt) == 16


def test_a_secret_is_stretched_once_for_each_cluster() -> None:
    keys._stretched.cache_clear()
    for _ in range(3):
        Keys(SECRET).key("member", "", HOME)
        Keys(SECRET).key("client", "", HOME)
    assert keys._stretched.cache_info().misses == 1


@pytest.mark.parametrize("secret", ["x", "x" * (MIN_SECRET - 1), "\udcff" * 20])
def test_a_secret_that_is_too_short_or_no_text(secret: str) -> None:
    with pytest.raises(ValueError, match="secret"):
        check_secret("secret", secret)


def test_new_secrets_will_do() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    for secret in made:
        check_secret("secret", secret)
    check_secret("secret", "")
