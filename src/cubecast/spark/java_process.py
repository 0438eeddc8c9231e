"""The Java process of a session: owned by us from its start, and ended with us.

1. No Ctrl-C takes effect between the start of the process and our record of it (`_started`): so
   every started process is ended.
2. It has a process group of its own.  Ctrl-C in a terminal reaches only us, and one signal reaches
   Java with the shell scripts before it and the executors of ``local-cluster`` behind it.
3. It ends when its standard input does.  So it ends with us, also if we are killed.

Spark starts Java in `pyspark.java_gateway.launch_gateway`, and gives the process to its caller only
when Java answers.  Interrupted before, it removes the directory in which Java wants to leave its
port, and Java then stays for ever.  Therefore we start Java as it does, and let Spark connect to it
as to a Java that was there before (PYSPARK_GATEWAY_PORT).
"""

from __future__ import annotations

import atexit
import os
import shlex
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cubecast.spark.errors import SparkFailedError

STARTS_WITHIN_S = 300.0
"""How long Java may take to answer: many times what a slow machine takes."""
ENDS_WITHIN_S = 20.0
"""How long Java may take to end by itself; then it is killed."""
LOOK_EVERY_S = 0.05


@dataclass(slots=True)
class JavaProcess:
    """A Java process that answers."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str
    patience_s: float = 0.0
    """How long it may take to end by itself; without a session it has nothing to clean up."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which Spark connects to it."""
        return {"PYSPARK_GATEWAY_PORT": str(self.port), "PYSPARK_GATEWAY_SECRET": self.secret}


def spark_home() -> Path:
    """Where Spark's scripts and jars are: SPARK_HOME, or the package."""
    import pyspark

    if os.environ.get("SPARK_HOME"):
        return Path(os.environ["SPARK_HOME"])
    package = Path(pyspark.__file__).parent
    distribution = package / "spark-distribution"  # of PYSPARK_HADOOP_VERSION
    return distribution if (distribution / "bin" / "spark-submit").is_file() else package


@contextmanager
def java_process(
    settings: Mapping[str, str],
    environment: Mapping[str, str],
    folder: Path,
    output: int,
    lock: int,
) -> Iterator[JavaProcess]:
    """A Java that waits for a `SparkContext` with these settings; it ends with the block.

    It writes to the descriptor `output`, leaves its port in `folder` and inherits `lock`.
    """
    note = folder / "gateway"
    command = [str(spark_home() / "bin" / "spark-submit")]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    owned: list[subprocess.Popen[bytes]] = []
    java = None
    try:
        process = _started(
            command,
            {
                **os.environ,
                **environment,
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(note),
            },
            output,
            lock,
            owned,
        )
        java = JavaProcess(process, *_answered(process, note))
        yield java
    finally:
        for one in owned:
            end(one, 0.0 if java is None else java.patience_s)


def _started(
    command: list[str],
    environment: Mapping[str, str],
    output: int,
    lock: int,
    owned: list[subprocess.Popen[bytes]],
) -> subprocess.Popen[bytes]:
    """Start the process and add it to `owned`; a Ctrl-C meanwhile takes effect after both."""
    with _interrupts_deferred():
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment,
                pass_fds=(lock,), process_group=0,
            )  # fmt: skip
        except OSError as error:
            raise SparkFailedError(f"cannot run {command[0]}: {error.strerror}") from None
        owned.append(process)
        _running.append(process)
    return process


def _answered(process: subprocess.Popen[bytes], note: Path) -> tuple[int, str]:
    """The port and the secret that Java leaves, in a complete file, when it is ready."""
    deadline = time.monotonic() + STARTS_WITHIN_S
    while not note.exists():
        if process.poll() is not None:
            raise JavaEndedError(f"Java ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise SparkFailedError(f"Java does not answer within {STARTS_WITHIN_S:.0f} s")
        time.sleep(LOOK_EVERY_S)
    content = note.read_bytes()
    port, length = struct.unpack_from(">ii", content)
    return port, content[8 : 8 + length].decode()


class JavaEndedError(SparkFailedError):
    """Java ended before it answered; its log says why."""


# -- ending ----------------------------------------------------------------------------------------

_running: list[subprocess.Popen[bytes]] = []
"""The Java processes that were started here and are not known to have ended."""


def end(process: subprocess.Popen[bytes], within_s: float = ENDS_WITHIN_S) -> None:
    """End a Java process and wait for it: by closing its input, then by force.

    A second Ctrl-C does not interrupt this.
    """
    with _interrupts_deferred():
        with suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # not reaped yet: the number is still its own
            process.wait()
        _running.remove(process)


@atexit.register
def _end_all() -> None:
    """End the processes that a Ctrl-C between two blocks has left over."""
    for process in tuple(_running):
        end(process, within_s=0.0)


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Delay a Ctrl-C in the block until its end; only the main thread gets any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Any = signal.getsignal(signal.SIGINT)
    if not callable(before):  # ignored, or the system's own way
        yield
        return
    came: list[Any] = []
    signal.signal(signal.SIGINT, lambda *arguments: came.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(*came[0])
