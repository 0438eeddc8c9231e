"""The report: figures and a page from hand-made rows."""

from __future__ import annotations

import csv
import random
import re
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from msgspec.structs import replace as changed

from cubecast.lab import report
from cubecast.lab.cells import Settings
from cubecast.lab.experiment import Block, Experiment, PaperNumber, Plot, Seeds
from cubecast.lab.report.data import Findings, HistogramRow, Provenance
from cubecast.lab.report.wording import MINUS, NONE, difference_text, measured, plain, setting_label
from cubecast.lab.verdicts import Row, Verdict, headline

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from cubecast.lab.report import figures, labels
from cubecast.lab.report.curve_styles import PAPER, PROTOCOL_COLOURS, SIZES, WidthName, looks_of
from cubecast.lab.report.curves import buckets_of, curves_of, shown_in
from cubecast.lab.report.paper_marks import marks
from cubecast.lab.report.plots import draw_on
from cubecast.lab.report.verdict_tables import MEANINGS, SIGNS

EVIL = """<script>alert("x & 'y'")</script>"""
NODES = [8, 64, 1024]
LATENCY = Plot(
    name="a", title="Latency", x="nodes", y="latency_mean", series=["protocol"], log_x=True
)
BARS = Plot(
    name="b", title="Parts", kind="bars", x="nodes", y=["latency_mean", "pub_messages"],
    series=["protocol"], log_y=True,
)  # fmt: skip
DELAYS = Plot(name="c", title="Delays", kind="histogram", x="delay", series=["wait"])


def number(**changes: Any) -> PaperNumber:
    plain_one: dict[str, Any] = {
        "section": "[J] 4.1", "what": "latency", "value": 500, "unit": "u.t.",
        "metric": "latency_mean", "at": {"protocol": "vcube-ps", "nodes": 1024}, "tolerance": 0.03,
    }  # fmt: skip
    return PaperNumber(**{**plain_one, **changes})


def experiment(id: str = "4.1", **changes: Any) -> Experiment:
    plain_one: dict[str, Any] = {
        "id": id, "title": "One publisher", "source": "[J] 4.1", "about": "One message.",
        "workload": "single-publisher", "metrics": ["latency_mean", "pub_messages"],
        "grid": [Block({"protocol": ["vcube-ps", "srpt"], "nodes": NODES})],
        "seeds": Seeds(40), "plot": [LATENCY, BARS],
        "paper": [
            number(),
            number(what="far off", value=100, reason="Because."),
            number(what="hardly off", value=484.9),
            number(what="left out", at={"protocol": "vcube-ps", "nodes": 4096}),
        ],
    }  # fmt: skip
    return Experiment(**{**plain_one, **changes})


def rows(id: str = "4.1") -> list[Row]:
    found = []
    for protocol in ("vcube-ps", "srpt"):
        for nodes, latency in zip(NODES, (120.0, 300.0, 500.0), strict=True):
            at: Settings = {"protocol": protocol, "nodes": nodes, "hop": 100}
            more = 100.0 if protocol == "srpt" else 0.0
            found.append(Row(id, at, "latency_mean", latency + more, 2.5, 5))
            found.append(Row(id, at, "pub_messages", nodes - 1.0, 0.0, 5))
    return found


def histogram(id: str = "4.1", buckets: int = 6) -> list[HistogramRow]:
    return [
        HistogramRow(id, {"wait": wait}, "delay", bucket, 100.0 / (bucket + wait), 1.5, 5)
        for wait in (1, 10)
        for bucket in range(buckets)
    ]


