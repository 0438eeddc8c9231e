"""A Spark session that is quiet, local unless told otherwise, and gone when its block ends.

1. Nothing of Spark's reaches the terminal: its processes write to the log file given.
2. On this machine (``local[...]``, ``local-cluster[...]``) it listens on the loopback only, and its
   workers run the Python that runs us.  On a cluster addresses and Pythons are the user's matter.
3. Leaving the block, also by Ctrl-C, ends the session and the Java process.
4. Executors in processes of their own get this very package, so that they run what the driver runs.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cubecast.spark.errors import LabError, ResultsError, SparkFailedError
from cubecast.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
MOST_ATTEMPTS = 4
"""How often Spark starts a task that was lost with its process."""
DRIVER_MEMORY = "1g"
JAVA_FOR_SMALL_DATA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The work is done in Python: what Java optimises at length is never repaid."""
JOBS_END_S = 5.0
"""How long jobs that are cancelled may take to end."""
LONGEST_SOCKET_FOLDER = 60
"""The path of a socket has a little over 100 bytes, and Spark adds a name of 42."""

_LOCAL = re.compile(r"local(?:\[(\d+|\*)\])?")
_IN_THIS_PROCESS = re.compile(r"local(\[|$)")
_ON_THIS_MACHINE = re.compile(r"local(\[|$)|local-cluster\[")


def require_pyspark() -> None:
    """Say which extra is missing, before anything is started."""
    try:
        import pyarrow
        import pyspark  # noqa: F401

        del pyarrow
    except ImportError as error:
        raise LabError(
            f"the lab needs {error.name}: install the extra, pip install 'cubecast[spark]'"
        ) from None


