"""Finding the Java that Spark runs on: 17 or newer.

In this order: JAVA_HOME, the `java` on PATH, the usual places of the system.  A Java that the user
has set wins over an installed one, if it is new enough.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cubecast.spark.errors import NoJavaError

MINIMUM = 17
USUAL_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
)
"""Where Linux distributions, containers, macOS, Homebrew and SDKMAN put a Java."""

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_RELEASE = re.compile(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was found."""

    home: Path
    version: int


def find_java(
    environ: Mapping[str, str] = os.environ, places: tuple[str, ...] | None = None
) -> Java:
    """The Java to use; `NoJavaError` lists the places that were tried and what to do."""
    seen: list[str] = []
    for label, home in _candidates(environ, USUAL_PLACES if places is None else places):
        version = version_of(home)
        if version is not None and version >= MINIMUM:
            return Java(home, version)
        found = "has no Java that runs" if version is None else f"is Java {version}"
        seen.append(f"{label} {found}")
    raise NoJavaError(_advice(seen))


def version_of(home: Path) -> int | None:
    """The major version of the Java in a directory; None if none runs there."""
    launcher = home / "bin" / "java"
    if not os.access(launcher, os.X_OK) or launcher.is_dir():
        return None
    try:
        match = _RELEASE.search((home / "release").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        match = None
    if match is None:  # no release file: ask the program itself
        match = _VERSION.search(_said_by(launcher, "-version"))
    return None if match is None else _major(match)


def _major(match: re.Match[str]) -> int:
    """The major version; 8 was called 1.8."""
    first, second = match.groups()
    return int(second) if first == "1" and second else int(first)


def _candidates(environ: Mapping[str, str], places: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    if environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={environ['JAVA_HOME']}", Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield on_path, _home_of(Path(on_path))
    homes = [home for place in places for home in _glob(place)]
    for home in sorted(homes, key=lambda home: (version_of(home) or 0, home)):
        if version_of(home) is not None:
            yield str(home), home


def _home_of(launcher: Path) -> Path:
    """The directory a launcher belongs to; a wrapper script is asked for it."""
    home = launcher.resolve().parent.parent
    if (home / "release").exists():
        return home
    told = _said_by(launcher, "-XshowSettings:properties", "-version")
    match = re.search(r"java\.home = (.+)", told)
    return Path(match.group(1).strip()) if match else home


def _said_by(launcher: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [launcher, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout if done.returncode == 0 else ""


def _glob(place: str) -> list[Path]:
    path = Path(place).expanduser()
    return sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))


def _advice(seen: list[str]) -> str:
    found = f" ({'; '.join(seen)})" if seen else ""
    sudo = "" if hasattr(os, "geteuid") and os.geteuid() == 0 else "sudo "
    return (
        f"Spark needs Java {MINIMUM} or later, and there is none{found}: on Debian or Ubuntu run "
        f"'{sudo}apt-get install openjdk-17-jre-headless', elsewhere install any JDK {MINIMUM} or "
        "later; or set JAVA_HOME to the directory of one you have"
    )
