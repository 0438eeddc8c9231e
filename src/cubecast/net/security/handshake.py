"""The handshake of a connection, without the connection: its messages, and what they prove.

    dialler                                     dialled
    Hello: version, purpose, which cluster      Door: the salt of its cluster
      and which node it means (hashed)
    Opening: who it is                          Opening: who it is
    Ready: the first that is sealed

With a secret both `Opening` are messages of Noise (`cubecast.net.security.noise`), and everything
after them is sealed; without one they are plain.  The prologue is the very bytes of `Hello` and
`Door`.

Invariants:

1. A handshake relayed to a node that was not meant is refused.  An attacker that relays it to the
   node that was meant can read, change, add, leave out or repeat nothing.
2. A client's handshake is not valid as a member's: the purpose is in the prologue, and in the key.
3. Two clusters with one secret do not meet: their salts differ.
4. Before the other side has proved the secret it learns a version, a purpose, a client's name and
   hashes of random numbers.
5. The dialled side trusts the dialler from its first sealed packet on: an `Opening` may have been
   recorded.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

from cubecast.net.security.keys import Keys, Purpose
from cubecast.net.security.noise import Broken, CipherState, NoiseHandshake
from cubecast.net.wire.hello import (
    NOBODY,
    Door,
    Greeting,
    Hello,
    Introduction,
    Opening,
    Ready,
    decode_introduction,
    encode_greeting,
    encode_introduction,
    new_nonce,
)
from cubecast.net.wire.packets import VERSION, WireError
from cubecast.protocol.port import NodeId

WRONG_SECRET = "the cluster secret is not the same"
WRONG_TOKEN = "there is no client of this name with this token"


NO_CLUSTER_YET = "the node is in no cluster yet"


class Refusal(Exception):
    """Why a connection is not taken; `ordinary` if honest nodes come to this point as well."""

    def __init__(self, reason: str, *, ordinary: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.ordinary = ordinary


class Party(Protocol):
    """A node or client that shakes hands."""

    keys: Keys
    purpose: Purpose
    """What it dials for."""
    name: str
    """The name of a client that has a token."""

    @property
    def uid(self) -> str: ...
    @property
    def slot(self) -> NodeId: ...
    @property
    def salt(self) -> str:
        """The salt of its cluster, or of the one it is about to join; empty: it has none."""

    def learn_salt(self, salt: str) -> None:
        """A node of that cluster has proved that it knows our secret."""


class Handshake:
    """One side of one handshake.

    `take` is called with each greeting of the other side and returns the answer, if there is one.
    It raises `Refusal` if the other side is to be told why, and `WireError` for invalid greetings.
    """

    def __init__(self, party: Party, dialled: bool, peer: str = "") -> None:
        """`peer` is the uid of the node that is meant, if that is known."""
        self._party = party
        self._dialled = dialled
        self._peer = peer
        self._uid = ""  # ours, as the other side is told it
        self._hello: Hello | None = None
        self._salt = ""
        self._prologue = b""
        self._noise: NoiseHandshake | None = None
        self.purpose: Purpose = party.purpose if dialled else "member"
        self.name = party.name if dialled else ""
        self.introduction: Introduction | None = None
        """The other side's introduction, once it has come."""
        self.complete = False
        """Whether both sides have introduced themselves."""

    @property
    def introduced(self) -> bool:
        """Whether the other side was told, or will be, which life of ours this is."""
        return bool(self._uid)

    # -- what is said ------------------------------------------------------------------------------

    def begin(self) -> bytes:
        """The dialler's first packet."""
        party, nonce = self._party, new_nonce()
        self._uid = party.uid
        sealed = party.keys.sealed(self.purpose, self.name)
        peer = tag(nonce, self._peer) if self._peer else ""
        self._hello = Hello(
            VERSION, nonce=nonce, purpose=self.purpose, sealed=sealed, salt=party.salt, peer=peer,
            name=self.name,
        )  # fmt: skip
        packet = encode_greeting(self._hello)
        self._prologue = packet
        return packet

    def take(self, message: Greeting, raw: bytes) -> bytes | None:
        """The answer to a greeting, which came in the packet `raw`."""
        match message:
            case Hello() if not self._dialled and self._hello is None:
                return self._on_hello(message, raw)
            case Door() if self._dialled and not self._salt:
                return self._on_door(message, raw)
            case Opening() if self._salt and self.introduction is None:
                return self._on_opening(message)
            case _:
                raise WireError(f"{type(message).__name__} out of turn")

    def ciphers(self) -> tuple[CipherState, CipherState] | None:
        """What seals our packets and opens theirs; None: they are plain."""
        return None if self._noise is None else self._noise.split()

    def _on_hello(self, hello: Hello, raw: bytes) -> bytes:
        party = self._party
        if hello.version != VERSION:
            raise Refusal(f"version {hello.version} is not spoken here, only {VERSION}")
        if hello.name and hello.purpose != "client":
            raise WireError("a token is a client's")
        self._hello = hello
        self._uid = party.uid
        self.purpose, self.name = hello.purpose, hello.name
        if not party.salt:
            raise Refusal(NO_CLUSTER_YET, ordinary=True)
        if hello.salt and hello.salt != party.salt:
            raise Refusal("this is a node of another cluster", ordinary=True)
        if hello.peer and hello.peer != tag(hello.nonce, self._uid):
            raise Refusal("another node is meant, or another life of this one", ordinary=True)
        wanted = party.keys.sealed(self.purpose, self.name)
        if wanted != hello.sealed:
            what = "this cluster has one" if wanted else "this cluster has none"
            raise Refusal(f"{WRONG_SECRET}: {what}")
        self._salt = party.salt
        door = encode_greeting(Door(self._salt, new_nonce()))
        self._prologue = raw + door
        if hello.sealed:
            self._noise = self._new_noise()
        return door

    def _on_door(self, door: Door, raw: bytes) -> bytes:
        hello = self._hello
        assert hello is not None
        if hello.salt and door.salt != hello.salt:
            raise Refusal("this is a node of another cluster", ordinary=True)
        self._salt = door.salt
        self._prologue += raw
        if hello.sealed:
            self._noise = self._new_noise()
        return self._open_up()

    def _on_opening(self, opening: Opening) -> bytes | None:
        introduction = decode_introduction(self._read(opening.data))
        if introduction.uid == self._uid:
            raise Refusal("this is the node itself")
        if self._peer and introduction.uid != self._peer:
            raise Refusal("another node answers than the one that was meant", ordinary=True)
        self.introduction = introduction
        self.complete = True
        if self._dialled:
            self._party.learn_salt(self._salt)
            return None
        return self._open_up()

    def _open_up(self) -> bytes:
        party = self._party
        slot = party.slot if self.purpose == "member" or not self._dialled else NOBODY
        data = encode_introduction(Introduction(self._uid, slot))
        return encode_greeting(Opening(data if self._noise is None else self._noise.write(data)))

    # -- keys --------------------------------------------------------------------------------------

    def _new_noise(self) -> NoiseHandshake:
        key = self._party.keys.key(self.purpose, self.name, self._salt)
        return NoiseHandshake(self._dialled, key, self._prologue)

    def _read(self, data: bytes) -> bytes:
        if self._noise is None:
            return data
        try:
            return self._noise.read(data)
        except Broken:
            raise Refusal(WRONG_TOKEN if self.name else WRONG_SECRET) from None


READY = encode_greeting(Ready())
"""The dialler's first sealed packet."""


def tag(nonce: str, uid: str) -> str:
    """A hash that stands for a uid without revealing it."""
    return hashlib.sha256(f"cubecast peer {nonce} {uid}".encode()).hexdigest()[:32]
