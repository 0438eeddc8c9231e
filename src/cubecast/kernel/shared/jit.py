"""How the kernel's functions are compiled, and where the compiled code is kept.

numba compiles a function together with all that it calls, so a function with many callers above it
is compiled many times: a function with one caller is `inlined`.  Only the entry point is cached:
numba notices when the file of a cached function changes, but not when a file that it calls into
does.  So the entry point closes over `sources_digest`, which is part of the cache's key, and no
stale code is ever run.

The cache is beside the sources, or in the user's cache directory where that is not writable
(``NUMBA_CACHE_DIR`` moves it).  Where there is no place at all, each process compiles for itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.resources import files
from typing import Any, TypeVar, cast

from cubecast.kernel.errors import KernelError

try:
    from numba import config, njit, types
    from numba.extending import intrinsic
    from numba.np.arrayobj import make_array
except ImportError as error:
    raise KernelError("the kernel needs numba: pip install 'cubecast[lab]'") from error

F = TypeVar("F", bound=Callable[..., object])


def inlined(function: F) -> F:
    """A small step, or one with a single caller: becomes part of whatever calls it."""
    return cast(F, njit(inline="always")(function))


def forced(function: F) -> F:
    """A frequent step with several callers: compiled by itself, then copied into each of them."""
    return cast(F, njit(forceinline=True, error_model="numpy", nogil=True)(function))


def apart(function: F) -> F:
    """A step with several callers, or a rare one: compiled by itself."""
    return cast(F, njit(error_model="numpy", nogil=True)(function))


def entry(function: F) -> F:
    """The entry point: kept on disk where that is possible."""
    try:
        return cast(F, njit(cache=True, error_model="numpy", nogil=True)(function))
    except RuntimeError:  # numba found no directory that it may write to
        return apart(function)


def _memory_of(context: Any, array: Any) -> Any:
    """The address of an array's first element, as a pointer that is indexed like the array.

    Arrays are counted references, and counting costs more than a step of the simulation does.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return make_array(signature.args[0])(context, builder, value=arguments[0]).data

    return types.CPointer(array.dtype)(array), generate


def _itself(array: Any) -> Any:
    return array


_numba: Any = config
memory_of: Callable[[Any], Any] = (
    _itself if _numba.DISABLE_JIT else cast(Any, intrinsic(_memory_of))
)


def sources_digest(package: str) -> str:
    """A digest of every source of a package, and of what all compiled code shares.

    They are read as resources: the executors of a cluster have the package as a zip archive.
    """
    digest = hashlib.sha256()
    for folder in (__package__, package):
        sources = [entry for entry in files(folder).iterdir() if entry.name.endswith(".py")]
        for source in sorted(sources, key=lambda entry: entry.name):
            digest.update(source.read_bytes())
    return digest.hexdigest()
