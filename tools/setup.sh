#!/bin/sh
# Make .venv and install cubecast in it, editable, with its development tools.
#
# `make setup` runs this when pyproject.toml changed. It may be run again at any time: a .venv that
# works is brought up to date, one that an earlier attempt left half made is replaced. The file
# .venv/.complete tells them apart: it is there only while everything is installed.
#
# PYTHON names the interpreter. Without it: the newest of python3.13, python3.12, python3.11 and
# python3 that is 3.11 or later, preferring one that can make virtual environments as it stands.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Names on PATH can be wrappers that fail when run, so every question is put to the interpreter.
recent_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# Debian's python3 has venv but no ensurepip, or an ensurepip without the pip it should install.
makes_environments() {
    "$1" -c 'import venv, ensurepip; ensurepip.version()' >/dev/null 2>&1
}

# The installation that an interpreter, or the environment made from it, belongs to.
identity() {
    "$1" -c 'import sys; print(sys.version, sys.base_prefix)' 2>/dev/null
}

version() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'
}

choose_python() {
    if [ -n "${PYTHON:-}" ]; then
        recent_enough "$PYTHON" ||
            die "PYTHON=$PYTHON is not a Python 3.11 or later; name one that is, or leave PYTHON out"
        echo "$PYTHON"
        return
    fi
    fallback=
    for candidate in python3.13 python3.12 python3.11 python3 /usr/bin/python3; do
        recent_enough "$candidate" || continue
        if makes_environments "$candidate"; then
            echo "$candidate"
            return
        fi
        fallback=${fallback:-$candidate}
    done
    [ -n "$fallback" ] ||
        die "no Python 3.11 or later found; install one, or name it: make setup PYTHON=/path/to/python3"
    echo "$fallback"
}

is_debian() {
    [ -r /etc/os-release ] && grep -Eq '^ID(_LIKE)?=.*(debian|ubuntu)' /etc/os-release &&
        command -v apt-get >/dev/null
}

# Give the interpreter the ensurepip it lacks, or say what to do.
add_ensurepip() {
    package="python$(version "$1")-venv"
    if ! is_debian; then
        die "$1 has no ensurepip; install it, or name another Python: make setup PYTHON=/path/to/python3"
    elif [ "$(id -u)" -ne 0 ]; then
        die "$1 cannot make virtual environments; run 'sudo apt-get install $package', then 'make setup' again"
    fi
    say "installing the system package $package"
    # One unreachable source does not matter if the package comes from another.
    apt-get update -qq >/dev/null 2>&1 || true
    if ! log=$(DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq -y --no-install-recommends "$package" 2>&1); then
        printf '%s\n' "$log" >&2
        die "apt-get could not install $package; install it, then run 'make setup' again"
    fi
    makes_environments "$1" ||
        die "$1 has no ensurepip even with $package; name another Python: make setup PYTHON=/usr/bin/python3"
}

# True if .venv is complete, runs, has a working pip, and is made from the PYTHON asked for, if any.
environment_is_sound() {
    [ -e .venv/.complete ] || return 1
    recent_enough .venv/bin/python || return 1
    .venv/bin/python -m pip --version >/dev/null 2>&1 || return 1
    [ -z "${PYTHON:-}" ] || [ "$(identity .venv/bin/python)" = "$(identity "$PYTHON")" ]
}

if ! environment_is_sound; then
    python=$(choose_python)
    makes_environments "$python" || add_ensurepip "$python"
    say "making .venv with $python ($(version "$python"))"
    "$python" -m venv --clear .venv
fi
rm -f .venv/.complete
say "installing cubecast and its development tools"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' ||
    die "pip could not install the dependencies; see its message above, then run 'make setup' again"
touch .venv/.complete
