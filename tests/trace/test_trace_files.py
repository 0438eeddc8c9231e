"""Trace files: what is written is read back, and what is damaged is said to be, with its place."""

import builtins
import gzip
import io
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cubecast.trace import (
    KINDS,
    SCHEMA,
    Header,
    Record,
    TraceError,
    check,
    read,
    read_jsonl,
    read_parquet,
    write,
    write_jsonl,
    write_parquet,
)
from support.paths import ROOT

DOCS = ROOT / "docs" / "trace.md"

HEADER = Header(scenario="ask", protocol="production", seed=7, params={"nodes": 2, "h": 0.5})
RECORDS = [
    Record("join", 0, 1, "news"),
    Record("publish", 5, 0, "news", "m-1", source=0, seq=0, reply_to=(4, "x")),
    Record("send", 5, 0, "news", "m-1", 0, 0, peer=1, message="pub"),
    Record("deliver", 9, 1, "news", "m-1", source=0, seq=0),
    Record("state", 10, 1, "news", held=1, retained=2, limit=3),
]
LINES = [
    b'{"schema":"cubecast-trace/1","scenario":"ask","protocol":"production","seed":7,'
    b'"params":{"h":0.5,"nodes":2},"time_unit":"ut"}\n',
    b'{"kind":"join","time":0,"node":1,"topic":"news"}\n',
    b'{"kind":"publish","time":5,"node":0,"topic":"news","id":"m-1","source":0,"seq":0,'
    b'"reply_to":[4,"x"]}\n',
    b'{"kind":"send","time":5,"node":0,"topic":"news","id":"m-1","source":0,"seq":0,"peer":1,'
    b'"message":"pub"}\n',
    b'{"kind":"deliver","time":9,"node":1,"topic":"news","id":"m-1","source":0,"seq":0}\n',
    b'{"kind":"state","time":10,"node":1,"topic":"news","held":1,"retained":2,"limit":3}\n',
]
SUFFIXES = [".jsonl", ".jsonl.gz", ".parquet"]


def load(path: Path) -> tuple[Header, list[Record]]:
    header, records = read(path)
    return header, list(records)


def problem(path: Path) -> TraceError:
    """What reading the whole file raises."""
    with pytest.raises(TraceError) as raised:
        load(path)
    assert raised.value.path == path
    return raised.value


