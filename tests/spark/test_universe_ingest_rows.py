"""Rows of damaged and sound traces, judged without Spark: what is kept, what is bad, and why."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubecast.spark.universe.errors import UniverseTraceError
from cubecast.spark.universe.importers import find_importer
from cubecast.spark.universe.layouts import layouts
from cubecast.spark.universe.mapping import (
    Mapping,
    RowCondition,
    parse_columns,
    parse_condition,
    parse_separator,
)
from cubecast.spark.universe.rows import FAILED, LINES, ROWS, SKIPPED, joined, judged
from cubecast.spark.universe.sieve import LONGEST_SHOWN
from cubecast.spark.universe.simplices import TAGS, THREADS, read_simplices
from cubecast.spark.universe.sources import (
    BLOCK,
    BOM,
    Piece,
    blocks,
    find_sources,
    format_of,
    pieces,
)
from cubecast.spark.universe.values import times, whole_numbers
from support.paths import ROOT

PAIRS = Mapping("subscriptions", {"user": (0,), "topic": (1,)}, "tsv")
TWO_WIDE = Mapping("subscriptions", {"user": (0,), "topic": (1,)}, "tsv", width=2)


class Judged:
    """All that comes of a trace, in the order of its rows, and the account of it."""

    def __init__(self, paths: list[Path], mapping: Mapping, cut: int = 1 << 20) -> None:
        sources = find_sources(paths, mapping.format)
        layout = layouts(sources, mapping)
        self.good: list[dict[str, Any]] = []
        self.bad: list[tuple[str, str]] = []
        self.tallies: dict[str, int] = {}
        for number, piece in enumerate(pieces(sources, mapping.format, cut=cut)):
            for batch in judged(number, piece, mapping, layout[piece.source]):
                for row in batch.to_pylist():
                    self._add(row)
        skipped = sum(n for name, n in self.tallies.items() if name.startswith(SKIPPED))
        if not self.failed:
            assert self.tallies.get(ROWS, 0) == len(self.good) + len(self.bad) + skipped

    def _add(self, row: dict[str, Any]) -> None:
        if row["tally"] is not None:
            self.tallies[row["tally"]] = self.tallies.get(row["tally"], 0) + row["count"]
        elif row["reason"] is not None:
            self.bad.append((row["reason"], row["row"]))
        else:
            meta = ("piece", "line", "reason", "row", "tally", "count")
            self.good.append({key: value for key, value in row.items() if key not in meta})

    @property
    def failed(self) -> list[str]:
        return [n.removeprefix(FAILED) for n in self.tallies if n.startswith(FAILED)]

    @property
    def skipped(self) -> dict[str, int]:
        return {
            name.removeprefix(SKIPPED): n
            for name, n in self.tallies.items()
            if name.startswith(SKIPPED)
        }

    @property
    def pairs(self) -> list[tuple[Any, Any]]:
        return [(row["user"], row["topic"]) for row in self.good]


def judge(folder: Path, data: bytes, mapping: Mapping = PAIRS, name: str = "trace.tsv") -> Judged:
    path = folder / name
    path.write_bytes(data)
    return Judged([path], mapping)


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"caf\xe9\t2", "not UTF-8"),
        (b"2", "too few columns"),
        (b"2\t2\t2", "too many columns"),
        (b"\t2", "user is empty"),
        (b"2\t", "topic is empty"),
        (b"2\t  ", "topic is empty"),
        (b"-2\t2", "user is negative"),
        (b"2\t-9223372036854775808", "topic is negative"),
        (b"2\tx", "topic is no whole number"),
        (b"2.0\t2", "user is no whole number"),
        (b"0x10\t2", "user is no whole number"),
        (b"+2\t2", "user is no whole number"),
        (b"1e3\t2", "user is no whole number"),
        ("\u0662\t2".encode(), "user is no whole number"),
        (b"9223372036854775808\t2", "user does not fit 64 bits"),
        (b"2\t" + b"9" * 5000, "topic does not fit 64 bits"),
        (b"", "empty row"),
        (b"2\t2\x00", "topic is no whole number"),
    ],
)
def test_a_bad_row_is_quarantined_with_its_reason_and_the_others_stay(
    tmp_path: Path, row: bytes, reason: str
) -> None:
    got = judge(tmp_path, b"1\t1\n" + row + b"\n3\t3\n")
    assert got.pairs == [(1, 1), (3, 3)]
    assert got.bad == [(reason, row.decode("utf-8", "backslashreplace"))]


def test_ids_go_up_to_63_bits_and_leading_zeros_and_blanks_do_not_count(tmp_path: Path) -> None:
    got = judge(tmp_path, b"9223372036854775807\t0\n 7 \t007\n1\t" + b"0" * 30 + b"5\n")
    assert got.pairs == [(2**63 - 1, 0), (7, 7), (1, 5)]
    assert got.bad == []


@pytest.mark.parametrize(
    "data",
    [b"1\t1\r\n2\t2\r\n", b"\xef\xbb\xbf1\t1\n2\t2", b"1\t1\n2\t2\n", b"\xef\xbb\xbf1\t1\r\n2\t2"],
    ids=["CRLF", "BOM, no last line feed", "plain", "BOM and CRLF"],
)
def test_line_ends_and_byte_order_marks_are_no_part_of_rows(tmp_path: Path, data: bytes) -> None:
    got = judge(tmp_path, data)
    assert got.pairs == [(1, 1), (2, 2)]
    assert got.bad == []


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    for name in ("trace.tsv", "trace.tsv.gz", "trace.tsv.zst", "trace.tsv.bz2", "trace.tsv.xz"):
        got = judge(tmp_path, b"", name=name)
        assert (got.good, got.bad, got.tallies.get(ROWS, 0), got.failed) == ([], [], 0, [])


def test_a_header_that_is_not_declared_is_a_bad_row(tmp_path: Path) -> None:
    got = judge(tmp_path, b"user\tgroup\n1\t2\n")
    assert (got.pairs, got.bad) == ([(1, 2)], [("user is no whole number", "user\tgroup")])


def test_a_declared_header_finds_columns_by_name_in_each_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("when,user,topic\n5,1,2\n")
    (tmp_path / "b.csv").write_text("topic,user\n4,3\n6,5,7\n")
    mapping = Mapping("subscriptions", parse_columns("user=user,topic=topic"), "csv", header=True)
    got = Judged([tmp_path / "a.csv", tmp_path / "b.csv"], mapping)
    assert got.pairs == [(1, 2), (3, 4)]
    assert got.bad == [("too many columns", "6,5,7")]
    assert got.skipped == {"header": 2}


def test_a_header_that_lacks_a_column_is_refused_with_those_there_are(tmp_path: Path) -> None:
    mapping = Mapping("subscriptions", parse_columns("user=user,topic=tag"), "csv", header=True)
    with pytest.raises(UniverseTraceError, match="no column tag; it has user, topic"):
        judge(tmp_path, b"user,topic\n1,2\n", mapping, "a.csv")


def test_quotes_enclose_separators_and_open_quotes_are_bad(tmp_path: Path) -> None:
    mapping = Mapping(
        "subscriptions", {"user": (0,), "topic": (1,)}, "csv", names=frozenset({"user", "topic"})
    )
    data = b'"Smith, J","a ""b"""\nplain,c\n"open,d\n"x"y,e\nit"s,f\n'
    got = judge(tmp_path, data, mapping, "trace.csv")
    assert got.pairs == [("Smith, J", 'a "b"'), ("plain", "c"), ('it"s', "f")]
    assert got.bad == [("quotes do not match", '"open,d'), ("quotes do not match", '"x"y,e')]


