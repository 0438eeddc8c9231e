"""The errors of the kernel."""

from __future__ import annotations

from cubecast.errors import CubecastError


class KernelError(CubecastError, ValueError):
    """The kernel cannot run this; the text says why, or what to do instead."""
