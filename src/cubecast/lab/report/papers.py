"""The papers that the lab repeats, by the letters that stand for them everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterable

PAPERS = {
    "J": "J. P. de Araujo, L. Arantes, E. P. Duarte Jr., L. A. Rodrigues, P. Sens: VCube-PS: A"
    " causal broadcast topic-based publish/subscribe system. JPDC 2018.",
    "S": "The same authors: A publish/subscribe system using causal broadcast over dynamically"
    " built spanning trees. The shorter version of [J].",
    "B": "J. P. de Araujo, L. A. Rodrigues, L. Arantes, E. P. Duarte Jr., P. Sens: VCube-PB: Uma"
    " solução publish/subscribe autonômica e escalável com difusão confiável causal. SBRC 2017.",
    "T": "R. Baldoni, S. Bonomi, M. Platania, L. Querzoni: Dynamic message ordering for topic-based"
    " publish/subscribe systems. MIDLAB Technical Report 9/2011.",
    "N": "M. Matos, P. Felber, R. Oliveira, J. Pereira, E. Rivière: Scaling up publish/subscribe"
    " overlays using interest correlation for link sharing (StaN).",
}


def named_in(sources: Iterable[str]) -> dict[str, str]:
    """The papers whose letters the texts name, in a fixed order."""
    letters = {letter for source in sources for letter in re.findall(r"\[([A-Z])\]", source)}
    return {letter: title for letter, title in PAPERS.items() if letter in letters}