@contextmanager
def spark_session(
    master: str = DEFAULT_MASTER, *, log: Path | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session for the block; `conf` goes to Spark as it is and wins over our settings.

    Without `log`, what Spark has to say is forgotten at the end of the block.
    Where this process has one already, as in a notebook, that one is used and left as it is.
    """
    require_pyspark()
    active = _active_session()
    if active is not None:
        yield active
        return
    java = find_java()
    with (
        tempfile.TemporaryDirectory(prefix="cubecast-spark-") as scratch,
        _opened(log or Path(scratch) / "spark.log") as output,
    ):
        environment = {"JAVA_HOME": str(java.home)}
        if _ON_THIS_MACHINE.match(master):
            environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        with _interrupts_as_before() as restore, _py4j_is_quiet():
            session = None
            try:
                with _environment(environment), as_file(_log_settings()) as log_settings:
                    settings = {**_settings(master, scratch, log_settings), **(conf or {})}
                    session = _started(settings, output, log or Path(scratch) / "spark.log")
                restore()
                _own_session.append(session)
                if not _IN_THIS_PROCESS.match(master):
                    session.sparkContext.addPyFile(str(packed_package(Path(scratch))))
                yield session
            finally:
                _own_session.clear()
                _stop(session)


def _settings(master: str, scratch: str, log_settings: Path) -> dict[str, str]:
    java_options = f"-Dlog4j2.configurationFile=file:{log_settings} {JAVA_FOR_SMALL_DATA}"
    settings = {
        "spark.app.name": "cubecast lab",
        "spark.master": _with_retries(master),
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": java_options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.task.maxFailures": str(MOST_ATTEMPTS),
        "spark.locality.wait": "0",  # a free core takes the next cell, wherever it is
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": "1",  # what is aggregated is small
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.files.openCostInBytes": "65536",  # finished cells are many small files
    }
    if _ON_THIS_MACHINE.match(master):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.extraJavaOptions": JAVA_FOR_SMALL_DATA,
            # A machine that was asleep has missed heartbeats; nothing has died for that.
            "spark.network.timeout": "7d",
        }
        if len(scratch) < LONGEST_SOCKET_FOLDER:
            # Java and Python talk over files: no ports, and no need for the name localhost.
            settings["spark.python.unix.domain.socket.enabled"] = "true"
            settings["spark.python.unix.domain.socket.dir"] = scratch
    return settings


def _with_retries(master: str) -> str:
    """Spark tries a lost task again on a cluster; on local cores only if the master says so."""
    match = _LOCAL.fullmatch(master)
    return master if match is None else f"local[{match.group(1) or 1},{MOST_ATTEMPTS}]"


def _log_settings() -> Any:
    return files("cubecast.spark") / "log4j2.properties"


@contextmanager
def _opened(log: Path) -> Iterator[int]:
    """A descriptor of the log, emptied; what Spark's processes get as standard output and error."""
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    except OSError as error:
        raise ResultsError(f"cannot write {log}: {error.strerror}") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Spark takes these from the environment and from nowhere else."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _interrupts_as_before() -> Iterator[Callable[[], None]]:
    """Spark installs a handler of Ctrl-C and leaves it; gives a call that puts the old one back.

    Spark's asks Java to cancel jobs, by the connection on which the interrupted call waits for its
    answer, and fails.  Leaving the block of `spark_session` ends all jobs in any case.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before = signal.getsignal(signal.SIGINT)

    def restore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)

    try:
        yield restore
    finally:
        restore()


@contextmanager
def _py4j_is_quiet() -> Iterator[None]:
    """Drop what py4j logs of a call that is interrupted: tracebacks, some by the root logger."""

    def is_ours(record: logging.LogRecord) -> bool:
        return "py4j" not in record.pathname

    root, own = logging.getLogger(), logging.getLogger("py4j")
    level = own.level
    root.addFilter(is_ours)
    own.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        root.removeFilter(is_ours)
        own.setLevel(level)


_own_session: list[SparkSession] = []
"""The session that `spark_session` has started, if any."""


def end_own_jobs() -> None:
    """Cancel the jobs of the session that we have started, and wait until none runs, for a while.

    What a job writes can be removed then.  A session that was there before us is left alone.
    """
    for session in _own_session:
        context = session.sparkContext
        deadline = time.monotonic() + JOBS_END_S
        with suppress(Exception):  # Java may be gone, and its jobs with it
            context.cancelAllJobs()
            while context.statusTracker().getActiveJobsIds() and time.monotonic() < deadline:
                time.sleep(0.02)


def _active_session() -> SparkSession | None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    return None if context is None else SparkSession(context)


# -- starting --------------------------------------------------------------------------------------


def _started(settings: Mapping[str, str], output: int, log: Path) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    gateway = None
    try:
        gateway = launch_gateway(conf, {"stdout": output, "stderr": output})
        SparkContext._ensure_initialized(gateway=gateway)
        context: Any = SparkContext(conf=conf)
        # It would print a traceback if Java died; what is to be said of that, the sweep says.
        context._accumulatorServer.handle_error = lambda *_: None
        return SparkSession(context)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        if not isinstance(error, PySparkException) and "py4j" not in type(error).__module__:
            raise
        master = settings["spark.master"]
        raise SparkFailedError(f"Spark does not start on {master}: {_reason(log, error)}") from None


def _reason(log: Path, error: Exception) -> str:
    """The first complaint in the log; what Python saw of it is seldom the cause."""
    with suppress(OSError):
        text = log.read_text(encoding="utf-8", errors="replace")
        for pattern in (r"(?:Exception|Error): (.+)", r"\bERROR (.+)"):
            told = re.search(pattern, text)
            if told is not None:
                return told.group(1).strip()
    return str(error).strip().splitlines()[0]


def packed_package(scratch: Path) -> Path:
    """This package as a zip archive that Python can import from."""
    import cubecast

    root = Path(cubecast.__file__).parent
    packed = scratch / "cubecast.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, Path("cubecast") / path.relative_to(root))
    return packed


# -- stopping --------------------------------------------------------------------------------------


def _stop(session: SparkSession | None) -> None:
    """End the session and the Java process; a second Ctrl-C does not stop the stopping."""
    from pyspark import SparkContext

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    application = home = None
    if session is not None:
        with suppress(Exception):  # a Java process that died cannot be asked
            application = session.sparkContext.applicationId
            home = session.sparkContext.getConf().get("spark.home")
        with suppress(Exception):
            session.stop()
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    SparkContext._active_spark_context = None
    if gateway is None:
        return
    with suppress(Exception):
        gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        _ended(process)
    if application is not None:
        shutil.rmtree(Path(home or _spark_home()) / "work" / application, ignore_errors=True)


def _ended(process: Any) -> None:
    """Java ends when its standard input does."""
    import subprocess

    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _spark_home() -> str:
    """Where ``local-cluster`` leaves a directory per application, and nobody clears it."""
    import pyspark

    return os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