def test_a_row_too_long_is_quarantined_and_does_not_fill_memory(tmp_path: Path) -> None:
    path = tmp_path / "trace.tsv"
    path.write_bytes(b"1\t1\n" + b"7" * 5000 + b"\t8\n2\t2\n")
    found = list(blocks(Piece(0, str(path), None), size=64, longest=1000))
    assert [block.too_long for block in found].count(True) == 1
    assert b"".join(block.data for block in found if not block.too_long) == b"1\t1\n2\t2\n"
    assert max(len(block.data) for block in found) <= 1000
    got = judge(tmp_path, b"1\t1\n" + b"x" * (24 << 20) + b"\n2\t2\n")
    assert got.pairs == [(1, 1), (2, 2)]
    [(reason, shown)] = got.bad
    assert reason == "row too long"
    assert len(shown) < LONGEST_SHOWN + 50


# -- files -----------------------------------------------------------------------------------------

PACK = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}
MANY = b"".join(b"%d\t%d\n" % (n, n * 7919 % 104729) for n in range(20_000))


@pytest.mark.parametrize("ending", PACK)
def test_compressed_files_are_read_whole_and_truncated_ones_refused(
    tmp_path: Path, ending: str
) -> None:
    packed = PACK[ending](MANY)
    whole = judge(tmp_path, packed, name=f"trace.tsv.{ending}")
    assert (len(whole.good), whole.bad) == (20_000, [])
    for most in (len(packed) // 2, len(packed) - 3):
        cut = judge(tmp_path, packed[:most], TWO_WIDE, f"cut.tsv.{ending}")
        [message] = cut.failed
        assert f"cut.tsv.{ending}" in message


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
def test_streams_one_after_the_other_are_all_read_and_damage_after_one_is_refused(
    tmp_path: Path, ending: str
) -> None:
    one = PACK[ending](MANY)
    twice = judge(tmp_path, one + one, name=f"trace.tsv.{ending}")
    assert len(twice.good) == 40_000
    damaged = judge(tmp_path, one + b"no stream at all", TWO_WIDE, f"trace.tsv.{ending}")
    assert len(damaged.failed) == 1


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UniverseTraceError, match=r"by its name trace\.tsv\.gz is gzip"):
        judge(tmp_path, b"1\t1\n", name="trace.tsv.gz")
    with pytest.raises(UniverseTraceError, match="by its content it is gzip"):
        judge(tmp_path, gzip.compress(b"1\t1\n"), name="trace.tsv")
    with pytest.raises(UniverseTraceError, match="by its content it is bz2"):
        judge(tmp_path, bz2.compress(b"1\t1\n"), name="trace.tsv.gz")
    with pytest.raises(UniverseTraceError, match="UTF-16"):
        judge(tmp_path, "1\t1\n".encode("utf-16"))
    with pytest.raises(UniverseTraceError, match="cannot read zip"):
        judge(tmp_path, b"PK\x03\x04rest", name="trace.zip")