MISSING = {"4.1": [f"nodes=64 seed {seed}" for seed in range(3)]}
VERSIONS = {"cubecast": "0.1.0", "python": "3.11.2", "pyspark": "4.0.1", "numba": "0.62.0"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
MADE = [
    Provenance(
        "cubecast lab run 4.1 --quick", "2024-02-03", VERSIONS, 5, True, "local[2]", 30,
        commit=COMMIT,
    )
]  # fmt: skip


def written(results: Findings, out: Path) -> str:
    return report.write(results, out).read_text(encoding="utf-8")


class Outline(HTMLParser):
    """The elements of a page, which must be closed in the order they were opened."""

    VOID = ("meta", "br", "hr", "img", "link", "input")

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            elif name in ("href", "src", "xlink:href"):
                self.links.append(str(value))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


# -- the page -------------------------------------------------------------------------------------


def draw(one: Experiment, plot: Plot, *data: Any, **options: Any) -> figures.Drawing:
    """One figure alone."""
    (drawing,) = figures.draw_all(changed(one, plot=(plot,)), *data, **options).values()
    assert drawing is not None
    return drawing


def test_the_page_has_every_experiment_and_every_verdict(tmp_path: Path) -> None:
    both = [experiment(), experiment("4.2", title="Many publishers")]
    page = Outline(written(Findings(both, rows(), (), MADE), tmp_path))
    for one in both:
        assert one.title in page.text
        assert f"e-{one.id}" in page.ids
        for paper in one.paper:
            said = f"{paper.what} {paper.section}"
            assert page.text.count(said) == 2, "once in each experiment: no table twice"
    for judgement in ("reproduced", "differs", "undecided", "not measured"):
        assert f"{SIGNS[judgement]} {judgement}" in page.text
    assert (
        "1 reproduced 0 in another reading only 0 kept, not reached 1 differs 1 undecided"
        " 5 not measured 0 not compared 0 from the settings alone"
    ) in page.text
    assert "The experiments' own files state 8 numbers: 1 comes out in one reading" in page.text
    assert "1 reproduced, 1 differs, 1 undecided, 1 not measured" in page.text
    assert "Because." in page.text
    assert MADE[0].command in page.text
    assert VERSIONS["numba"] in page.text


def test_the_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    source = written(
        Findings([experiment(plot=[LATENCY, BARS, DELAYS])], rows(), histogram(), MADE), tmp_path
    )
    page = Outline(source)
    assert not re.search(r"https?:|url\((?!#)|@import|src=", source)
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert page.tags.count("svg") == 3
    assert len(page.ids) == len(set(page.ids)), "figures share no names"
    inside = [link[1:] for link in page.links if link.startswith("#")]
    assert inside
    assert set(inside) <= set(page.ids)
    files = [link for link in page.links if not link.startswith("#")]
    assert files
    assert all((tmp_path / link).stat().st_size > 0 for link in files)


def test_text_is_escaped_everywhere(tmp_path: Path) -> None:
    one = experiment(
        title=EVIL, source=EVIL, about=EVIL,
        plot=[Plot(name=EVIL, title=EVIL, x="nodes", y="latency_mean", series=["protocol"],
                   x_label=EVIL, y_label=EVIL)],
        paper=[number(what=EVIL, section=EVIL, unit=EVIL, accounting=EVIL, reason=EVIL, value=1)],
    )  # fmt: skip
    strange = [
        replace(row, settings={**row.settings, "protocol": f"{EVIL}$_{row.settings['protocol']}"})
        for row in rows()
    ]
    made = [Provenance(EVIL, EVIL, {"cubecast": EVIL}, 1, False, EVIL)]
    results = Findings([one], [*strange, *rows()], (), made, {"4.1": [EVIL]}, [EVIL])
    source = written(results, tmp_path)
    assert "script" not in Outline(source).tags
    assert "<script" not in source
    assert "alert(" in source
    *others, command = (tmp_path / "report.md").read_text(encoding="utf-8").splitlines()
    assert "<script" not in "\n".join(others)
    assert command.startswith(f"- `{EVIL}`: "), "what is code needs no escape"
    assert "<script" not in command.removeprefix(f"- `{EVIL}`")
    assert {path.parent for path in tmp_path.rglob("*.svg")} == {tmp_path / "figures"}


def test_a_run_without_a_single_point_says_so(tmp_path: Path) -> None:
    one = experiment(plot=[LATENCY, BARS, DELAYS])
    report.write(Findings([one], rows(), histogram()), tmp_path)
    assert len(list(tmp_path.glob("figures/*"))) == 6
    page = Outline(written(Findings([one], [], []), tmp_path))
    assert page.text.count("None of its points was measured in this run.") == 3
    assert (
        "0 reproduced 0 in another reading only 0 kept, not reached 0 differs 0 undecided"
        " 4 not measured"
    ) in page.text
    assert "svg" not in page.tags
    assert not list(tmp_path.glob("figures/*")), "figures of an earlier report are not this one's"


def test_missing_points_and_numbers_that_are_none(tmp_path: Path) -> None:
    some = [row for row in rows() if row.settings["nodes"] != 64 or row.metric == "pub_messages"]
    some.append(Row("4.1", {"protocol": "srpt", "nodes": 64}, "latency_mean", float("nan"), 0.0, 5))
    page = Outline(written(Findings([experiment()], some, (), MADE), tmp_path))
    assert page.tags.count("svg") == 2
    assert "1 point is not shown" in page.text


def test_the_same_rows_in_any_order_give_the_same_files(tmp_path: Path) -> None:
    one = experiment(plot=[LATENCY, BARS, DELAYS])
    shuffled, buckets = rows(), histogram()
    random.Random(3).shuffle(shuffled)
    random.Random(4).shuffle(buckets)
    report.write(Findings([one], rows(), histogram(), MADE), tmp_path / "a")
    report.write(Findings([one], shuffled, buckets, MADE), tmp_path / "b")
    names = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*"))
    assert len(names) == 10
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_the_tables_beside_the_page(tmp_path: Path) -> None:
    results = Findings([experiment()], rows(), (), MADE)
    report.write(results, tmp_path)
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert table[0].startswith("| what | paper | ours |")
    assert len(table) == 2 + 4
    assert len({re.sub(r"\\\|", "", line).count("|") for line in table}) == 1
    pictures = re.findall(r"!\[.*\]\((.*)\)", page)
    assert pictures
    assert all((tmp_path / picture).is_file() for picture in pictures)
    assert "\n*Latency.* Error bars: 95 % confidence" in page, "the title is seen, too"
    with (tmp_path / "verdicts.csv").open(encoding="utf-8") as file:
        verdicts = list(csv.DictReader(file))
    assert [one["verdict"] for one in verdicts] == [
        "reproduced", "differs", "undecided", "not measured",
    ]  # fmt: skip
    assert verdicts[3]["ours"] == ""
    with (tmp_path / "points.csv").open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(rows())


CLAIMS = [
    number(
        what="a claim", row="J.4.1-hop", value=505, tolerance=5, absolute=True,
        tolerance_from="limit of ours",
    ),
    number(
        what="a majority", row="N.F7-40", value=600, unit="%", tolerance=0, bound="at least",
        tolerance_from="limit of ours",
    ),
    number(
        what="a table", row="J.T1-ps", value=0, unit="%", tolerance=0.1, absolute=True,
        tolerance_from="printed digits", also=["pub_messages"] * 7,
    ),
]  # fmt: skip


def test_claims_without_a_number_stand_in_a_table_of_their_own(tmp_path: Path) -> None:
    page = Outline(written(Findings([experiment(paper=CLAIMS)], rows()), tmp_path)).text
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    for place in (page, text):
        claims = place[place.index("Claims without a number") :]
        assert claims.index("limit of ours") < claims.index("a claim")
        assert "505 ± 5 u.t." in claims.replace("\u202f", " ")
        assert "a majority" in place[: place.index("Claims without a number")]
        assert "as the paper says" not in place


def test_the_column_of_the_paper_has_what_the_paper_prints(tmp_path: Path) -> None:
    """[N]'s 40 %, which our limit of a majority decides; a distribution is 0 from itself."""
    bound = number(
        what="a bound", row="J.4.2-more", value=38.8, unit="%", tolerance=0.05, absolute=True,
        bound="up to", tolerance_from="printed digits",
    )  # fmt: skip
    report.write(Findings([experiment(paper=[*CLAIMS, bound])], rows()), tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| a bound ([J] 4.1) | up to 38.8\u202f% |" in text
    lines = {line.split(" | ")[0]: line.split(" | ")[1:] for line in text.splitlines()}
    (majority,) = [cells for what, cells in lines.items() if what.startswith("| a majority")]
    assert majority[0] == "over 40\u202f%"
    assert majority[2] == f"{MINUS}100\u202fpoints from our limit"
    (table,) = [name for name in lines if name.startswith("| a table")]
    assert "distance of the distributions (Kolmogorov-Smirnov)" in table
    assert lines[table][0] == "0 by definition"


OF_J = [
    number(
        what="VCube-PS", row="J.4.1-ps", value=500, tolerance=5, absolute=True, accounting="one",
        tolerance_from="printed digits",
    ),
    number(
        what="VCube-PS", row="J.4.1-ps", value=400, tolerance=5, absolute=True, accounting="two",
        tolerance_from="printed digits", reason="Because.", shown_by="4.1",
    ),
    number(
        what="queue", row="J.T1-ps", value=1, tolerance=0.1, accounting="one",
        tolerance_from="printed digits", reason="Load.", shown_by="4.2",
    ),
    number(
        what="joins", row="J.4.5-46", value=500, tolerance=50, absolute=True, accounting="one",
        tolerance_from="the word about",
    ),
    CLAIMS[0],
    number(
        section="[S] IV", what="copies", row="S.IV-1024", value=500, tolerance=0, absolute=True,
        accounting="one", tolerance_from="exact",
    ),
    CLAIMS[1],
]  # fmt: skip
OF_N = number(section="[N] 3.4", what="links", row="N.F6-15", value=1, tolerance=0.1)


def test_every_printed_number_has_a_row_in_the_table_of_its_paper(tmp_path: Path) -> None:
    one = experiment(paper=[*OF_J, OF_N])
    page = written(Findings([one], rows()), tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    for letter, count in (("J", 40), ("S", 39), ("N", 40)):
        table = text[text.index(f"## The numbers of [{letter}]") :].split("\n## ")[0]
        assert table.count("\n| ") == 2 + count
    cells = [line[2:-2].split(" | ") for line in text.splitlines() if line[:2] == "| "]
    by_name = {line[0]: line[1:] for line in cells if len(line) == 8}
    ps = "latency of VCube-PS, 4096 nodes, 25 % subscribers (4.1)"
    assert by_name[ps][1:5] == ["500 ± 2.5\u202fu.t.", "reproduced", "4.1, one (1 of 4)", "1 of 2"]
    queue = next(line for name, line in by_name.items() if name.endswith("(Table 1)"))
    assert queue == [
        "0 by definition", "\u2212100\u202fu.t.", "differs", "4.1, one (1 of 4)", "0 of 2", "Load.",
        "4.2",
    ]  # fmt: skip
    again = next(line for name, line in by_name.items() if name.endswith("(Table I)"))
    assert again[5] == "As [J]. Load."
    assert by_name["physical links after 8 rounds (Figure 6)"][0] == "about 15\u202flinks"
    size = by_name["topics of universe L0 (Table 1)"]
    assert size[1:5] == [NONE, "not compared", NONE, NONE]
    assert size[5].endswith("The whole trace, which is not public.")
    assert '<a href="#e-4.1">4.1, one (1 of 4)</a>' in page
    assert '<a href="#e-4.2">' not in page, "an experiment that this report has not"
    assert "Follows from the settings: 4000 subscribers" in Outline(page).text


def test_tiles_and_contents_count_the_numbers_of_the_headline(tmp_path: Path) -> None:
    """Each number once, in the reading of its experiment; limits of ours are no numbers."""
    one = experiment(paper=[*OF_J, OF_N])
    page = Outline(written(Findings([one], rows()), tmp_path)).text
    sentences = page[page.index("[J] prints") : page.index("Reproduced: ours is within")]
    stated = [int(count) for count in re.findall(r"prints (\d+) numbers", sentences)]
    come_out = [int(count) for count in re.findall(r"runs: (\d+) comes? out in one", sentences)]
    tiles = sentences[sentences.rindex("settings alone:") :]
    told = {name: int(count) for count, name in re.findall(r"(\d+) ([a-z, ]*[a-z])", tiles)}
    assert sum(told[name] for name in MEANINGS) == sum(stated) == 40 + 39 + 40
    assert told["reproduced"] == sum(come_out) == 1
    assert told["from the settings alone"] == 6 + 5 + 36
    contents = page[page.index("experiment source numbers") :]
    assert "1 reproduced, 4 differ, 2 from the settings alone" in contents[:400]


def test_the_headline_can_be_counted_from_the_verdicts_file(tmp_path: Path) -> None:
    one = experiment(paper=[*OF_J, OF_N])
    text = Outline(written(Findings([one], rows()), tmp_path)).text
    kinds = get_type_hints(Verdict)
    with (tmp_path / "verdicts.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == [field.name for field in fields(Verdict)]
    again = [
        Verdict(**{name: read_as(kinds[name], cell) for name, cell in line.items()})
        for line in lines
    ]
    for sentence in map(str, headline(again)):
        assert (sentence in text) == (sentence[:3] in ("[J]", "[S]", "[N]"))


def read_as(kind: Any, cell: str) -> Any:
    """A cell of a CSV file as the value that was written."""
    if kind is bool:
        return cell == "True"
    if kind is float or kind == float | None:
        return float(cell) if cell else None
    return int(cell) if kind is int else cell


def test_one_number_is_told_in_the_singular(tmp_path: Path) -> None:
    report.write(Findings([experiment(paper=OF_J[:2])], rows()), tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "- One: the only number is reproduced.\n- Two: the only number differs.\n" in text
    report.write(Findings([experiment(paper=OF_J[:3])], rows()), tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "- One: 1 of 2 numbers is reproduced together; 1 differs.\n" in text
    assert "- Two: 0 of 2 numbers are reproduced together; 1 differs, 1 not measured.\n" in text


def test_missing_and_failed_cells_are_named_first(tmp_path: Path) -> None:
    results = Findings([experiment()], rows(), (), MADE, MISSING, ["4.1 (nodes=8) seed 2: boom"])
    page = Outline(written(results, tmp_path)).text
    assert page.index("3 cells were not finished") < page.index("Summary")
    assert page.index("4.1: nodes=64 seed 1") < page.index("Summary"), "which ones, by name"
    assert page.index("seed 2: boom") < page.index("Summary")
    assert "not finished" not in written(Findings([experiment()], rows()), tmp_path)


def test_the_report_says_how_it_was_made(tmp_path: Path) -> None:
    """Version, commit, date, seeds and command, on the page and in the documentation."""
    page = Outline(written(Findings([experiment()], rows(), (), MADE), tmp_path)).text
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    for place in (page, text):
        assert MADE[0].command in place
        for fact in ("cubecast 0.1.0", COMMIT, "2024-02-03", "0 to 4, 5 per point"):
            assert fact in place, fact
        assert "VCube-PS: A causal broadcast topic-based publish/subscribe system" in place
        assert "[T]" not in place, "papers that no experiment here repeats are left out"


def test_a_documentation_takes_the_files_without_the_page(tmp_path: Path) -> None:
    findings = Findings([experiment()], rows(), (), MADE)
    report.write(findings, tmp_path, formats=["svg"])
    made = report.write(findings, tmp_path / "docs", formats=["png"], with_page=False)
    assert made == tmp_path / "docs" / "report.md"
    found = {str(path.relative_to(made.parent)) for path in made.parent.rglob("*.*")}
    assert found == {
        "report.md", "points.csv", "verdicts.csv", "figures/4.1-a.png", "figures/4.1-b.png",
    }  # fmt: skip
    for name in ("points.csv", "verdicts.csv"):
        assert (made.parent / name).read_bytes() == (tmp_path / name).read_bytes()


# -- figures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("plot", [LATENCY, BARS, DELAYS], ids=lambda plot: plot.kind)
def test_a_figure_is_deterministic_and_has_no_date(plot: Plot) -> None:
    one = experiment(plot=[plot])
    first = draw(one, plot, rows(), histogram(), formats=figures.FORMATS)
    again = draw(one, plot, rows(), histogram(), formats=figures.FORMATS)
    assert first.files == again.files
    assert first.files["png"].startswith(b"\x89PNG")
    assert first.files["pdf"].startswith(b"%PDF")
    assert b"<path" in first.files["svg"]
    assert b"date" not in first.files["svg"].lower()
    assert b"Software" not in first.files["png"]
    assert b"Date" not in first.files["pdf"]


def drawn_on(plot: Plot, one: Experiment, some: list[Row], counts: list[HistogramRow]) -> Any:
    """The axes of a figure, to look at what is on them."""
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    shown = shown_in(one, plot, some, counts)
    draw_on(axes, plot, shown, marks(one, plot), SIZES["page"])
    axes.figure.canvas.draw()
    return axes


def tick_labels(axis: Any) -> list[str]:
    return [tick.get_text() for tick in axis.get_ticklabels() if tick.get_text()]


def test_a_logarithmic_axis_has_plain_labels() -> None:
    axes = drawn_on(LATENCY, experiment(), rows(), [])
    assert axes.get_xscale() == "log"
    assert tick_labels(axes.xaxis) == ["8", "64", "1,024"]


def test_an_axis_up_to_a_million_nodes_is_labelled_in_powers() -> None:
    wide = [
        Row("4.1", {"protocol": "vcube-ps", "nodes": 1 << power}, "latency_mean", power, 0.1, 3)
        for power in range(4, 21)
    ]
    labels = tick_labels(drawn_on(LATENCY, experiment(), wide, []).xaxis)
    assert 5 <= len(labels) <= SIZES["page"].most_ticks
    assert "2^{20}" in labels[-1]


def test_decades_are_written_out() -> None:
    counts = Plot(title="Messages", x="nodes", y="pub_messages", series=["protocol"], log_y=True)
    many = [
        Row("4.1", {"protocol": "srpt", "nodes": n}, "pub_messages", 1.0 * n**3, 1.0, 2)
        for n in (8, 64, 1024)
    ]
    labels = tick_labels(drawn_on(counts, experiment(), many, []).yaxis)
    assert {"1,000", "10,000", "1 M"} <= set(labels)
    assert not any("e+" in label or "mathdefault" in label for label in labels)


def test_the_papers_number_is_marked_beside_our_point() -> None:
    one = experiment(paper=[number(value=533), number(at={"protocol": "srpt", "nodes": 4096})])
    axes = drawn_on(LATENCY, one, rows(), [])
    (marks,) = axes.collections[-1:]
    assert marks.get_offsets().tolist() == [[1024.0, 533.0]]
    assert [note.get_text() for note in axes.texts] == ["533"]


@pytest.mark.parametrize(("places", "marked"), [([8, 64, 1024], [1024.0]), ([8, 64], [8.0, 64.0])])
def test_a_number_at_every_x_is_one_line_and_one_mark(
    places: list[int], marked: list[float]
) -> None:
    """The paper prints it without an x: each reading has it at an x of its own."""
    paper = [number(value=533, at={"protocol": "vcube-ps", "nodes": n}) for n in places]
    axes = drawn_on(LATENCY, experiment(paper=paper), rows(), [])
    (marks,) = axes.collections[-1:]
    assert [x for x, _ in marks.get_offsets().tolist()] == marked
    assert [note.get_text() for note in axes.texts] == ["533"] * len(marked)
    level = [line for line in axes.lines if set(line.get_ydata()) == {533}]
    assert len(level) == (len(marked) == 1)


def test_error_bars_are_the_confidence_intervals() -> None:
    axes = drawn_on(LATENCY, experiment(paper=[]), rows(), [])
    (bar, *_), *_ = [container.lines[2] for container in axes.containers]
    segment = bar.get_segments()[-1]
    assert [y for _, y in segment] == [500.0 - 2.5, 500.0 + 2.5]


def test_metrics_are_stacked_and_protocols_are_side_by_side() -> None:
    axes = drawn_on(changed(BARS, log_y=False), experiment(), rows(), [])
    bars = [container for container in axes.containers if hasattr(container, "patches")]
    assert len(bars) == 4
    tops: dict[float, float] = {}
    for container in bars:
        for patch in container.patches:
            place = round(patch.get_x(), 3)
            assert patch.get_y() == tops.get(place, 0.0)
            tops[place] = patch.get_y() + patch.get_height()
    assert sorted(tops.values())[-1] == 600.0 + 1023.0


def test_a_histogram_of_shares_adds_up() -> None:
    shares = changed(DELAYS, y_label="share of messages")
    for curve in buckets_of(experiment(), shares, histogram()).curves:
        assert sum(point.y for point in curve.points) == pytest.approx(100)


def test_a_histogram_of_doubling_classes_keeps_its_zero() -> None:
    classes = changed(DELAYS, log_x=True)
    counts = [
        HistogramRow("4.1", {"wait": 1}, "delay", bucket, 10.0, 0.0, 1) for bucket in (0, 2, 16)
    ]
    axes = drawn_on(classes, experiment(plot=[classes]), [], counts)
    assert tick_labels(axes.xaxis) == ["0", "2", "4", "8", "16"]
    assert len(axes.patches) == 3


def test_bins_of_five_stand_side_by_side() -> None:
    counts = [
        HistogramRow("4.1", {"wait": 1}, "delay", bucket, 10.0, 0.0, 5) for bucket in (5, 10, 20)
    ]
    axes = drawn_on(DELAYS, experiment(plot=[DELAYS]), [], counts)
    assert tick_labels(axes.xaxis) == ["5", "10", "15", "20"]


def test_a_group_of_bars_has_room_only_for_those_there_are() -> None:
    plot = changed(BARS, y="latency_mean", log_y=False)
    some = [
        row for row in rows() if row.settings["nodes"] == 8 or row.settings["protocol"] == "srpt"
    ]
    axes = drawn_on(plot, experiment(plot=[plot], paper=[]), some, [])
    middles = sorted(patch.get_x() + patch.get_width() / 2 for patch in axes.patches)
    assert middles == pytest.approx([-0.2, 0.2, 1.0, 2.0])


@pytest.mark.parametrize(("buckets", "outlines"), [(6, 0), (200, 2)])
def test_a_histogram_of_few_and_of_many_buckets(buckets: int, outlines: int) -> None:
    from matplotlib.patches import StepPatch

    axes = drawn_on(DELAYS, experiment(plot=[DELAYS]), [], histogram(buckets=buckets))
    areas = [patch for patch in axes.patches if isinstance(patch, StepPatch)]
    steps = [patch for patch in areas if not patch.get_fill()]
    assert len(steps) == outlines
    heights = list(steps[0].get_data().values) if steps else [p.get_height() for p in axes.patches]
    assert heights[0] == 100.0
    assert heights[2] == pytest.approx(100 / 3)


def test_points_of_few_seeds_are_hollow_and_said_to_be(tmp_path: Path) -> None:
    some = [replace(row, n=2) if row.settings["nodes"] == 1024 else row for row in rows()]
    axes = drawn_on(LATENCY, experiment(paper=[]), some, [])
    opened = [line for line in axes.lines if line.get_markerfacecolor() == PAPER]
    assert [line.get_xdata().tolist() for line in opened] == [[1024.0], [1024.0]]
    bars = drawn_on(changed(BARS, y="latency_mean", log_y=False), experiment(), some, [])
    whites = [patch.get_facecolor()[:3] == (1.0, 1.0, 1.0) for patch in bars.patches]
    assert whites == [False, False, True] * 2
    page = Outline(written(Findings([experiment()], some), tmp_path)).text
    assert page.count("Hollow: fewer than 5 seeds.") == 2
    assert "Hollow" not in Outline(written(Findings([experiment()], rows()), tmp_path)).text


def test_a_level_independent_of_x_is_a_line_across_the_plot() -> None:
    flat = changed(LATENCY, level={"protocol": "srpt"})
    some = [
        row for row in rows() if row.settings["protocol"] != "srpt" or row.settings["nodes"] == 64
    ]
    axes = drawn_on(flat, experiment(paper=[]), some, [])
    (level,) = [line for line in axes.lines if line.get_label() == "SRPT"]
    assert (level.get_xdata(), level.get_ydata()) == ([0, 1], [400.0, 400.0]), "of the axes"
    assert tick_labels(axes.xaxis) == ["8", "64", "1,024"]


RATIO = Plot(
    name="r", title="Over static", kind="dots", x="nodes", y="latency_mean", series=["protocol"],
    ratio_to={"protocol": "vcube-ps"},
)  # fmt: skip


def test_a_ratio_is_drawn_with_its_interval_and_the_papers_ratio_beside_it() -> None:
    versus = {"at": {"protocol": "srpt", "nodes": 64}, "versus": {"protocol": "vcube-ps"}}
    paper = [
        number(value=20, unit="%", form="more", bound="at most", **versus),
        number(value=1.5, unit="\u00d7", form="ratio", **versus),
        number(value=7, unit="\u00d7", form="ratio", at=versus["at"], versus={"nodes": 8}),
        number(value=7, at=versus["at"]),
    ]
    one = experiment(plot=[RATIO], paper=paper)
    (curve,) = curves_of(one, RATIO, rows()).curves
    assert curve.label == "SRPT", "what all are compared with is no curve"
    assert [point.y for point in curve.points] == pytest.approx([220 / 120, 400 / 300, 600 / 500])
    assert curve.points[2].ci == pytest.approx((2.5**2 + (1.2 * 2.5) ** 2) ** 0.5 / 500)
    assert [(mark.x, mark.y, mark.text) for mark in marks(one, RATIO)] == [
        (64, 1.2, "≤ 20\u202f% more"), (64, 1.5, "1.5"),
    ]  # fmt: skip


def test_ratios_about_one_are_not_drawn_in_decades() -> None:
    decades = changed(RATIO, log_y=True)
    near = [replace(row, mean=100.0 + row.mean / 1000) for row in rows()]
    far = [
        replace(row, mean=20 * row.mean) if row.settings == rows()[-1].settings else row
        for row in rows()
    ]
    scales = [
        drawn_on(decades, experiment(plot=[decades], paper=[]), some, []).get_yscale()
        for some in (near, far)
    ]
    assert scales == ["linear", "log"]


def test_dots_on_a_logarithmic_axis_show_a_zero_beside_what_is_large() -> None:
    dots = changed(RATIO, ratio_to={}, log_y=True)
    zero = [replace(row, mean=0.0, ci=0.0) if row.settings["nodes"] == 8 else row for row in rows()]
    one = experiment(plot=[dots], paper=[number(value=20_000)])
    assert curves_of(one, dots, zero).dropped == 0
    axes = drawn_on(dots, one, zero, [])
    low, high = axes.get_ylim()
    assert low < 0 < 20_000 < high
    assert tick_labels(axes.yaxis)[:3] == ["0", "1", "10"]
    assert "The axis is linear below 1." in draw(one, dots, zero).notes


def test_empty_classes_are_left_out_and_the_papers_classes_are_not() -> None:
    """Table 1: one node in (4096, 8192], none in the six classes below."""
    table = changed(DELAYS, log_x=True, log_y=True, marks_at={"latency_mean": 16})
    counts = [
        HistogramRow("4.1", {"wait": 1}, "delay", bucket, mean, 0.0, 5)
        for bucket, mean in ((0, 512.0), (2, 448.0), (4096, 1.0))
    ]
    paper = [number(value=19, at={"wait": 1})]
    axes = drawn_on(table, experiment(plot=[table], paper=paper), [], counts)
    assert tick_labels(axes.xaxis) == ["0", "2", "4", "8", "16", "…", "4,096"]
    (spots,) = axes.collections
    assert spots.get_offsets().tolist() == [[4.0, 19.0]], "a class where we have no node"
    assert len(axes.patches) == 3
    low, _ = axes.get_ylim()
    assert low < 1.0, "a single node is seen"


def test_a_thin_tail_is_cut_off_and_told() -> None:
    shares = changed(DELAYS, y_label="share of messages")
    counts = [
        HistogramRow("4.1", {"wait": 1}, "delay", bucket, 99.0 / 5 if bucket < 5 else 0.01, 0.1, 5)
        for bucket in range(105)
    ]
    one = experiment(plot=[shares])
    shown = buckets_of(one, shares, counts)
    assert shown.xs == (0, 1, 2, 3, 4)
    assert shown.cut == (4, pytest.approx(0.01))
    assert "Up to 1\u202f% of a curve lies beyond 4." in draw(one, shares, [], counts).notes
    every = buckets_of(one, shares, [replace(row, mean=1.0) for row in counts])
    assert max(map(int, every.xs)) == 102, "what is left out is at most 2 %"


def test_shares_add_up_to_a_staircase_with_the_papers_steps() -> None:
    stairs = changed(DELAYS, kind="cumulative", marks_at={"latency_mean": 1})
    one = experiment(plot=[stairs], paper=[number(value=51.6, at={"wait": 10})])
    first, _ = buckets_of(one, stairs, histogram(buckets=3)).curves
    parts = [100 / (bucket + 1) for bucket in range(3)]
    assert first.points[-1].y == pytest.approx(100)
    assert first.points[0].y == pytest.approx(100 * parts[0] / sum(parts))
    axes = drawn_on(stairs, one, [], histogram(buckets=3))
    assert axes.collections[-1].get_offsets().tolist() == [[1.0, 51.6]]


def test_outlines_have_their_intervals_as_bands() -> None:
    from matplotlib.patches import StepPatch

    axes = drawn_on(DELAYS, experiment(plot=[DELAYS]), [], histogram(buckets=200))
    bands = [patch for patch in axes.patches if isinstance(patch, StepPatch) and patch.get_fill()]
    assert len(bands) == 2
    values, _, baseline = bands[0].get_data()
    assert (values[0], baseline[0]) == (101.5, 98.5)


def test_the_axes_of_one_experiment_are_level() -> None:
    """Legends of one and of four lines, labels of one and of six digits: the same margins."""
    many = changed(LATENCY, name="m", series=["protocol", "hop"], y="pub_messages")
    one = experiment(plot=[LATENCY, many], paper=[])
    wide = [replace(row, settings={**row.settings, "hop": hop}) for row in rows() for hop in (1, 2)]
    large = [replace(row, mean=row.mean * 1000) for row in wide if row.metric == "pub_messages"]
    drawn = figures.draw_all(one, [*rows(), *large])
    inside = []
    for drawing in drawn.values():
        assert drawing is not None
        text = drawing.files["svg"].decode()
        (area,) = re.findall(r'<g id="patch_2">\s*<path d="([^"]*)"', text)
        (size,) = re.findall(r'<svg [^>]*viewBox="([^"]*)"', text)
        inside.append((area, size))
    assert inside[0] == inside[1]
    alone = draw(one, LATENCY, rows())
    assert inside[0][0] not in alone.files["svg"].decode(), "which alone would have others"


def test_a_column_of_a_paper_is_narrow_and_its_fonts_are_embedded() -> None:
    drawing = draw(experiment(), LATENCY, rows(), formats=["pdf"], width="column")
    (width,) = re.findall(rb"/MediaBox \[ 0 0 ([0-9.]+)", drawing.files["pdf"])
    assert float(width) == pytest.approx(3.4 * 72)
    assert b"/Type3" not in drawing.files["pdf"]


# -- curves ---------------------------------------------------------------------------------------


def test_a_setting_that_tells_points_apart_is_part_of_the_curves_name() -> None:
    twice = rows() + [replace(row, settings={**row.settings, "hop": 1000}) for row in rows()]
    labels = [curve.label for curve in curves_of(experiment(), LATENCY, twice).curves]
    assert labels == [
        "VCube-PS, hop 100",
        "VCube-PS, hop 1,000",
        "SRPT, hop 100",
        "SRPT, hop 1,000",
    ]


def test_curves_follow_the_grid_and_not_the_rows() -> None:
    shown = curves_of(experiment(), LATENCY, list(reversed(rows())))
    assert [curve.label for curve in shown.curves] == ["VCube-PS", "SRPT"]
    assert [point.x for point in shown.curves[0].points] == NODES
    assert shown.xs == tuple(NODES)


def test_a_zero_on_a_logarithmic_axis_is_counted_not_forgotten() -> None:
    flat = changed(LATENCY, y="pub_messages", log_y=True)
    zero = [replace(row, mean=0.0) if row.settings["nodes"] == 8 else row for row in rows()]
    shown = curves_of(experiment(), flat, zero)
    assert shown.dropped == 2
    assert [len(curve.points) for curve in shown.curves] == [2, 2]


def test_every_curve_has_its_own_marker_and_a_protocol_its_colour() -> None:
    twice = rows() + [replace(row, settings={**row.settings, "hop": 1000}) for row in rows()]
    looks = looks_of(curves_of(experiment(), LATENCY, twice))
    assert len({look.marker for look in looks}) == 4
    assert [look.colour for look in looks] == [
        PROTOCOL_COLOURS[name] for name in ("vcube-ps", "vcube-ps", "srpt", "srpt")
    ]
    assert looks[0].line != looks[1].line


def test_of_curves_that_coincide_at_a_point_both_can_be_seen_there() -> None:
    """The lower marker is larger and its line wider, the upper curve has a white edge."""
    some = [
        replace(row, mean=row.mean - 100)
        if row.settings["protocol"] == "srpt" and row.settings["nodes"] != 1024
        else row
        for row in rows()
    ]
    for same, larger in ((some, [8.0, 64.0]), (rows(), [])):
        axes = drawn_on(LATENCY, experiment(paper=[]), same, [])
        below, above = (container.lines[0] for container in axes.containers)
        size = below.get_markersize()
        over = [line for line in axes.lines if line.get_markersize() > size and line.get_marker()]
        assert [line.get_xdata().tolist() for line in over] == ([larger] if larger else [])
        assert bool(above.get_path_effects()) == bool(larger)
        assert not below.get_path_effects()
        wide = [line for line in axes.lines if line.get_linewidth() > below.get_linewidth()]
        assert [list(line.get_xdata()) for line in wide] == ([[8.0, 64.0]] if larger else [])
        assert below.get_linewidth() == above.get_linewidth(), "as the legend shows them"


def test_three_curves_at_one_place_stand_beside_each_other() -> None:
    flat = [
        Row("4.1", {"protocol": name, "nodes": nodes}, "latency_mean", 100.0, 0.0, 5)
        for name in ("vcube-ps", "srpt", "cubecast")
        for nodes in NODES
    ]
    level = Row("4.1", {"protocol": "srpt-b", "nodes": 8}, "latency_mean", 100.0, 0.0, 5)
    plot = changed(LATENCY, level={"protocol": "srpt-b"})
    for some, apart in (([level, *flat], True), ([*flat[:6]], False)):
        axes = drawn_on(plot, experiment(paper=[]), some, [])
        lines = [container.lines[0] for container in axes.containers]
        places = {
            round(float(line.get_transform().transform((64.0, 100.0))[0]), 2) for line in lines
        }
        assert len(places) == (3 if apart else 1)
        middle = axes.transData.transform((64.0, 100.0))[0]
        assert sum(places) / len(places) == pytest.approx(middle, abs=0.1), "a level takes no room"


# -- labels ---------------------------------------------------------------------------------------


CROWDED = changed(RATIO, ratio_to={})


def digits_of(box: labels.Box) -> labels.Box:
    """The box without the room for parts of letters that numbers do not have."""
    spare = 0.1 * (box.top - box.bottom)
    return box._replace(bottom=box.bottom + spare, top=box.top - spare)


@pytest.mark.parametrize("width", ["page", "column"])
def test_a_printed_number_covers_no_point_and_no_interval(width: WidthName) -> None:
    """Above the diamond stands our point, below it that of another protocol."""
    some = [
        Row("4.1", {"protocol": name, "nodes": nodes}, "latency_mean", mean, 2.0, 5)
        for name, mean in (("vcube-ps", 107.0), ("srpt", 93.0))
        for nodes in NODES
    ]
    one = experiment(plot=[LATENCY], paper=[number(value=value) for value in (99, 100, 101)])
    (figure,) = figures.figures_of(one, some, width=width).values()
    (axes,) = figure.axes
    told = [text for text in axes.texts if isinstance(text, labels.Label) and not text.value]
    assert [text.get_text() for text in told] == ["99", "100", "101"]
    boxes = [digits_of(labels.box_of(text.get_window_extent())) for text in told]
    solid = list(labels.solid_of(axes))
    assert len(solid) > 8
    for index, box in enumerate(boxes):
        assert not any(box.meets(other) for other in [*solid, *boxes[:index]])


def test_values_beside_dots_stand_where_all_have_room_or_nowhere() -> None:
    def values(count: int, width: WidthName) -> list[Any]:
        near = [
            Row("4.1", {"protocol": f"p{i}", "nodes": 8}, "latency_mean", 0.18371 + i / 1e4, 0, 5)
            for i in range(count)
        ]
        (figure,) = figures.figures_of(
            experiment(plot=[CROWDED], paper=[]), near, width=width
        ).values()
        return [text for text in figure.axes[0].texts if isinstance(text, labels.Label)]

    beside, above, none = values(3, "page"), values(9, "page"), values(10, "column")
    assert [text.get_visible() for text in (*beside, *above)] == [True] * 12
    assert all(text.xyann[0] > 0 and abs(text.xyann[1]) < 1e-6 for text in beside)
    assert all(text.xyann[1] > 0 and abs(text.xyann[0]) < 1e-6 for text in above)
    assert [text.get_visible() for text in none] == [False] * 10


def test_a_number_of_several_readings_is_marked_and_written_once() -> None:
    paper = [
        number(
            row="S.II-97.5", what="latency", value=97445.5, at={"protocol": name, "nodes": 8},
            accounting=name,
        )
        for name in ("vcube-ps", "srpt")
    ]  # fmt: skip
    axes = drawn_on(CROWDED, experiment(plot=[CROWDED], paper=paper), rows(), [])
    assert [text.get_text() for text in axes.texts if text.get_text()[:2] == "97"] == ["97,445.5"]
    spots = axes.collections[-1]
    assert len(spots.get_offsets()) == 1


def test_the_digits_are_those_that_the_paper_prints() -> None:
    rows_of_s = {"S.II-97.5": 97.5, "J.4.3-none1": 87.2, "J.4.1-ps": 533.0}
    paper = [
        number(row=row, value=value, at={"protocol": "srpt", "nodes": 8})
        for row, value in rows_of_s.items()
    ]
    assert [mark.text for mark in marks(experiment(paper=paper), LATENCY)] == [
        "97.5", "87.2", "533",
    ]  # fmt: skip


def test_a_diamond_has_the_colour_of_its_curve() -> None:
    from matplotlib.colors import to_hex

    paper = [number(value=533), number(what="b", value=400, at={"protocol": "srpt", "nodes": 64})]
    axes = drawn_on(LATENCY, experiment(paper=paper), rows(), [])
    assert [to_hex(colour) for colour in axes.collections[-1].get_edgecolors()] == [
        PROTOCOL_COLOURS["vcube-ps"], PROTOCOL_COLOURS["srpt"],
    ]  # fmt: skip


def test_a_printed_limit_of_all_points_is_a_line() -> None:
    paper = [
        number(
            value=1.4, unit="%", form="more", bound="up to", fold="max", over=["nodes"],
            at={"protocol": "srpt"}, versus={"protocol": "vcube-ps"}, until=64.0,
        )
    ]  # fmt: skip
    axes = drawn_on(RATIO, experiment(plot=[RATIO], paper=paper), rows(), [])
    ends = [segment.tolist() for drawn in axes.collections for segment in drawn.get_segments()
            if segment[0][1] == segment[1][1]]  # fmt: skip
    assert ends == [[[-0.45, 1.014], [1.45, 1.014]]], "up to 64 nodes"
    assert "\u2264 1.4\u202f% more" in [text.get_text() for text in axes.texts]


def test_an_interval_of_a_share_ends_at_nothing_and_at_all() -> None:
    shares = changed(LATENCY, y_label="events (%)")
    some = [replace(row, mean=row.mean / 6, ci=90.0) for row in rows()]
    axes = drawn_on(shares, experiment(paper=[]), some, [])
    ends = [y for drawn in axes.containers for segment in drawn.lines[2][0].get_segments()
            for _, y in segment]  # fmt: skip
    assert (min(ends), max(ends)) == pytest.approx((0.0, 100.0))
    assert axes.get_ylim() == (0.0, 105.0)
    wide = drawn_on(LATENCY, experiment(paper=[]), some, [])
    assert wide.get_ylim()[1] > 150, "no share"


def test_a_bar_without_a_height_has_a_zero() -> None:
    plot = changed(BARS, y="latency_mean", log_y=False)
    some = [
        replace(row, mean=0.0, ci=0.0) if row.settings["nodes"] == 64 else row for row in rows()
    ]
    axes = drawn_on(plot, experiment(plot=[plot], paper=[]), some, [])
    assert [text.get_text() for text in axes.texts] == ["0", "0"]


TIMES = changed(DELAYS, kind="timeline")


def test_a_timeline_of_many_points_has_bands_and_one_of_few_has_markers() -> None:
    from matplotlib.collections import PolyCollection

    few = [replace(row, n=2) if row.settings["wait"] == 1 else row for row in histogram()]
    for counts, dense in ((histogram(buckets=200), True), (few, False)):
        axes = drawn_on(TIMES, experiment(plot=[TIMES]), [], counts)
        bands = [drawn for drawn in axes.collections if isinstance(drawn, PolyCollection)]
        assert len(bands) == (2 if dense else 0)
        assert len(axes.containers) == (0 if dense else 2)
        opened = [line for line in axes.lines if line.get_markerfacecolor() == PAPER]
        assert bool(opened) == (not dense)
        drawing = draw(experiment(plot=[TIMES]), TIMES, [], counts)
        assert drawing.notes[0].startswith("Bands" if dense else "Error bars")
        assert ("Hollow: fewer than 5 seeds." in drawing.notes) == (not dense)


def test_sizes_in_bins_stand_at_the_middle_of_their_bins() -> None:
    bins = changed(TIMES, bin_width=4.0, diagonal="no change")
    counts = [replace(row, bucket=row.bucket + 1) for row in histogram(buckets=2)]
    axes = drawn_on(bins, experiment(plot=[bins]), [], counts)
    xs = [container.lines[0].get_xdata().tolist() for container in axes.containers]
    assert xs == [[2.0, 4.0], [2.0, 4.0]]
    (line,) = [line for line in axes.lines if line.get_label() == "no change"]
    assert line.get_xydata().tolist() == [[2.0, 2.0], [4.0, 4.0]]


def test_a_presets_correlation_stands_at_its_value() -> None:
    plot = changed(LATENCY, x="correlation", log_x=False, series=["universe"])
    some = [
        Row("4.1", {"universe": name, "correlation": x}, "latency_mean", 1.0, 0.1, 5)
        for name in ("L8", "W8", "grid")
        for x in (-1.0, 0.7)
    ]
    found = {
        curve.label: [point.x for point in curve.points]
        for curve in curves_of(experiment(plot=[plot]), plot, some).curves
    }
    assert found == {"L8": [0.5, 0.7], "W8": [0.7, 0.9], "grid": [0.7]}


def test_a_logarithmic_axis_of_curves_shows_a_zero_if_it_is_asked_to() -> None:
    plot = changed(LATENCY, log_y=True, zero=True)
    zero = [replace(row, mean=0.0, ci=0.0) if row.settings["nodes"] == 8 else row for row in rows()]
    one = experiment(plot=[plot], paper=[])
    assert curves_of(one, plot, zero).dropped == 0
    axes = drawn_on(plot, one, zero, [])
    assert axes.get_ylim()[0] < 0
    assert not axes.containers[0].lines[0].get_clip_on(), "a marker at the edge is whole"


def test_a_bar_alone_in_its_class_stands_above_its_label() -> None:
    counts = [
        HistogramRow("4.1", {"wait": wait}, "delay", bucket, 10.0, 0.0, 5)
        for wait, bucket in ((1, 0), (10, 1), (1, 2), (10, 2))
    ]
    axes = drawn_on(DELAYS, experiment(plot=[DELAYS]), [], counts)
    middles = sorted(patch.get_x() + patch.get_width() / 2 for patch in axes.patches)
    assert middles == pytest.approx([0.0, 1.0, 1.8, 2.2])


def test_a_number_of_several_readings_stands_at_the_bar_of_the_one_that_has_one() -> None:
    """Table 1: with ACKs queued no node has a queue of up to 8."""
    counted = changed(DELAYS, marks_at={"latency_mean": 0})
    counts = [
        HistogramRow("4.1", {"wait": wait}, "delay", bucket, 10.0, 0.0, 5)
        for wait, bucket in ((1, 0), (5, 0), (5, 1), (10, 1))
    ]
    paper = [number(value=19, at={"wait": wait}, accounting=f"{wait}") for wait in (1, 10)]
    axes = drawn_on(counted, experiment(plot=[counted], paper=paper), [], counts)
    (spots,) = axes.collections
    assert spots.get_offsets().tolist() == [[pytest.approx(-0.2), 19.0]]


def test_a_legend_stands_right_above_the_axes() -> None:
    """Also beside a figure whose legend has more lines."""
    many = changed(LATENCY, name="m", series=["protocol", "hop"], y="pub_messages")
    wide = [
        replace(row, settings={**row.settings, "hop": hop}) for row in rows() for hop in range(9)
    ]
    some = [*rows(), *(row for row in wide if row.metric == "pub_messages")]
    one = experiment(plot=[LATENCY, many], paper=[])
    for figure in figures.figures_of(one, some).values():
        (legend,) = figure.legends
        gap = legend.get_window_extent().y0 - figure.axes[0].get_window_extent().y1
        assert 0 <= gap < 0.2 * figure.dpi


# -- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "said"),
    [(533.0, "533"), (10525.7, "10,525.7"), (0.25, "0.25"), (-3.5, f"{MINUS}3.5"), (0.0, "0"),
     (2.5e-6, f"2.5e{MINUS}06"), (float("nan"), "not a number"), (1_048_576, "1,048,576")],
)  # fmt: skip
def test_plain_numbers(value: float, said: str) -> None:
    assert plain(value) == said


@pytest.mark.parametrize(
    ("mean", "ci", "said"),
    [(26.114, 1.28, "26.1 ± 1.3"), (613.4, 13.2, "613 ± 13"), (535.51, 0.0, "535.5"),
     (0.04567, 0.00123, "0.0457 ± 0.0012"), (123456.0, 4567.0, "123,456 ± 4,567"),
     (5.0, 1e-12, "5"), (5.0, float("nan"), "5")],
)  # fmt: skip
def test_a_mean_shows_no_more_digits_than_its_interval(mean: float, ci: float, said: str) -> None:
    assert measured(mean, ci) == said


@pytest.mark.parametrize(
    ("paper", "ours", "unit", "said"),
    [(533.0, 535.5, "u.t.", "+0.5\u202f%"), (26.0, 24.8, "%", f"{MINUS}1.2\u202fpoints"),
     (0.0, 3.0, "", "+3"), (0.0, 0.0, "", "0"), (19.0, 1200.0, "nodes", "+1,181\u202fnodes"),
     (100.0, 100.0, "u.t.", "0\u202f%"), (2.0, 2.0001, "\u00d7", "0\u202f%")],
)  # fmt: skip
def test_differences(paper: float, ours: float, unit: str, said: str) -> None:
    verdict = Verdict(
        "4.1", "[J]", "it", "", unit, paper, ours, 0.0, ours - paper, "reproduced", "", 1
    )
    assert difference_text(verdict) == said


def test_settings_read_as_people_say_them() -> None:
    assert setting_label("protocol", "vcube-ps") == "VCube-PS"
    assert setting_label("subscribers", 0.25) == "25\u202f% subscribers"
    assert setting_label("brokers", 2048) == "2,048 brokers"
    assert setting_label("queue_acks", False) == "ACKs not queued"
    assert setting_label("hop", 1000) == "hop 1,000"
