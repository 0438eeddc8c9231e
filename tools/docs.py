"""Build the site of docs/ in site/, and check what was built.

    python tools/docs.py                     # or `make docs`
    python tools/docs.py serve               # look at it; pages are built anew when they change

The packages of the extra `docs` are installed if they are missing.  The build is strict: a link
that leads nowhere fails it.  Then the built pages are checked:

1. what a page loads (scripts, styles, pictures) is a file of the site, so it is complete offline;
2. every link inside the site leads to a page, and its fragment to a place on that page.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parent.parent
NEEDED = ("mkdocs", "material", "mkdocstrings_handlers.python")
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
"""The files that a browser fetches by itself, by tag and attribute."""
NOT_LOADED = {"canonical", "next", "prev"}
"""Kinds of <link> that a browser does not fetch."""


class Page(HTMLParser):
    """The files that one page loads, its links, and its link targets."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif LOADED.get(tag) in given and given.get("rel") not in NOT_LOADED:
            self.loads.append(given[LOADED[tag]])


def faults_of(site: Path) -> list[str]:
    """The faults of the built pages, one line each."""
    files = sorted(site.rglob("*.html"))
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in files}
    faults = [] if pages else [f"no pages in {site}"]
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        faults += [f"{name} loads {url}" for url in page.loads if is_foreign(url)]
        faults += [
            f"{name} leads nowhere with {url}"
            for url in page.links + page.loads
            if not is_foreign(url) and not leads_somewhere(path, url, pages, site.resolve())
        ]
    for path in sorted(site.rglob("*.css")):
        style = path.read_text(encoding="utf-8")
        loads = re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)", style)
        faults += [f"{path.relative_to(site)} loads {url}" for url in loads]
    return faults


def is_foreign(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def leads_somewhere(path: Path, url: str, pages: dict[Path, Page], site: Path) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "data":
        return True
    start = site if parts.path.startswith("/") else path.parent
    target = (start / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if target in pages:
        return unquote(parts.fragment) in pages[target].places
    return target.is_file()


def install_missing() -> None:
    """Install the packages of the extra `docs`, unless they are there."""
    if all(is_installed(name) for name in NEEDED):
        return
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["project"]["optional-dependencies"]["docs"]
    print("docs: installing", *packages, flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", str(ROOT / "constraints.txt"), *packages], check=True)


def is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def mkdocs(*arguments: str) -> int:
    # The theme advertises its successor in every build unless it is told not to.
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", *arguments]
    return subprocess.run(command, cwd=ROOT, env=quiet, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("action", nargs="?", choices=["build", "serve"], default="build")
    parser.add_argument("--site-dir", type=Path, default=ROOT / "site", help="where to build it")
    parser.add_argument("--config", type=Path, default=ROOT / "mkdocs.yml", help="of which site")
    parser.add_argument("--address", default="127.0.0.1:8000", help="where to serve it")
    options = parser.parse_args()
    config = ("--config-file", str(options.config.resolve()))
    install_missing()
    if options.action == "serve":
        try:
            return mkdocs("serve", "--dev-addr", options.address, *config)
        except KeyboardInterrupt:
            return 0
    # Not with --quiet: that hides warnings from the strict mode, too.
    if mkdocs("build", "--strict", "--site-dir", str(options.site_dir.resolve()), *config):
        return 1
    faults = faults_of(options.site_dir)
    for fault in faults:
        print(f"docs: {fault}", file=sys.stderr)
    pages = len(list(options.site_dir.rglob("*.html")))
    print(f"docs: {pages} pages, {len(faults)} faults: {options.site_dir / 'index.html'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
