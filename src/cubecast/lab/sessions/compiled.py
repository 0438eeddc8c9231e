"""How the steps are compiled, and when compiled code is kept.

Only the entry points are kept on disk.  Numba notices when the file of such a function changes, not
when a file does that it calls into; so they close over a digest of this package, which is part of
the key under which they are kept.  `NUMBA_CACHE_DIR` says where; if there is no place for it, every
process compiles for itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., object])


def step(function: F) -> F:
    """A rare part of an entry point: a call of its own."""
    return cast(F, njit(error_model="numpy", nogil=True)(function))


def inlined(function: F) -> F:
    """A frequent part: it becomes part of whatever calls it, as a call costs more than it does."""
    return cast(F, njit(forceinline=True, error_model="numpy", nogil=True)(function))


def entry(function: F) -> F:
    """What Python calls."""
    try:
        return cast(F, njit(cache=True, error_model="numpy", nogil=True)(function))
    except RuntimeError:  # numba found no directory that it may write to
        return step(function)


def sources_digest() -> str:
    """A digest of every file of this package."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