def test_names_that_look_like_the_beginning_of_a_packed_file_are_text(tmp_path: Path) -> None:
    mapping = Mapping(
        "subscriptions", {"user": (0,), "topic": (1,)}, "tsv", names=frozenset({"user"})
    )
    for name in ("BZh9ang", "PAR1S", "PK"):
        assert judge(tmp_path, f"{name}\t1\n".encode(), mapping).pairs == [(name, 1)]
    got = judge(tmp_path, gzip.compress(b"1\t1\n"), name="TRACE.TSV.GZ")
    assert got.pairs == [(1, 1)]


def test_a_directory_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UniverseTraceError, match="is a directory; name its files"):
        Judged([tmp_path], PAIRS)
    with pytest.raises(UniverseTraceError, match=r"cannot read .*missing"):
        Judged([tmp_path / "missing.tsv"], PAIRS)
    (tmp_path / "a.tsv").write_bytes(b"1\t1\n")
    with pytest.raises(UniverseTraceError, match="named twice"):
        Judged([tmp_path / "a.tsv", tmp_path / "a.tsv"], PAIRS)


@given(
    data=st.lists(st.sampled_from([b"1\t2", b"", b"333\t4", b"\r", b"5\t\xc3\xa9"]), max_size=12),
    ended=st.booleans(),
    mark=st.booleans(),
    cut=st.integers(1, 30),
    size=st.integers(1, 16),
)
def test_pieces_hold_every_line_once_wherever_they_are_cut(
    tmp_path_factory: pytest.TempPathFactory,
    data: list[bytes],
    ended: bool,
    mark: bool,
    cut: int,
    size: int,
) -> None:
    text = b"\n".join(data) + (b"\n" if ended and data else b"")
    path = tmp_path_factory.mktemp("cut") / "trace.tsv"
    path.write_bytes((BOM if mark else b"") + text)
    expected = text.removesuffix(b"\n").split(b"\n") if text else []
    found: list[bytes] = []
    for piece in pieces(find_sources([path], "tsv"), "tsv", cut=cut):
        for block in blocks(piece, size=size):
            found += block.data.removesuffix(b"\n").split(b"\n")
    assert found == expected


def test_lines_are_numbered_through_all_blocks_of_a_piece(tmp_path: Path) -> None:
    path = tmp_path / "trace.tsv"
    rows = 700_000
    path.write_bytes(b"".join(b"%d\t1\n" % n for n in range(rows)))
    assert path.stat().st_size > BLOCK
    sources = find_sources([path], "tsv")
    [piece] = pieces(sources, "tsv")
    table = pa.Table.from_batches(judged(0, piece, PAIRS, layouts(sources, PAIRS)[0]))
    good = table.filter(pc.is_null(table["tally"]))
    assert good.num_rows == rows
    assert good["line"].equals(good["user"])


def test_the_format_is_guessed_from_the_name() -> None:
    names = ["a.tsv.gz", "a.csv", "a.jsonl.zst", "a.ndjson", "a.parquet", "a.gz", "a", "a.TSV"]
    guesses = ["tsv", "csv", "json", "json", "parquet", None, None, "tsv"]
    assert [format_of(Path(name)) for name in names] == guesses


# -- formats ---------------------------------------------------------------------------------------


