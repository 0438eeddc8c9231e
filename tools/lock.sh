#!/bin/sh
# Write constraints.txt: the newest release of every package that the development set-up may install.
#
# `make lock` runs this. One resolution serves every supported Python: where a package has dropped an
# older Python, the file has two lines with markers. The packages that build ours are pinned too. The
# resolver, uv, comes from PyPI into a directory that is removed at the end.
#
# PYTHON names the interpreter that runs the resolver, by default python3; any 3.11 or later will do,
# and the result is the same.
set -eu
cd "$(dirname "$0")/.."

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
trap 'exit 1' HUP INT TERM

"${PYTHON:-python3}" -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet --disable-pip-version-check uv

# What pyproject.toml says: the oldest Python, and what builds the package. pyspark comes as source,
# and is built with setuptools.
"$place/env/bin/python" - "$place" <<'END'
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())
place = Path(sys.argv[1])
(place / "oldest").write_text(project["project"]["requires-python"].removeprefix(">="))
(place / "build.in").write_text("\n".join([*project["build-system"]["requires"], "setuptools"]))
END

{
    echo "# The releases that the development set-up installs, for every supported Python."
    echo "# Made by \`make lock\`; the library's own ranges are in pyproject.toml."
    "$place/env/bin/uv" pip compile --quiet --universal --python-version "$(cat "$place/oldest")" \
        --all-extras --no-header --no-annotate --upgrade pyproject.toml "$place/build.in"
} >"$place/constraints.txt"
cp "$place/constraints.txt" constraints.txt
echo "lock: constraints.txt names $(grep -vc '^#' constraints.txt) releases"
