"""The commit of the running sources."""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import cubecast

LONGEST_S = 10.0
"""How long git may take to answer."""


def source_commit() -> str:
    """The commit that cubecast runs from, or "" if that is not known.

    A "+" at the end says that the sources have uncommitted changes.  For a checkout git is asked;
    an installed package has pip's note, if it came from a repository.
    """
    place = Path(cubecast.__file__).resolve()
    # The file must be the repository's own: an environment may lie inside another repository.
    if _git(place.parent, "ls-files", "--error-unmatch", place.name):
        commit = _git(place.parent, "rev-parse", "HEAD")
        changed = _git(place.parent, "status", "--porcelain", "--untracked-files=no", "--", ".")
        return f"{commit}+" if commit and changed else commit
    return _noted_by_pip()


def _git(folder: Path, *arguments: str) -> str:
    """The output of git, or "" if there is no git or it does not know the folder."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True, text=True, timeout=LONGEST_S, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _noted_by_pip() -> str:
    try:
        noted = json.loads(distribution("cubecast").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return ""
    return str(noted.get("vcs_info", {}).get("commit_id", ""))
