"""The session of Spark's that the tests of a process share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from cubecast.spark.session import spark_session
from support.executors import send_support

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of this process, or one for all tests here: starting one takes seconds."""
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    with spark_session("local[2]", log=log) as session:
        send_support(session, tmp_path_factory.getbasetemp())
        yield session
