"""Spark on a standalone cluster: the same tables as on this machine, in our session or a user's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.executors import needless
from support.lab_toys import POINTS, SEEDS
from support.paths import SUPPORT
from support.spark_clusters import Cluster
from support.spark_clusters import cluster as cluster
from support.spark_guest import THEIRS

TOYS = SUPPORT / "lab_toys.py"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
WHAT_TO_SET = (
    f"name a Python {PYTHON} with cubecast[lab] that is there (PYSPARK_PYTHON=/path/to/python), or "
    "send one along (--conf spark.archives=env.tar.gz#env and PYSPARK_PYTHON=./env/bin/python)"
)


def swept(cluster: Cluster, master: str, out: Path) -> dict[str, bytes]:
    """The tables of the toy grid, swept on a master by a driver of its own."""
    done = cluster.run(TOYS, master, out)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{POINTS * SEEDS} ran, 0 kept, 2 cores\n"
    tables = {name: out / "tables" / f"{name}.parquet" for name in ("runs", "histograms")}
    return {name: path.read_bytes() for name, path in tables.items()}


def test_a_standalone_cluster_gives_the_tables_of_this_machine(
    cluster: Cluster, tmp_path: Path
) -> None:
    here = swept(cluster, "local[2]", tmp_path / "here")
    assert swept(cluster, cluster.master, tmp_path / "there") == here


@pytest.mark.soak
def test_a_cluster_on_this_machine_gives_the_same_tables(cluster: Cluster, tmp_path: Path) -> None:
    masters = ("local[2]", "local-cluster[2,1,1024]", cluster.master)
    tables = [swept(cluster, master, tmp_path / str(n)) for n, master in enumerate(masters)]
    assert tables[0] == tables[1] == tables[2]


@pytest.mark.soak
def test_a_session_of_the_users_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    """It keeps its jobs, its master and its settings; executors import what a cell needs."""
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    python = bare / "bin" / "python"
    guest = ("-W", "default", "-m", "support.spark_guest")
    done = cluster.run(*guest, cluster.master, tmp_path / "out", python)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)

    modules = set(told.pop("modules"))
    assert {"cubecast.sim.run", "cubecast.spark.executor_task"} <= modules
    assert not needless(modules)

    assert told == {
        "interrupted": True,
        "active jobs": 1,
        "own job": [7],
        "cells": 18,
        "partitions of ours": "1",
        "master": cluster.master,
        "settings": THEIRS,
        "refused master": f"this process has a Spark session on {cluster.master} already, so "
        "nothing can run on local[1]: leave the master out, or stop that session",
        "same master": "",
        "refused conf": "this process has a Spark session already, in which spark.driver.memory "
        "is not set: start it with spark.driver.memory=3g, or stop it",
        "sql conf": "",
        "still there": 3,
        "no python": f"the executors have no program /no/such/python: {WHAT_TO_SET}",
        "bare python": f"the executors' Python has no package cubecast: {WHAT_TO_SET}",
    }
