"""A process that only measures, beside the worker that Spark started.

A cell may end its process (out of memory, a crash in compiled code).  Spark's report of that looks
like that of a worker, an executor or a machine lost for other reasons, which are not the cell's
fault.  So a worker has a child that measures: if the child dies while the worker lives, the cell
caused it; if the worker dies, Spark runs the cell again, as often as it runs any task again.

1. One child per worker, which serves all its cells: compiled and loaded code stays.
2. The child ends with its worker, whatever ended that: it watches its standard input.
3. The output of a measurement goes to the worker's own output, not between the two.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any


class ProcessDiedError(Exception):
    """The process that measured a cell has died; the message says how."""


class Apart:
    """A child process, and calls that it carries out."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._connection = Connection(ours.detach())

    def call(self, pickled: bytes, *arguments: Any) -> Any:
        """Call a pickled function there; `ProcessDiedError` if the child died."""
        try:
            self._connection.send((sys.path, pickled, arguments))
            returned, value = self._connection.recv()
        except (EOFError, OSError):
            raise ProcessDiedError(self._ended()) from None
        if returned:
            return value
        raise value

    def _ended(self) -> str:
        self._connection.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait()
        if code >= 0:
            return f"ended with exit code {code}"
        hint = " (out of memory?)" if code == -signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-code).name}{hint}"


def main() -> None:
    """Run as the child: serve calls over the connection until it or the worker is gone."""
    connection = Connection(int(sys.argv[1]))
    threading.Thread(target=_end_with_the_worker, daemon=True).start()
    functions: dict[bytes, Any] = {}
    while True:
        try:
            paths, pickled, arguments = connection.recv()
        except EOFError:
            return
        sys.path[:] = paths
        if pickled not in functions:
            functions = {pickled: pickle.loads(pickled)}
        connection.send(_called(functions[pickled], arguments))


def _called(function: Any, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    from cubecast.spark.errors import LabError

    try:
        return True, function(*arguments)
    except LabError as error:
        return False, error


def _end_with_the_worker() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
