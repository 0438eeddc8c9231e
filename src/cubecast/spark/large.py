"""A Spark session for large tables.

The session of the lab (`spark_session`) suits small data: one partition after a shuffle, 1 GiB for
Java, and a Java that starts fast and optimises little.  This one differs in that:

- the memory for Spark is `memory_mib`, by default half of what the machine has, at most 16 GiB.
  Half of it is for Java; the rest is for Python's workers, which hold Arrow batches and one bin of
  topics each, and for the system's file cache;
- a shuffle has 32 partitions per core, at least 64, and Spark joins those that turn out small;
- Java compiles fully and collects its garbage on all cores;
- a small table is sent to all tasks, so that a large one is joined with it without a shuffle.
  Small is up to a 512th of Java's memory, at most 10 MiB.  Spark measures compressed bytes: in
  memory a table takes several times that.

On a cluster the cluster sets the memory of executors: pass ``spark.executor.memory`` in `conf`,
which goes to Spark as it is and wins.  On ``local-cluster[n,cores,mib]`` each executor has
the memory that its worker has.  Where the process has a session already, that one is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from cubecast.spark.errors import LabError
from cubecast.spark.session import DEFAULT_MASTER, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_MEMORY_MIB = 16 * 1024
LEAST_MEMORY_MIB = 1024
MOST_BROADCAST_MIB = 10
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")
_LOCAL = re.compile(r"local\[(\d+)\]")


@contextmanager
def large_session(
    master: str = DEFAULT_MASTER,
    *,
    memory_mib: int | None = None,
    log: Path | None = None,
    conf: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A session for the block, with settings for large tables."""
    memory = default_memory_mib() if memory_mib is None else memory_mib
    if memory < LEAST_MEMORY_MIB:
        raise LabError(f"Spark needs at least {LEAST_MEMORY_MIB} MiB, not {memory}")
    with as_file(files("cubecast.spark") / "log4j2.properties") as log_settings:
        settings = large_settings(master, memory, log_settings)
        with spark_session(master, log=log, conf=conf, settings=settings) as session:
            yield session


def large_settings(master: str, memory_mib: int, log_settings: Path) -> dict[str, str]:
    """The settings that differ from those of `spark_session`."""
    java_mib = memory_mib // 2
    broadcast = f"{min(MOST_BROADCAST_MIB, java_mib // 512)}MB"
    settings = {
        "spark.driver.memory": f"{java_mib}m",
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile=file:{log_settings} -XX:+UseParallelGC"
        ),
        "spark.executor.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.sql.shuffle.partitions": str(max(64, 32 * cores_of(master))),
        "spark.sql.files.openCostInBytes": str(4 << 20),
        "spark.sql.autoBroadcastJoinThreshold": broadcast,
        "spark.sql.adaptive.autoBroadcastJoinThreshold": broadcast,
    }
    cluster = _LOCAL_CLUSTER.fullmatch(master)
    if cluster is not None:
        settings["spark.executor.memory"] = f"{cluster.group(3)}m"
    return settings


def cores_of(master: str) -> int:
    """The cores that a master on this machine names; else as many as this machine has."""
    cluster, local = _LOCAL_CLUSTER.fullmatch(master), _LOCAL.fullmatch(master)
    if cluster is not None:
        return int(cluster.group(1)) * int(cluster.group(2))
    return int(local.group(1)) if local is not None else os.cpu_count() or 1


def default_memory_mib() -> int:
    """Half of the machine's memory, within bounds."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return max(LEAST_MEMORY_MIB, min(MOST_MEMORY_MIB, total // 2))
