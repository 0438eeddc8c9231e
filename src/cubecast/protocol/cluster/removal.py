"""Proofs of removal: only a member itself, or the process in its place, can have it removed.

Members pass requests on, copies of requests come late, and any member may lie.  So a request that
costs a member its place counts only with a proof.

1. *To depart.*  The leader asks the leaver, at the leaver's address, with a nonce (`Doubt`); the
   leaver repeats its request with the nonce.  A node that did not get the question cannot answer.
2. *To enter at the address of a member* that is not suspected.  The leader asks at that address
   whether the newcomer is there.  One process listens at an address: if the newcomer answers, the
   member is gone, however recently; if the member is alive, the newcomer is not there, and its
   request is a late copy.  A process that was restarted at once thus waits for one round trip.

A nonce is a keyed hash of the view, the uid and the address, so nothing is kept of a question.  An
answer is good in the view in which it was asked for, and for the address that was asked.
"""

from __future__ import annotations

from hashlib import blake2b

from cubecast.protocol.cluster.views import Doubt, View

NONCE_BYTES = 16


class RemovalProofs:
    """The questions of one node, and the check of answers; `key` is the node's secret."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key

    def about(self, uid: str, view: View, address: str = "") -> Doubt:
        """The question to `uid`, in this view; with an address: whether it is there."""
        number = f"{view.id.epoch}/{view.id.ballot.round}/{view.id.ballot.slot}"
        said, key = f"{number}/{uid}/{address}".encode(), self._key.encode()
        return Doubt(uid, blake2b(said, key=key, digest_size=NONCE_BYTES).hexdigest())

    def settled(self, uid: str, proof: str, view: View, address: str = "") -> bool:
        """Whether `proof` answers that question."""
        return proof == self.about(uid, view, address).nonce

    def drawn(self, number: int) -> int:
        """A number that no peer can foresee, and that is the same in each run of a simulation."""
        said, key = f"lot {number}".encode(), self._key.encode()
        return int.from_bytes(blake2b(said, key=key, digest_size=8).digest())