def test_any_separator_and_comments(tmp_path: Path) -> None:
    mapping = Mapping(
        "subscriptions", {"user": (0,), "topic": (1,)}, "text", separator="::", comment="#"
    )
    got = judge(tmp_path, b"# from::to\n1::2\n# caf\xe9\n3::4\n", mapping, "trace.dat")
    assert (got.pairs, got.skipped) == ([(1, 2), (3, 4)], {"comment": 2})
    runs = Mapping("subscriptions", {"user": (0,), "topic": (1,)}, "text", separator="whitespace")
    assert judge(tmp_path, b" 1 \t 2\n3 4 \n", runs, "trace.txt").pairs == [(1, 2), (3, 4)]
    assert parse_separator("\\t") == parse_separator("tab") == "\t"


def test_json_lines_of_every_wrong_kind(tmp_path: Path) -> None:
    mapping = Mapping("subscriptions", {"user": ("who.id",), "topic": ("t",)}, "json")
    rows = [
        b'{"who": {"id": 1}, "t": "2"}',
        b'{"who": {"id": 1}, "t": 2',
        b"[1, 2]",
        b'{"who": {"id": true}, "t": 2}',
        b'{"who": {}, "t": 2}',
        b'{"who": {"id": 1.5}, "t": 2}',
        b'{"who": {"id": 1}, "t": [2]}',
        b'{"who": {"id": -1}, "t": 2}',
        b'{"who": {"id": 1}, "t": ' + b"9" * 30 + b"}",
        b'{"who.id": 3, "t": 4}',
        b'{"who": {"id": "\xff"}, "t": 2}',
    ]
    got = judge(tmp_path, b"\n".join(rows), mapping, "trace.jsonl")
    assert got.pairs == [(1, 2), (3, 4)]
    assert [reason for reason, _ in got.bad] == [
        "broken JSON",
        "no JSON object",
        "user has a wrong type",
        "user is empty",
        "user has a wrong type",
        "topic has a wrong type",
        "user is negative",
        "topic does not fit 64 bits",
        "not UTF-8",
    ]


def parquet(folder: Path, **columns: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "trace.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return path


def test_parquet_of_numbers_and_of_wrong_types(tmp_path: Path) -> None:
    mapping = Mapping("subscriptions", {"user": ("u",), "topic": ("t",)}, "parquet")
    unsigned = pa.array([1, 2**63, None, 4, 5], pa.uint64())
    path = parquet(tmp_path, x=[0] * 5, u=unsigned, t=["1", "2", "3", "x", "5"])
    got = Judged([path], mapping)
    assert got.pairs == [(1, 1), (5, 5)]
    assert [reason for reason, _ in got.bad] == [
        "user does not fit 64 bits", "user is empty", "topic is no whole number",
    ]  # fmt: skip
    assert json.loads(got.bad[0][1]) == {"u": 2**63, "t": "2"}
    for name, wrong in (
        ("user", parquet(tmp_path / "1", u=[1.0, 2.5], t=[1, 2])),
        ("topic", parquet(tmp_path / "2", u=[1, 2], t=[b"a", b"b"])),
        ("topic", parquet(tmp_path / "3", u=[1, 2], t=[True, False])),
        ("topic", parquet(tmp_path / "4", u=[1, 2], t=[[1], [2]])),
    ):
        reasons = [reason for reason, _ in Judged([wrong], mapping).bad]
        assert reasons == [f"{name} has a wrong type"] * 2
    with pytest.raises(UniverseTraceError, match="no column t; it has u"):
        Judged([parquet(tmp_path, u=[1])], mapping)


def test_parquet_that_is_damaged_is_refused(tmp_path: Path) -> None:
    mapping = Mapping("subscriptions", {"user": ("u",), "topic": ("u",)}, "parquet")
    path = parquet(tmp_path, u=[1, 2])
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UniverseTraceError, match="no sound Parquet file"):
        Judged([path], mapping)
    with pytest.raises(UniverseTraceError, match="but the format given is parquet"):
        judge(tmp_path, b"1\t1\n", mapping, "trace.tsv")


def test_lists_of_members_become_pairs_with_the_line_as_topic(tmp_path: Path) -> None:
    mapping = Mapping("subscriptions", format="lists")
    path = tmp_path / "communities.txt"
    path.write_bytes(b"1\t2\t3\n\n4\tx\n\xff\t5\n6\n")
    source = find_sources([path], "lists")[0]
    got = Judged([path], mapping)
    assert [row["user"] for row in got.good] == [1, 2, 3, 4, 6]
    assert sorted(got.bad) == [
        ("empty row", ""), ("not UTF-8", "\\xff\t5"), ("user is no whole number", "x"),
    ]  # fmt: skip
    assert (got.tallies[ROWS], got.tallies[LINES]) == (8, 5)
    [piece] = pieces([source], "lists")
    lines = [
        row["line"]
        for batch in judged(0, piece, mapping, layouts([source], mapping)[0])
        for row in batch.to_pylist()
        if row["tally"] is None and row["reason"] is None
    ]
    assert lines == [0, 0, 0, 2, 4]


