"""Attackers that hold the members' key and are no members: invented views, requests for others."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from cubecast.net.wire.packets import PREFIX, VIEW, encode_control
from cubecast.net.wire.views import decode_view, encode_forward, encode_view
from cubecast.protocol.cluster.views import (
    Ballot,
    Beacon,
    Depart,
    Enter,
    Install,
    Prepare,
    Stuck,
    View,
    ViewId,
    Who,
)
from cubecast.protocol.messages import ParcelAck
from siege.grounds import Attack, Grounds
from siege.raw import Raw, dialled

CROWD = 300
"""Members of an invented view: more than any real one has here."""
ANSWER_S = 2.0
LISTEN_S = 1.0


async def _entered(grounds: Grounds, raw: Raw) -> tuple[str, View | None]:
    """Shake hands with a made-up uid; that uid, and the view if the node tells it."""
    uid = f"{grounds.random.getrandbits(128):032x}"
    await raw.authenticate(grounds.terms.secret, uid)
    raw.write(encode_view(Prepare(Ballot(1, 0), ViewId(0, Ballot(0, 0)), 1)))
    with suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            while True:
                kind, packet = await raw.answer()
                if kind == VIEW and isinstance(said := decode_view(packet), Beacon):
                    return uid, said.view
    return uid, None


async def _say(grounds: Grounds, kind: str) -> None:
    async with dialled(grounds.victim()) as raw:
        uid, view = await _entered(grounds, raw)
        if view is None:
            grounds.counts["outsiders that were told no view"] += 1
            return
        for packet in _lies(grounds, kind, uid, view):
            raw.write(packet)
        with suppress(TimeoutError):
            await asyncio.wait_for(raw.ended(), LISTEN_S)


def _lies(grounds: Grounds, kind: str, uid: str, view: View) -> list[bytes]:
    random = grounds.random
    mine = Who(uid, "127.0.0.1:9", 1)
    victim = random.choice(list(view.members.values()))
    later = ViewId(view.epoch + random.choice([1, 5]), Ballot(9, 0))
    match kind:
        case "beacon":
            invented = {
                slot: Who(f"{uid[:16]}{slot:016x}", f"127.0.0.1:{1 + slot}", 1)
                for slot in range(1, CROWD)
            }
            crowd = View(later, {0: mine, **invented}, view.cluster)
            return [encode_view(Beacon(uid, crowd))]
        case "install":
            alone = View(later, {0: mine}, view.cluster)
            without = {slot: who for slot, who in view.members.items() if who != victim}
            smaller = View(later, without or {0: mine}, view.cluster)
            return [
                encode_view(Install(Ballot(9, 0), view.id, alone, {}, {})),
                encode_view(Install(Ballot(9, 0), view.id, smaller, {}, {})),
                encode_view(Install(Ballot(1 << 61, 0), view.id, smaller, {}, {})),
            ]
        case "enter":
            return [
                encode_view(Enter(Who(uid, victim.address, 1), -1)),
                encode_view(Enter(Who(victim.uid, "127.0.0.1:9", 2), -1)),
                encode_view(Enter(victim.next_life(), -1, cluster=view.cluster)),
            ]
        case "depart":
            return [encode_view(Depart(victim.uid)), encode_view(Stuck(view.id))]
    return [
        encode_control(ParcelAck(random.getrandbits(60))),
        encode_forward(0, 1, view.epoch & (1 << 63) - 1, encode_control(ParcelAck(1))),
        PREFIX.pack(1 + 64, random.randrange(12)) + random.randbytes(64),
    ]


async def invented_beacon(grounds: Grounds) -> None:
    """A view of 300 that outranks the real one."""
    await _say(grounds, "beacon")


async def invented_install(grounds: Grounds) -> None:
    """Views without the node, or without another one."""
    await _say(grounds, "install")


async def enter_for_another(grounds: Grounds) -> None:
    """Ask for a place at another's address, or in another's name."""
    await _say(grounds, "enter")


async def depart_for_another(grounds: Grounds) -> None:
    """Ask for the departure of another member."""
    await _say(grounds, "depart")


async def outsider_garbage(grounds: Grounds) -> None:
    """Packets that only members send, and invalid packets."""
    await _say(grounds, "garbage")


async def empty_seat(grounds: Grounds) -> None:
    """Ask for a place honestly and never take it."""
    async with dialled(grounds.victim()) as raw:
        uid = f"{grounds.random.getrandbits(128):032x}"
        await raw.authenticate(grounds.terms.secret, uid)
        raw.write(encode_view(Enter(Who(uid, "127.0.0.1:9", 1), -1)))
        with suppress(TimeoutError, ConnectionError):
            await asyncio.wait_for(raw.ended(), LISTEN_S)


ATTACKS: dict[str, tuple[float, Attack]] = {
    "invented beacon": (6.0, invented_beacon),
    "invented install": (6.0, invented_install),
    "enter for another": (6.0, enter_for_another),
    "depart for another": (6.0, depart_for_another),
    "outsider garbage": (2.0, outsider_garbage),
    "empty seat": (15.0, empty_seat),
}
"""By name: the mean pause in seconds before each, and the attack."""
