"""The site of docs/: complete, its links lead somewhere, and it loads nothing from elsewhere."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cubecast
from cubecast.testing import Cluster, on_virtual_time
from support.paths import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TOOL = ROOT / "tools" / "docs.py"
GENEROUS_S = 600
faults_of = runpy.run_path(str(TOOL))["faults_of"]


def test_every_public_name_is_on_the_page_of_the_api_once() -> None:
    blocks = re.findall(r"^::: cubecast\.(\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert sorted(blocks) == sorted(set(cubecast.__all__) - {"__version__"})


def test_the_classes_without_async_and_those_for_tests_are_on_the_page_of_the_api() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^::: cubecast\.(sync|testing)\.(\w+)$", page, re.MULTILINE)
    classes = [name for name in cubecast.sync.__all__ if name[0].isupper()]
    theirs = set(cubecast.testing.__all__) - set(cubecast.__all__)
    expected = [*(("sync", name) for name in classes), *(("testing", name) for name in theirs)]
    assert sorted(blocks) == sorted(expected)


def test_types_in_signatures_have_public_names() -> None:
    for name, where in (
        ("Payload", cubecast.Node.publish),
        ("Headers", cubecast.Node.publish),
        ("Callback", cubecast.Node.on),
        ("Policy", cubecast.Node.subscribe),
        ("Codec", cubecast.Node.subscribe),
    ):
        used = " ".join(map(str, where.__annotations__.values()))
        assert re.search(rf"\b{name}\b", used), f"{name} is in no signature: leave it out here"
        assert hasattr(cubecast.codecs if name == "Codec" else cubecast, name)
    assert isinstance("text", cubecast.Payload)


def test_the_package_shows_its_public_names_and_no_others() -> None:
    assert cubecast.net is not None, "it is there, as everything that was imported"  # type: ignore[attr-defined]
    shown = {name for name in dir(cubecast) if not name.startswith("__")}
    assert shown == set(cubecast.__all__) - {"__version__"}
    assert all(hasattr(cubecast, name) for name in dir(cubecast))


@on_virtual_time
async def test_a_node_and_a_client_show_what_the_page_of_the_api_lists() -> None:
    async with Cluster(1) as cluster, cluster.connect() as client:
        for one in (cluster[0], client):
            name = type(one).__name__
            listed = {place.split(".")[-1] for place in members_listed() if f".{name}." in place}
            assert {public for public in dir(one) if not public.startswith("_")} == listed


def test_every_page_is_in_the_navigation_once() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    listed = re.findall(r": (\S+\.md)$", nav, re.MULTILINE)
    assert sorted(listed) == [str(page.relative_to(DOCS)) for page in PAGES]


def slugs(page: Path) -> set[str]:
    """The places on a page that a link can name: its headings, as the site and GitHub do it."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", one).strip().lower() for one in headings)
    return {re.sub(r"[-\s]+", "-", one) for one in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_to_headings_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target, heading in re.findall(r"\]\(([^):]*)#([^)]+)\)", text):
        other = page.parent / target if target else page
        if other.suffix == ".md":
            assert heading in slugs(other), f"{target}#{heading}"


def test_the_metadata_is_what_an_index_shows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (ROOT / project["readme"]).is_file()
    assert {"description", "keywords", "license", "requires-python"} <= set(project)
    oldest = project["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {oldest}" in project["classifiers"]
    assert "Typing :: Typed" in project["classifiers"]


GOOD = '<link rel="stylesheet" href="a.css"><a href="b.html#there">b</a><a href="//x.org/">x</a>'


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        (GOOD, ""),
        ('<script src="https://x.org/a.js"></script>', "loads https://x.org/a.js"),
        ('<link rel="stylesheet" href="//x.org/a.css">', "loads //x.org/a.css"),
        ('<img src="c.png">', "leads nowhere with c.png"),
        ('<a href="c.html">c</a>', "leads nowhere with c.html"),
        ('<a href="b.html#here">b</a>', "leads nowhere with b.html#here"),
        ('<a href="#here">b</a>', "leads nowhere with #here"),
    ],
)
def test_the_check_of_the_site_finds(page: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(page, encoding="utf-8")
    (tmp_path / "b.html").write_text('<h2 id="there">b</h2>', encoding="utf-8")
    (tmp_path / "a.css").write_text("p { color: red }", encoding="utf-8")
    assert faults_of(tmp_path) == ([f"a.html {fault}"] if fault else [])


def test_the_check_of_the_site_finds_fonts_of_another_host(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("", encoding="utf-8")
    (tmp_path / "a.css").write_text("@font-face { src: url('https://x.org/f') }", encoding="utf-8")
    assert faults_of(tmp_path) == ["a.css loads https://x.org/f"]


def build(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), "build", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=GENEROUS_S)


def needs_the_extra() -> None:
    for name in ("mkdocs", "material", "mkdocstrings_handlers.python"):
        pytest.importorskip(name, reason="the extra `docs` is missing: make docs installs it")


def test_the_site_is_built_without_a_fault_and_can_be_searched(tmp_path: Path) -> None:
    needs_the_extra()
    done = build("--site-dir", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    index = json.loads((tmp_path / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {one["location"] for one in index["docs"]}
    assert {"tutorial.html#5-two-hosts", *members_listed()} <= found


def members_listed() -> set[str]:
    """Where the page of the API has the methods and attributes that its blocks list."""
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^::: cubecast\.(\w+)\n.*\n +members: \[(.+)\]$", page, re.MULTILINE)
    assert {"Node", "Client"} <= {name for name, _ in listed}
    return {
        f"api.html#cubecast.{name}.{member.strip(chr(34))}"
        for name, members in listed
        for member in members.split(", ")
    }


@pytest.mark.parametrize("link", ["[x](nowhere.md)", "[x](#nowhere)", "[x](/index.md)"])
def test_a_link_that_leads_nowhere_fails_the_build(link: str, tmp_path: Path) -> None:
    needs_the_extra()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Start\n\n{link}\n", encoding="utf-8")
    own = ["nav: [index.md]", "theme: mkdocs", "extra: {}"]
    none = [f"{key}: []" for key in ("extra_css", "plugins", "watch")]
    text = "\n".join([f"INHERIT: {ROOT / 'mkdocs.yml'}", *own, *none])
    (tmp_path / "mkdocs.yml").write_text(text, encoding="utf-8")
    done = build("--config", str(tmp_path / "mkdocs.yml"), "--site-dir", str(tmp_path / "site"))
    assert done.returncode == 1
    assert "Aborted with 1 warnings in strict mode" in done.stdout + done.stderr