def test_conditions_skip_rows_and_count_them(tmp_path: Path) -> None:
    mapping = Mapping(
        "subscriptions", {"user": (2,), "topic": (1,)}, "ssv", width=3,
        conditions=(RowCondition(0, "REVISION"), parse_condition("2!=ip:.*")),
    )  # fmt: skip
    data = b"REVISION 7 1\nCOMMENT by me, long\n\nREVISION 7 ip:1.2.3.4\nREVISION 8\n"
    got = judge(tmp_path, data, mapping, "trace.ssv")
    assert got.pairs == [(1, 7)]
    assert got.bad == [("too few columns", "REVISION 8")]
    assert got.skipped == {"empty line": 1, "not where 0=REVISION": 1, "not where 2!=ip:.*": 1}


# -- public forms ---------------------------------------------------------------------------------


def history_row(width: int, **cells: str) -> str:
    row = [""] * width
    for place, cell in cells.items():
        row[int(place[1:])] = cell
    return "\t".join(row)


OLD = {"_1": "revision", "_2": "create", "_3": "2012-04-01 10:00:00.0", "_17": "false"}
OLD |= {"_28": "0", "_23": "7", "_52": "900"}
NEW = {"_2": "revision", "_3": "create", "_4": "2026-04-01 10:00:00.0", "_21": "true"}
NEW |= {"_33": "0", "_28": "7", "_60": "900"}
FORMS = {
    "snap-edges": "# Directed graph\n# FromNodeId\tToNodeId\n5\t0\n6\t0\n6\t1\n",
    "snap-temporal": "5 0 1\n6 0 2\n6 1 3\n6 1 4\n",
    "wiki-meta": (
        "REVISION 0 900 A_page 2006-08-28T14:11:16Z Ann 5\nCATEGORY x y\n\n"
        "REVISION 0 901 A_page 2006-08-28T14:12:16Z ip:1.2.3.4 ip:1.2.3.4\nMINOR 1\n\n"
        "REVISION 0 902 A_page 2006-08-28T14:13:16Z Bob 6\n\n"
        "REVISION 1 903 B_page 2006-08-28T14:13:16Z Bob 6\n"
    ),
    "mediawiki-history-2019": "\n".join(
        history_row(70, **(OLD | cells))
        for cells in (
            {"_5": "5", "_23": "0"},
            {"_5": "", "_17": "true", "_52": "901"},
            {"_5": "6", "_23": "0", "_52": "902"},
            {"_5": "6", "_23": "1", "_52": "903"},
            {"_1": "user", "_5": "6", "_52": "904"},
        )
    ),
    "mediawiki-history": "\n".join(
        history_row(78, **(NEW | cells))
        for cells in (
            {"_6": "5", "_28": "0"},
            {"_6": "9", "_21": "false", "_60": "901"},
            {"_6": "6", "_28": "0", "_60": "902"},
            {"_6": "6", "_28": "1", "_60": "903"},
            {"_33": "1", "_6": "6", "_60": "904"},
        )
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_public_form_is_imported(tmp_path: Path, name: str) -> None:
    """Users 5 and 6 in topic 0, and 6 in topic 1: all of these small traces say so."""
    mapping = find_importer(name).mapping
    assert mapping is not None
    got = judge(tmp_path, FORMS[name].encode(), mapping, "trace.txt")
    told = {
        (row["user"], topic)
        for row in got.good
        for topic in (row["topic"] if isinstance(row["topic"], list) else [row["topic"]])
    }
    assert told == {(5, 0), (6, 0), (6, 1)}
    assert got.bad == []
    if "post" in mapping.columns:
        assert [row["post"] for row in got.good] == [900, 902, 903]
        assert {row["time"].year for row in got.good} <= {2006, 2012, 2026}


DATA = ROOT.parent / "shared" / "data"
real = pytest.mark.skipif(not DATA.exists(), reason="the real traces are not beside the project")


@real
def test_the_irc_trace_has_the_sizes_that_its_source_tells() -> None:
    mapping = find_importer("irc").mapping
    assert mapping is not None
    sources = find_sources([DATA / "irc_conversations.csv.gz"], "csv")
    [piece] = pieces(sources, "csv")
    batches = judged(0, piece, mapping, layouts(sources, mapping)[0])
    rows = pa.Table.from_batches(batches)
    assert pc.count(rows["reason"]).as_py() == 0
    good = rows.filter(pc.is_null(rows["tally"]))
    assert len(good) == len(pc.unique(good["post"])) == 238_164
    assert len(pc.unique(good["user"])) == 18_831
    links = pc.list_flatten(good["reply_to"])
    assert len(links) == 62_901
    assert pc.sum(pc.invert(pc.is_in(links, value_set=pc.unique(good["post"])))).as_py() == 81


@real
def test_ask_ubuntu_has_the_sizes_that_its_source_tells() -> None:
    threads = read_simplices(DATA / "askubuntu", THREADS)
    tags = read_simplices(DATA / "askubuntu", TAGS)
    topics = dict(zip(tags.labels.tolist(), tags.members.to_pylist(), strict=True))
    joined = [
        (users, topics[question])
        for question, users in zip(
            threads.labels.tolist(), threads.members.to_pylist(), strict=True
        )
        if question in topics
    ]
    assert len(joined) == 186_746
    assert sum(len(about) for _, about in joined) / len(joined) == pytest.approx(2.66, abs=0.005)
    pairs = {(user, topic) for users, about in joined for user in users for topic in about}
    assert len(pairs) == 670_005
    assert len({user for user, _ in pairs}) == 125_570
    assert len({topic for _, topic in pairs}) == 2_962


# -- publications ----------------------------------------------------------------------------------

POSTS = Mapping(
    "publications",
    parse_columns("post=0+1,time=2,user=3,topics=4,replies=0+5"),
    "csv",
    list_separator=";",
    nothing="-",
    names=frozenset({"topic"}),
    time_unit="ms",
)


def test_publications_with_lists_names_and_replies(tmp_path: Path) -> None:
    data = (
        b"log,1,1500,7,a;b,-\n"
        b"log,2,2000,8,b,1\n"
        b"lo/g,3,2500,8,b,\n"
        b"log,4,x,8,b,1;2\n"
        b"log,5,9,8,a;;b,1\n"
        b"log,6,9,8,,1\n"
        b"log,7,9,8,a,1;;2\n"
        b",8,9,8,a,-\n"
    )
    got = judge(tmp_path, data, POSTS, "posts.csv")
    assert got.good == [
        {
            "post": "log/1", "time": datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC), "user": 7,
            "topic": ["a", "b"], "reply_to": [],
        },
        {
            "post": "log/2", "time": datetime(1970, 1, 1, 0, 0, 2, 0, UTC), "user": 8,
            "topic": ["b"], "reply_to": ["log/1"],
        },
        {
            "post": "lo%2Fg/3", "time": datetime(1970, 1, 1, 0, 0, 2, 500_000, UTC), "user": 8,
            "topic": ["b"], "reply_to": None,
        },
    ]  # fmt: skip
    assert [reason for reason, _ in got.bad] == [
        "time is no number of ms", "topic is empty", "topic is empty", "reply_to is empty",
        "post is empty",
    ]  # fmt: skip


def test_publications_in_json_and_parquet_have_lists_of_their_own(tmp_path: Path) -> None:
    mapping = Mapping(
        "publications", parse_columns("time=when,user=u,topics=tags"), "json", time_unit="iso"
    )
    lines = [
        b'{"when": "2012-04-01T12:00:00Z", "u": 1, "tags": [3, "4"]}',
        b'{"when": "2012-04-01", "u": 1, "tags": 3}',
        b'{"when": "yesterday", "u": 1, "tags": [3]}',
        b'{"when": "2012-04-01", "u": 1, "tags": []}',
        b'{"when": "2012-04-01", "u": 1, "tags": [[3]]}',
        b'{"when": "2012-04-01", "u": 1, "tags": [null]}',
    ]
    got = judge(tmp_path, b"\n".join(lines), mapping, "posts.jsonl")
    assert [row["topic"] for row in got.good] == [[3, 4], [3]]
    assert got.good[0]["time"] == datetime(2012, 4, 1, 12, tzinfo=UTC)
    assert [reason for reason, _ in got.bad] == [
        "time is no time in ISO 8601", "topic is empty", "topic has a wrong type",
        "topic is empty",
    ]  # fmt: skip
    moments = pa.array([datetime(2012, 4, 1, 12), None], pa.timestamp("ms"))
    path = parquet(tmp_path, when=moments, u=[1, 2], tags=[[3, 4], [5]])
    stored = Judged([path], Mapping("publications", dict(mapping.columns), "parquet"))
    assert stored.good == [
        {"time": datetime(2012, 4, 1, 12, tzinfo=UTC), "user": 1, "topic": [3, 4]}
    ]
    assert [reason for reason, _ in stored.bad] == ["time is empty"]


STAMPED = Mapping("publications", {"time": ("when",), "topic": ("t",)}, "parquet")


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamps_of_parquet_outside_the_years_1_to_9999_are_quarantined(
    tmp_path: Path, zone: str | None
) -> None:
    """The microseconds of 2^61 ms do not fit 64 bits; Python can show no such moment."""
    ends = [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_000)]
    first, last = (int(one.replace(tzinfo=UTC).timestamp() // 1) * 1_000 for one in ends)
    last += 999
    given = [0, 2**61, 10**15, None, first, first - 1, last, last + 1, -(2**63)]
    stamps = pa.array(given, pa.int64()).cast(pa.timestamp("ms", tz=zone))
    got = Judged([parquet(tmp_path, when=stamps, t=list(range(9)))], STAMPED)
    assert [(row["time"].replace(tzinfo=None), row["topic"]) for row in got.good] == [
        (datetime(1970, 1, 1), [0]), (ends[0], [4]), (ends[1], [6]),
    ]  # fmt: skip
    reasons = {json.loads(row)["t"]: reason for reason, row in got.bad}
    beyond = dict.fromkeys((1, 2, 5, 7, 8), "time is out of range")
    assert reasons == {**beyond, 3: "time is empty"}
    assert str(2**61) in got.bad[0][1]


def test_timestamps_of_parquet_are_the_same_moments_in_all_units(tmp_path: Path) -> None:
    """Spark writes 96 bits, in which nanoseconds reach all years."""
    moments = [datetime(1500, 1, 2, 3, 4, 5), datetime(9999, 1, 1)]
    for unit in ("s", "ms", "us"):
        table = pa.table({"when": pa.array(moments, pa.timestamp(unit)), "t": [1, 2]})
        path = tmp_path / f"{unit}.parquet"
        pq.write_table(table, path, use_deprecated_int96_timestamps=unit == "us")
        got = Judged([path], STAMPED)
        assert [row["time"].replace(tzinfo=None) for row in got.good] == moments
    edges = pa.array([-(2**63) + 1, 1_500, 2**63 - 1], pa.int64()).cast(pa.timestamp("ns"))
    got = Judged([parquet(tmp_path, when=edges, t=[1, 2, 3])], STAMPED)
    assert [row["time"].year for row in got.good] == [1677, 1970, 2262]
    assert got.good[1]["time"].microsecond == 1


def test_a_row_with_several_bad_items_is_one_bad_row(tmp_path: Path) -> None:
    mapping = Mapping("publications", {"topic": (0,)}, "csv", list_separator=";")
    got = judge(tmp_path, b"1;2\n-1;x;-2\n", mapping, "posts.csv")
    assert [row["topic"] for row in got.good] == [[1, 2]]
    assert got.bad == [("topic is negative", "-1;x;-2")]


# -- values ----------------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.integers(-(2**65), 2**65).map(str), st.text(max_size=4)), max_size=20))
def test_whole_numbers_agree_with_python(cells: list[str]) -> None:
    values, problems = whole_numbers(pa.array(cells, pa.string()))
    told = {i: reason for mask, reason in problems for i in range(len(cells)) if mask[i]}
    for number, (cell, value) in enumerate(zip(cells, values.to_pylist(), strict=True)):
        text = cell.strip(" ")
        if text.isascii() and text.isdigit() and int(text) < 2**63:
            assert (value, told.get(number)) == (int(text), None)
        else:
            assert value is None
            assert number in told


@pytest.mark.parametrize(
    ("cell", "unit", "expected"),
    [
        ("0", "s", 0),
        ("1.5", "s", 1_500_000),
        ("-1", "s", -1_000_000),
        ("48942985907", "ms", 48_942_985_907_000),
        ("5", "us", 5),
        ("1970-01-01 00:00:01.0", "iso", 1_000_000),
        ("1970-01-01T01:00:00+01:00", "iso", 0),
        ("1e20", "s", "is out of range"),
        ("nan", "s", "is no number of s"),
        ("Infinity", "ms", "is no number of ms"),
        ("", "s", "is empty"),
        ("12:30", "s", "is no number of s"),
        ("2012-02-30", "iso", "is no time in ISO 8601"),
        ("", "iso", "is empty"),
        ("0001-01-01T00:00:00Z", "iso", -62_135_596_800_000_000),
        ("9999-12-31T23:59:59.999999", "iso", 253_402_300_799_999_999),
        ("0000-12-31", "iso", "is no time in ISO 8601"),
        ("0000-01-01T00:00:00Z", "iso", "is no time in ISO 8601"),
        ("0001-01-01T00:00:00+01:00", "iso", "is out of range"),
        ("9999-12-31T23:59:59-01:00", "iso", "is out of range"),
        ("-62135596800", "s", -62_135_596_800_000_000),
        ("-62135596800.000001", "s", "is out of range"),
        ("253402300799.999999", "s", 253_402_300_799_999_999),
        ("253402300800", "s", "is out of range"),
    ],
)
def test_times_become_microseconds_in_utc(cell: str, unit: str, expected: int | str) -> None:
    values, problems = times(pa.array([cell], pa.string()), unit)
    if isinstance(expected, str):
        assert values.to_pylist() == [None]
        assert [(mask.tolist(), reason) for mask, reason in problems] == [([True], expected)]
    else:
        assert values.cast(pa.int64()).to_pylist() == [expected]
        assert problems == []


def test_zones_count_also_where_times_are_mixed() -> None:
    cells = ["1970-01-01T01:00:00+01:00", "1970-01-01 00:00:01", "x", "1969-12-31T23:59:59.5Z"]
    values, problems = times(pa.array(cells), "iso")
    assert values.cast(pa.int64()).to_pylist() == [0, 1_000_000, None, -500_000]
    assert [reason for _, reason in problems] == ["is no time in ISO 8601"]


@pytest.mark.parametrize("beside", ["x", "2012-04-01T12:00:00Z", "2012-04-01 12:00:00", None])
@pytest.mark.parametrize(
    "cell",
    [
        "0000-01-01T00:00:00Z",
        "0000-02-29",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:00-00:01",
        "9999-12-31T23:59:59.999999Z",
        "2012-04-01T12:00:00.5+02:00",
        "2012-02-30T00:00:00Z",
    ],
)
def test_the_verdict_on_a_time_does_not_depend_on_its_neighbours(
    cell: str, beside: str | None
) -> None:
    def verdict(cells: list[str | None]) -> tuple[int | None, list[str]]:
        values, problems = times(pa.array(cells, pa.string()), "iso")
        reasons = [reason for mask, reason in problems if mask[0]]
        return values.cast(pa.int64())[0].as_py(), reasons

    alone = verdict([cell])
    assert (alone[0] is None) == (len(alone[1]) == 1)
    assert verdict([cell, beside]) == alone


def test_names_of_several_columns_differ_where_the_columns_do() -> None:
    left = joined([pa.array(["a/b", "a", "%2F", ""]), pa.array(["c", "b/c", "x", "y"])])
    assert left.to_pylist() == ["a%2Fb/c", "a/b%2Fc", "%252F/x", ""]


# -- mappings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": {"user": (0,)}}, "subscriptions need topic"),
        ({"columns": {"user": (0,), "topic": (1,), "time": (2,)}}, "no 'time'"),
        ({"format": "xml"}, "format 'xml'"),
        ({"columns": {"user": ("u",), "topic": (1,)}}, "need a header"),
        ({"columns": {"user": (-1,), "topic": (1,)}}, "position from 0"),
        ({"names": frozenset({"topics"})}, "'topics' is no column with ids"),
        ({"time_unit": "h"}, "time unit 'h'"),
        ({"separator": ""}, "separator is empty"),
        ({"quote": "\t"}, "quote"),
        ({"quote": "'", "separator": "::"}, "separator of one character"),
        ({"list_separator": "\t"}, "must differ"),
        ({"conditions": (RowCondition(0, "("),)}, "where 0=\\("),
        ({"kind": "posts"}, "not 'posts'"),
        ({"kind": "publications", "columns": {"topic": (0,), "reply_to": (1,)}}, "post must be"),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_refused(options: dict[str, Any], message: str) -> None:
    whole = {
        "kind": "subscriptions", "columns": {"user": (0,), "topic": (1,)}, "format": "tsv",
    } | options  # fmt: skip
    with pytest.raises(UniverseTraceError, match=message):
        Mapping(**whole)


@pytest.mark.parametrize("text", ["user", "user=", "=1", "user=1,user=2", "user=1+"])
def test_columns_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(UniverseTraceError, match="columns"):
        parse_columns(text)


def test_positions_make_no_sense_in_json(tmp_path: Path) -> None:
    mapping = Mapping("subscriptions", {"user": (0,), "topic": (1,)}, "json")
    with pytest.raises(UniverseTraceError, match="JSON has keys"):
        judge(tmp_path, b"{}\n", mapping, "trace.jsonl")
