"""A fuzzer of the wire that holds the keys: decoders, strangers, members that lie, clients.

`Campaign` runs blocks of packets and keeps a state file; ``tools/fuzz.py`` is its command, and
docs/testing.md says what it does.
"""

from cubecast.testing.fuzz.campaign import Campaign
from cubecast.testing.fuzz.decoders import Complaint, Target, fuzz_decoders
from cubecast.testing.fuzz.grammar import Grammar, Lore
from cubecast.testing.fuzz.mutation import Mutator
from cubecast.testing.fuzz.packets import Maker
from cubecast.testing.fuzz.state import MODES, FuzzFinding, FuzzState, growth, load, wanted

__all__ = [
    "MODES",
    "Campaign",
    "Complaint",
    "FuzzFinding",
    "FuzzState",
    "Grammar",
    "Lore",
    "Maker",
    "Mutator",
    "Target",
    "fuzz_decoders",
    "growth",
    "load",
    "wanted",
]
