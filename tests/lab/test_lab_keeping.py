"""Messages and traces that a cell keeps: the same run as without, and from both engines alike."""

from __future__ import annotations

import pytest

from cubecast.lab.cell_details import KEEPABLE, message_rows
from cubecast.lab.cells import Cell, Measurement, measure
from cubecast.lab.workload import WorkloadError
from cubecast.lab.workloads import WORKLOADS
from cubecast.sim.engines import has_kernel
from cubecast.trace import Record, check


def cell(workload: str, **point: object) -> Cell:
    settings = WORKLOADS[workload].complete(point)  # type: ignore[arg-type]
    return Cell("x", 0, settings, 3)


def kept(workload: str, **point: object) -> Measurement:
    return measure(cell(workload, **point), KEEPABLE)


def test_keeping_changes_no_number() -> None:
    one = cell("discussion", nodes=16, wait=2)
    plain, rich = measure(one), measure(one, KEEPABLE)
    assert rich.metrics == plain.metrics
    assert rich.histograms == plain.histograms
    assert plain.messages is None
    assert plain.trace is None


def test_rows_are_what_the_run_measured() -> None:
    found = kept("discussion", nodes=16, wait=2, network="uniform", low=1, high=90)
    assert found.messages is not None
    rows = found.messages.to_pylist()
    assert len(rows) == found.metrics["publications"] == 16
    assert {row["deliveries"] for row in rows} == {15}
    latencies = [row["latency_mean"] for row in rows]
    assert sum(latencies) / 16 == pytest.approx(found.metrics["latency_mean"])
    assert max(row["latency_max"] for row in rows) == found.metrics["latency_max"]
    delays = [row["delay_mean"] for row in rows]
    assert sum(delays) / 16 == pytest.approx(found.metrics["delay_mean"])
    assert max(row["delay_max"] for row in rows) == found.metrics["delay_max"] > 0


@pytest.mark.skipif(not has_kernel(), reason="needs the compiled kernel")
def test_both_engines_keep_the_same() -> None:
    compiled, objects = (
        kept("multi-publisher", nodes=16, engine=engine) for engine in ("kernel", "reference")
    )
    assert compiled.messages == objects.messages
    assert compiled.trace is not None
    assert objects.trace is not None
    assert list(compiled.trace.records) == list(objects.trace.records)
    assert check(compiled.trace.records).ok


def test_a_first_reception_counts_and_the_publisher_does_not() -> None:
    rows = message_rows(
        [
            Record("publish", 10, 0, "t", "a", source=0),
            Record("deliver", 10, 0, "t", "a", source=0),
            Record("receive", 14, 1, "t", "a", peer=0, message="pub"),
            Record("receive", 15, 1, "t", "a", peer=2, message="pub"),
            Record("deliver", 20, 1, "t", "a", source=0),
            Record("publish", 30, 1, "t", "b", source=1),
        ]
    ).to_pylist()
    assert [row["id"] for row in rows] == ["a", "b"]
    assert (rows[0]["latency_mean"], rows[0]["delay_mean"], rows[0]["deliveries"]) == (10, 6, 1)
    assert (rows[1]["latency_mean"], rows[1]["delay_max"], rows[1]["deliveries"]) == (0, 0, 0)


def test_keeping_what_a_workload_does_not_offer_is_refused() -> None:
    with pytest.raises(WorkloadError, match="sessions keeps nothing, not 'messages'"):
        measure(cell("sessions", members=20), ["messages"])
    with pytest.raises(WorkloadError, match="stream keeps traces, not 'messages'"):
        measure(cell("stream", nodes=8, protocol="cubecast"), ["messages"])
