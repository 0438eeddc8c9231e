"""A Spark session that is quiet, local unless told otherwise, and gone when its block ends.

1. Nothing of Spark's reaches the terminal: its processes write to the log file given.
2. On this machine (``local[...]``, ``local-cluster[...]``) it listens on the loopback only, and its
   workers run the Python that runs us.  On a cluster the user sets addresses and Pythons.
3. Leaving the block, also by Ctrl-C, ends the session and the Java process (`java_process`) and
   removes their files (`scratch`).
4. Executors in processes of their own get this package, so that they run the driver's code.
5. A session that was there before us keeps its master, its settings and its other jobs: we work in
   a session beside it on the same context, and end our own jobs only (`cancellable_jobs`).
6. An error of Spark or Java in the block leaves it as a `SparkFailedError` of one line.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cubecast.spark.cancellable_jobs import Jobs, tagged_jobs
from cubecast.spark.errors import LabError, spark_failures
from cubecast.spark.java import find_java
from cubecast.spark.java_log import told_how_java_ended, told_why
from cubecast.spark.java_process import ENDS_WITHIN_S, java_process, spark_home
from cubecast.spark.masters import (
    MOST_ATTEMPTS,
    in_this_process,
    on_this_machine,
    refuse_connect,
    refuse_unreachable,
    with_retries,
)
from cubecast.spark.process_state import (
    environment_with,
    interrupts_as_before,
    opened_log,
    own_gateway,
    py4j_is_quiet,
)
from cubecast.spark.scratch import Scratch, scratch_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
DRIVER_MEMORY = "1g"
JAVA_FOR_SMALL_DATA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The work is done in Python: long optimisation by Java does not pay."""
LONGEST_SOCKET_FOLDER = 60
"""The path of a socket has a little over 100 bytes, and Spark adds a name of 42."""
SQL_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",  # aggregated data are small
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.files.openCostInBytes": "65536",  # finished cells are many small files
    # Spark measures a table in compressed bytes, and a driver of 1 GB cannot hold some below 10 MB.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "-1",
}
"""Settings that our jobs need in any session; each session has its own."""


def require_pyspark() -> None:
    """Name the missing extra, before anything is started."""
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
    master: str = DEFAULT_MASTER,
    *,
    log: Path | None = None,
    conf: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A session for the block.

    `settings` replace ours for a session that we start; `conf` is the user's and wins over both.
    Without `log`, Spark's output is dropped at the end of the block.

    Where this process has a session already, as in a notebook, we work beside it: `conf` must not
    contradict its fixed settings, nor `master`, unless it is the default.
    """
    require_pyspark()
    ours, users = {**SQL_SETTINGS, **(settings or {})}, dict(conf or {})
    master = _one_master(master, users.pop("spark.master", master))
    refuse_connect(master)
    active = active_session()
    if active is None and "PYSPARK_GATEWAY_PORT" in os.environ:
        source = _submitted(master, ours, users)
    elif active is None:
        source = _started(master, ours | users, log)
    else:
        source = _beside(active, master, ours, users)
    with source as session, tagged_jobs(session) as jobs:
        _open_jobs.append(jobs)
        try:
            yield session
        finally:
            _open_jobs.remove(jobs)


def _one_master(master: str, in_conf: str) -> str:
    """The master that the argument or the user's setting names; only one of them may."""
    if master not in (DEFAULT_MASTER, in_conf):
        raise LabError(f"the master is {master}, and spark.master={in_conf}: name one of them")
    return in_conf


_open_jobs: list[Jobs] = []
"""The jobs of the blocks of `spark_session` that this process is in."""


def end_own_jobs() -> None:
    """Cancel the jobs of the blocks we are in, and wait until none runs, for a while.

    The files of a job can be removed then.  Other jobs of a session that we share go on.
    """
    for jobs in _open_jobs:
        jobs.end()


# -- a session that is there -----------------------------------------------------------------------

_own: list[SparkSession] = []
"""The session that we have started, if any."""


def active_session() -> SparkSession | None:
    """The session that this process has, unless its Java process is gone."""
    from pyspark.sql import SparkSession, is_remote

    if is_remote() or "SPARK_REMOTE" in os.environ:
        raise LabError(
            "this process uses Spark Connect, on which the lab does not run: "
            "unset SPARK_REMOTE, or use another process"
        )
    try:
        with py4j_is_quiet():
            session = SparkSession.active()
            session.sparkContext.applicationId  # noqa: B018 - asks Java
    except Exception:
        return None
    return session


@contextmanager
def _beside(
    active: SparkSession, master: str, ours: Mapping[str, str], users: Mapping[str, str]
) -> Iterator[SparkSession]:
    """A session on the context of another one, with settings of its own."""
    theirs = active.sparkContext.master
    if master != DEFAULT_MASTER and theirs not in (master, with_retries(master)):
        raise LabError(
            f"this process has a Spark session on {theirs} already, so nothing can run on "
            f"{master}: leave the master out, or stop that session"
        )
    for name, value in users.items():
        if not active.conf.isModifiable(name) and active.conf.get(name, None) != value:
            raise LabError(
                f"this process has a Spark session already, in which {name} is "
                f"{active.conf.get(name, None) or 'not set'}: start it with {name}={value}, "
                "or stop it"
            )
    with spark_failures():
        if any(active.sparkContext is own.sparkContext for own in _own):
            yield active
            return
        session = active.newSession()
        for name, value in {**ours, **users}.items():
            if session.conf.isModifiable(name):
                session.conf.set(name, value)
        yield session


