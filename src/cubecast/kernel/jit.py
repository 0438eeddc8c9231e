"""How the kernel's functions are compiled, and where the compiled code is kept.

Everything is inlined into one entry point, and only that one is cached: numba notices when the
file of a cached function changes, but not when a file that it calls into does.  So the entry point
closes over `sources_digest()`, which is part of the cache's key, and no stale code is ever run.

The cache is beside the sources, or in the user's cache directory where that is not writable
(``NUMBA_CACHE_DIR`` moves it).  Where there is no place at all, each process compiles for itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from cubecast.kernel.errors import KernelError

try:
    from numba import njit
except ImportError as error:
    raise KernelError("the kernel needs numba: pip install 'cubecast[lab]'") from error

F = TypeVar("F", bound=Callable[..., object])


def inlined(function: F) -> F:
    """A small step on the hot path: becomes part of whatever calls it."""
    return cast(F, njit(forceinline=True, error_model="numpy", nogil=True)(function))


def apart(function: F) -> F:
    """A rare step: a call of its own, which keeps the hot path short."""
    return cast(F, njit(error_model="numpy", nogil=True)(function))


def entry(function: F) -> F:
    """The entry point: kept on disk where that is possible."""
    options = {"error_model": "numpy", "nogil": True}
    try:
        return cast(F, njit(cache=True, **options)(function))
    except RuntimeError:  # numba found no directory that it may write to
        return cast(F, njit(**options)(function))


def sources_digest() -> str:
    """A digest of every file of this package."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