# Round trips


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_round_trip(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run{suffix}"
    write(path, HEADER, iter(RECORDS))
    assert load(path) == (HEADER, RECORDS)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_trace_without_records(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run{suffix}"
    write(path, Header(), [])
    assert load(path) == (Header(), [])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_records_can_be_read_again_and_in_part(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run{suffix}"
    write(path, HEADER, RECORDS)
    _, records = read(path)
    assert next(iter(records)) == RECORDS[0]
    assert list(records) == list(records) == RECORDS


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_more_records_than_are_handled_at_a_time(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run{suffix}"
    many = [Record("deliver", time, time % 7, "news", time // 7) for time in range(150_000)]
    write(path, HEADER, iter(many))
    assert load(path)[1] == many


int64 = st.integers(-(2**63), 2**63 - 1)
digits = st.sampled_from(["7", "007", "-0", "-12", '"', '"7"', "-", "", "7a", "٣"])
ids = int64 | st.text() | digits
records = st.builds(
    Record,
    st.sampled_from(KINDS),
    int64,
    int64,
    st.text(),
    ids,
    int64,
    int64,
    int64,
    st.text(),
    st.lists(ids, max_size=3).map(tuple),
    int64,
    int64,
    int64,
    st.sets(st.integers(0, 200)).map(lambda nodes: sum(1 << node for node in nodes)),
)
network = st.builds(Record, st.sampled_from(["send", "receive"]), int64, int64)
headers = st.builds(
    Header,
    scenario=st.text(),
    seed=int64,
    params=st.dictionaries(st.text(), st.none() | st.booleans() | int64 | st.lists(st.text())),
)


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(header=headers, trace=st.lists(records | network))
def test_any_trace_survives(
    tmp_path: Path, suffix: str, header: Header, trace: list[Record]
) -> None:
    path = tmp_path / f"run{suffix}"
    write(path, header, trace)
    assert load(path) == (header, trace)


def test_the_bytes_are_these(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "run.jsonl", HEADER, RECORDS)
    assert (tmp_path / "run.jsonl").read_bytes() == b"".join(LINES)


def test_equal_traces_are_equal_files(tmp_path: Path) -> None:
    write(tmp_path / "one.jsonl.gz", HEADER, RECORDS)
    write(tmp_path / "two.jsonl.gz", Header(**_fields(HEADER, reverse_params=True)), RECORDS)
    one, two = (tmp_path / f"{name}.jsonl.gz" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes()[4:8] == bytes(4), "the time of writing is inside"
    assert gzip.decompress(one.read_bytes()) == b"".join(LINES)


def _fields(header: Header, *, reverse_params: bool) -> dict[str, Any]:
    fields = {name: getattr(header, name) for name in header.__struct_fields__}
    if reverse_params:
        fields["params"] = dict(reversed(header.params.items()))
    return fields


def test_writing_to_an_open_file() -> None:
    file = io.BytesIO()
    write_jsonl(file, HEADER, RECORDS)
    assert file.getvalue() == b"".join(LINES)


def test_a_path_may_be_text(tmp_path: Path) -> None:
    path = str(tmp_path / "run.jsonl")
    write(path, HEADER, RECORDS)
    assert read(path)[0] == HEADER


# Nothing half-written


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_run_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run{suffix}"
    write(path, HEADER, RECORDS)

    def broken() -> Iterator[Record]:
        yield RECORDS[0]
        assert load(path)[1] == RECORDS  # while the new one is being written
        raise RuntimeError("the simulator broke")

    with pytest.raises(RuntimeError, match="the simulator broke"):
        write(path, Header(), broken())
    assert load(path) == (HEADER, RECORDS)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "run.jsonl"
    with pytest.raises(TraceError, match=re.escape(f"{path}: No such file or directory")):
        write(path, HEADER, RECORDS)


# Bad files


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_not_there(tmp_path: Path, suffix: str) -> None:
    error = problem(tmp_path / f"run{suffix}")
    assert (error.line, error.problem) == (None, "No such file or directory")


def test_a_name_that_says_nothing(tmp_path: Path) -> None:
    error = problem(tmp_path / "run.csv")
    assert error.problem == "the name of a trace ends in .jsonl, .jsonl.gz or .parquet"
    with pytest.raises(TraceError, match="the name of a trace"):
        write(tmp_path / "run", HEADER, RECORDS)


@pytest.mark.parametrize(
    ("first_line", "expected"),
    [
        (b"", "no header: the file is empty"),
        (b"\n", "no header: the file is empty"),
        (LINES[1], f"no header: the first line must say schema {SCHEMA!r}"),
        (
            b'{"schema":"cubecast-trace/2"}\n',
            f"schema 'cubecast-trace/2': this version reads {SCHEMA!r}",
        ),
        (b"kind,time,node\n", "not JSON: JSON is malformed: invalid character (byte 0)"),
        (b"[]\n", "bad header: Expected `object`, got `array`"),
        (
            b'{"schema":"cubecast-trace/1","seed":"x"}\n',
            "bad header: Expected `int`, got `str` - at `$.seed`",
        ),
    ],
)
def test_a_bad_header(tmp_path: Path, first_line: bytes, expected: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(first_line)
    with pytest.raises(TraceError) as raised:
        read_jsonl(path)  # before any record is asked for
    assert (raised.value.line, raised.value.problem) == (1, expected)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"hello\n", "not JSON: JSON is malformed: invalid character (byte 0)"),
        (LINES[3][:40] + b"\n", "not JSON: Input data was truncated"),
        (LINES[3][:-1] + LINES[4], "not JSON: JSON is malformed: trailing characters"),
        (b'{"kind":"\xff","time":1,"node":1}\n', "not JSON: 'utf-8' codec can't decode byte 0xff"),
        (
            b'{"kind":"publsh","time":1,"node":1}\n',
            "bad record: Invalid enum value 'publsh' - at `$.kind`",
        ),
        (b'{"kind":"join","node":1}\n', "bad record: Object missing required field `time`"),
        (
            b'{"kind":"join","time":1.5,"node":1}\n',
            "bad record: Expected `int`, got `float` - at `$.time`",
        ),
        (b'{"kind":"publish","time":1,"node":1}\n', "a publish record needs the field `id`"),
        (b'{"kind":"deliver","time":1,"node":1}\n', "a deliver record needs the field `id`"),
    ],
)
def test_a_bad_line(tmp_path: Path, line: bytes, expected: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join([*LINES[:3], line, *LINES[4:]]))
    error = problem(path)
    assert error.line == 4
    assert error.problem.startswith(expected)
    assert str(error) == f"{path}, line 4: {error.problem}"


def test_the_records_before_a_bad_line_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(LINES)[:-20])
    _, stored = read(path)
    stream = iter(stored)
    assert [next(stream) for _ in RECORDS[:-1]] == RECORDS[:-1]
    with pytest.raises(TraceError, match="line 6: not JSON: Input data was truncated"):
        next(stream)


def test_the_line_number_in_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(LINES[0] + LINES[4] * 40_000 + b"\n\n" + LINES[4] * 3 + b"oops\n" + LINES[4])
    assert problem(path).line == 40_007


def test_blank_lines_and_unknown_fields_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(LINES[0] + b"\n" + LINES[1][:-2] + b',"colour":"red"}\r\n \n' + LINES[2][:-1])
    assert load(path)[1] == RECORDS[:2]


def test_a_compressed_file_cut_short_gives_what_it_can_and_then_fails(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    many = [Record("deliver", time, time * time % 1009, "news", time) for time in range(20_000)]
    write(path, HEADER, many)
    path.write_bytes(path.read_bytes()[:-5000])
    read_before: list[Record] = []
    with pytest.raises(TraceError) as raised:
        read_before.extend(read(path)[1])
    assert raised.value.problem == "compressed data ends too early: a truncated file"
    assert len(read_before) > 10_000
    assert read_before == many[: len(read_before)]
    assert raised.value.line == len(read_before) + 2


def test_a_compressed_header_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(LINES))[:20])
    error = problem(path)
    assert (error.line, error.problem) == (1, "compressed data ends too early: a truncated file")


@pytest.mark.parametrize("content", [b"".join(LINES), gzip.compress(b"".join(LINES), mtime=0)])
def test_a_compressed_file_that_is_damaged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(content[:30] + b"\x00\xff\x00\xff" + content[34:])
    assert problem(path).problem.startswith("damaged compressed data: ")


def test_an_error_can_be_sent_to_another_process(tmp_path: Path) -> None:
    error = pickle.loads(pickle.dumps(TraceError("run.jsonl", 3, "not JSON")))
    assert (error.path, error.line, str(error)) == (
        Path("run.jsonl"),
        3,
        "run.jsonl, line 3: not JSON",
    )


# Parquet

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def rewrite(path: Path, change: Any) -> None:
    """Write the standard trace, and again as another program might after ``change``."""
    write_parquet(path, HEADER, RECORDS)
    parquet.write_table(change(parquet.read_table(path)), path)


def replaced(table: Any, name: str, values: list[Any]) -> Any:
    place = table.schema.get_field_index(name)
    return table.set_column(place, name, pyarrow.array(values))


def test_parquet_columns_are_the_fields_and_the_position(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    write_parquet(path, HEADER, RECORDS)
    table = parquet.read_table(path)
    assert table.schema.names == ["position", *Record.__struct_fields__]
    assert table["position"].to_pylist() == [0, 1, 2, 3, 4]
    assert table["id"].to_pylist() == [None, "m-1", "m-1", "m-1", None]
    assert table["reply_to"].to_pylist() == [[], ["4", "x"], [], [], []]
    assert json.loads(table.schema.metadata[b"cubecast-trace"]) == json.loads(LINES[0])


def test_parquet_written_by_others_in_their_own_types(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"

    def plain(table: Any) -> Any:
        for name in ("kind", "topic", "message"):
            table = table.set_column(
                table.schema.get_field_index(name), name, table[name].cast(pyarrow.large_string())
            )
        node = table["node"].cast(pyarrow.int32())
        return table.set_column(table.schema.get_field_index("node"), "node", node)

    rewrite(path, plain)
    assert load(path) == (HEADER, RECORDS)


@pytest.mark.parametrize(
    ("change", "line", "expected"),
    [
        (lambda t: t.replace_schema_metadata({}), None, "no header: no schema metadata"),
        (lambda t: t.drop_columns(["seq", "held"]), None, "missing column held, seq"),
        (lambda t: t.take([1, 0, 2, 3, 4]), 2, "records out of order: sort the table by"),
        (
            lambda t: replaced(t, "kind", ["join", "publish", "sent", "deliver", "state"]),
            3,
            "bad record: unknown kind 'sent'",
        ),
        (lambda t: replaced(t, "time", [0, 1, 2, None, 4]), 4, "bad record: `time` is null"),
        (
            lambda t: replaced(t, "id", [None, "m", "m", None, None]),
            4,
            "a deliver record needs the field `id`",
        ),
        (lambda t: replaced(t, "node", ["a"] * 5), 1, "damaged Parquet data: "),
        (lambda t: replaced(t, "id", ['"m'] * 5), 1, "damaged Parquet data: "),
        (
            lambda t: replaced(t, "reply_to", [["1"], [None], [], [], []]),
            2,
            "bad record: null in `reply_to`",
        ),
    ],
)
def test_bad_parquet(tmp_path: Path, change: Any, line: int | None, expected: str) -> None:
    path = tmp_path / "run.parquet"
    rewrite(path, change)
    error = problem(path)
    assert error.line == line
    assert error.problem.startswith(expected)


def test_the_row_number_in_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    write_parquet(path, HEADER, RECORDS[:1] * 50_000)
    table = parquet.read_table(path)
    times = [None if row == 40_000 else 0 for row in range(50_000)]
    parquet.write_table(replaced(table, "time", times), path)
    error = problem(path)
    assert str(error) == f"{path}, row 40001: bad record: `time` is null"


def test_a_file_that_is_no_parquet(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    path.write_bytes(b"".join(LINES))
    assert problem(path).problem.startswith("not a Parquet file: ")
    write_parquet(path, HEADER, RECORDS)
    path.write_bytes(path.read_bytes()[:-10])
    assert problem(path).problem.startswith("not a Parquet file: ")


def test_a_number_too_large_for_a_column(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    with pytest.raises(TraceError, match="records from 0 on do not fit the columns"):
        write_parquet(path, HEADER, [Record("join", 2**63, 1)])
    assert list(tmp_path.iterdir()) == []


def test_parquet_without_pyarrow_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_import = builtins.__import__

    def importer(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "pyarrow":
            raise ImportError(name)
        return plain_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", importer)
    for attempt in (
        lambda: write_parquet(tmp_path / "run.parquet", HEADER, RECORDS),
        lambda: read_parquet(tmp_path / "run.parquet"),
    ):
        with pytest.raises(TraceError, match=re.escape("pip install 'cubecast[parquet]'")):
            attempt()
    write_jsonl(tmp_path / "run.jsonl", HEADER, RECORDS)


# The documentation


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOCS.read_text("utf-8"), re.M | re.S)


def test_the_example_in_the_documentation_is_a_correct_trace(tmp_path: Path) -> None:
    [example] = blocks("jsonl")
    path = tmp_path / "run.jsonl"
    path.write_text(example, "utf-8")
    header, stored = read(path)
    report = check(stored)
    assert report.ok
    assert report.deliveries == 6
    write(path, header, list(stored))
    assert path.read_text("utf-8") == example, "not as it would be written"


def test_the_code_in_the_documentation_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [example] = blocks("jsonl")
    (tmp_path / "run.jsonl.gz").write_bytes(gzip.compress(example.encode()))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in blocks("python"):
        exec(code, names)
    assert load(tmp_path / "run.parquet")[1] == load(tmp_path / "run.jsonl.gz")[1]
    printed = capsys.readouterr().out
    assert "0 of 3 answers came before their question" in printed
    shown = "delivered after 'answer', which it precedes"
    assert f"message 'question': {shown}" in printed
    assert f"#     {shown}" in DOCS.read_text("utf-8")


def test_the_tables_in_the_documentation_are_complete() -> None:
    text = DOCS.read_text("utf-8")
    rows = re.findall(r"^\| `([a-z_-]+)` \|", text, re.M)
    expected = [*Header.__struct_fields__, *Record.__struct_fields__, *KINDS]
    assert rows[: len(expected)] == expected


def test_importing_the_trace_package_does_not_import_pyarrow() -> None:
    code = "import sys, cubecast.trace; sys.exit('pyarrow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