@contextmanager
def _submitted(
    master: str, ours: Mapping[str, str], users: Mapping[str, str]
) -> Iterator[SparkSession]:
    """A session in the Java process of ``spark-submit``, which has set where and how it runs."""
    from pyspark.sql import SparkSession

    with interrupts_as_before() as restore:
        with spark_failures():
            session = SparkSession.builder.getOrCreate()
        restore()
        try:
            with _beside(session, master, ours, users) as beside:
                yield beside
        finally:
            with suppress(Exception):
                session.stop()


# -- a session of our own --------------------------------------------------------------------------


@contextmanager
def _started(master: str, settings: Mapping[str, str], log: Path | None) -> Iterator[SparkSession]:
    """A session in a Java process that we start, and end."""
    refuse_unreachable(master)
    home = find_java().home
    with (
        scratch_directory() as scratch,
        opened_log(log or scratch.path / "spark.log") as (output, said),
        interrupts_as_before() as restore,
        py4j_is_quiet(),
        as_file(files("cubecast.spark") / "log4j2.properties") as log_settings,
    ):
        all_settings = {**_settings(master, scratch, log_settings), **settings}
        for_java, for_us = _environments(master, home, scratch)
        if "spark.local.dir" in settings:  # the variable would win
            del for_java["SPARK_LOCAL_DIRS"]
        with ExitStack() as stack:
            with told_why(master, said):
                java = stack.enter_context(
                    java_process(all_settings, for_java, scratch.path, output, scratch.lock)
                )
                stack.enter_context(own_gateway())
                with environment_with({**for_us, **java.environment}):
                    session = _connected(all_settings)
            restore()
            java.patience_s = ENDS_WITHIN_S
            _own.append(session)
            try:
                if not in_this_process(master):
                    _send_package(session, master, scratch)
                with told_how_java_ended(java, said), spark_failures():
                    yield session
            finally:
                _own.clear()
                _stop(session)


def _settings(master: str, scratch: Scratch, log_settings: Path) -> dict[str, str]:
    java_options = f"-Dlog4j2.configurationFile=file:{log_settings} {JAVA_FOR_SMALL_DATA}"
    settings = {
        "spark.app.name": "cubecast lab",
        "spark.master": with_retries(master),
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": java_options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.task.maxFailures": str(MOST_ATTEMPTS),
        "spark.locality.wait": "0",  # a free core takes the next cell, wherever it is
        "spark.sql.warehouse.dir": f"{scratch.path}/warehouse",
        "spark.sql.catalogImplementation": "in-memory",
    }
    if on_this_machine(master):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.extraJavaOptions": JAVA_FOR_SMALL_DATA,
            # A machine that was asleep has missed heartbeats; no process has died.
            "spark.network.timeout": "7d",
        }
        if len(str(scratch.path)) < LONGEST_SOCKET_FOLDER:
            # Java and Python talk over files: no ports, and no need for the name localhost.
            settings["spark.python.unix.domain.socket.enabled"] = "true"
            settings["spark.python.unix.domain.socket.dir"] = str(scratch.path)
    return settings


def _environments(
    master: str, home: Path, scratch: Scratch
) -> tuple[dict[str, str], dict[str, str]]:
    """The environment of Java, and that of Spark's Python."""
    ours = {"PYSPARK_PYTHON": sys.executable} if on_this_machine(master) else {}
    options = f"-Djava.io.tmpdir={scratch.folder('tmp')}"
    theirs = {
        **ours,
        "JAVA_HOME": str(home),
        "SPARK_LOCAL_DIRS": os.environ.get("SPARK_LOCAL_DIRS") or str(scratch.folder("local")),
        "SPARK_SUBMIT_OPTS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {options}".strip(),
    }
    if on_this_machine(master):
        theirs["SPARK_LOCAL_IP"] = "127.0.0.1"
    return theirs, ours


def _connected(settings: Mapping[str, str]) -> SparkSession:
    """A session in the Java process that the environment names."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    context: Any = SparkContext(conf=conf)
    # It would print a traceback if Java died; `JavaGoneError` reports that.
    context._accumulatorServer.handle_error = lambda *_: None
    return SparkSession(context)


def _send_package(session: SparkSession, master: str, scratch: Scratch) -> None:
    """Make executors run this package."""
    context = session.sparkContext
    if on_this_machine(master):
        # ``local-cluster`` leaves a directory per application, and no other process clears it.
        scratch.remove_also(spark_home() / "work" / context.applicationId)
    context.addPyFile(str(packed_package(scratch.path)))


def packed_package(folder: Path) -> Path:
    """This package as a zip archive that Python can import from."""
    import cubecast

    root = Path(cubecast.__file__).parent
    packed = folder / "cubecast.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, Path("cubecast") / path.relative_to(root))
    return packed


def _stop(session: SparkSession) -> None:
    """End the session; a second Ctrl-C does not interrupt this.  `java_process` ends Java."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(Exception):  # a Java process that died cannot be asked
        session.stop()
