#!/bin/sh
# Make .venv and install cubecast in it, editable, with its development tools.
#
# Releases are those of constraints.txt, on every Python; `make lock` renews that file.
#
# `make setup` runs this when that file or pyproject.toml changed. It may be run again: a .venv that
# works is brought up to date, one that an earlier attempt left half made is replaced. The file
# .venv/.complete tells them apart: it is there only while everything is installed.
#
# PYTHON names the interpreter. Without it: the newest of python3.13, python3.12, python3.11 and
# python3 that is 3.11 or later, preferring one that can make virtual environments as it stands.
#
# The lab runs on Spark, which needs Java 17 or later: one is looked for, and installed from Debian's
# or Ubuntu's packages where we are root. Without it everything else works, so it is no error.
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

# Learn which packages there are. One unreachable source does not matter if another has them.
refresh_packages() {
    apt-get update -qq >/dev/null 2>&1 || true
}

# Install a system package; false, with apt-get's own words printed, if that did not work.
install_package() {
    say "installing the system package $1"
    # Images without manual pages lack the directory that Java's packages link them in.
    mkdir -p /usr/share/man/man1
    if ! log=$(DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq -y --no-install-recommends "$1" 2>&1); then
        printf '%s\n' "$log" >&2
        return 1
    fi
}

# Give the interpreter the ensurepip it lacks, or say what to do.
add_ensurepip() {
    package="python$(version "$1")-venv"
    if ! is_debian; then
        die "$1 has no ensurepip; install it, or name another Python: make setup PYTHON=/path/to/python3"
    elif [ "$(id -u)" -ne 0 ]; then
        die "$1 cannot make virtual environments; run 'sudo apt-get install $package', then 'make setup' again"
    fi
    refresh_packages
    install_package "$package" ||
        die "apt-get could not install $package; install it, then run 'make setup' again"
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

# True if the program is a Java of version 17 or later (8 calls itself 1.8).
java_recent_enough() {
    major=$("$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${major:-0}" -ge 17 ]
}

# The same places as cubecast.spark.java looks at.
find_java() {
    for candidate in "${JAVA_HOME:-/nowhere}/bin/java" "$(command -v java || true)" \
        /usr/lib/jvm/*/bin/java /usr/java/*/bin/java /opt/java/*/bin/java /opt/jdk*/bin/java \
        /opt/homebrew/opt/openjdk*/bin/java /usr/local/opt/openjdk*/bin/java \
        /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java \
        "${HOME:-/root}"/.sdkman/candidates/java/*/bin/java; do
        if [ -n "$candidate" ] && [ -x "$candidate" ] && java_recent_enough "$candidate"; then
            return 0
        fi
    done
    return 1
}

# The package of a Java that is recent enough: 17 where there is one, and elsewhere the usual one, which
# is older than 17 only where 17 is packaged, too.
java_package() {
    if apt-cache policy openjdk-17-jre-headless 2>/dev/null | grep -q 'Candidate: [^(]'; then
        echo openjdk-17-jre-headless
    else
        echo default-jre-headless
    fi
}

# Java for the lab, if it can be had; the last words if not.
add_java() {
    if find_java; then
        return
    elif ! is_debian; then
        say "no Java 17 or later found: only the lab needs it. Install any JDK 17 or later, or set"
        say "JAVA_HOME to one; then 'cubecast lab' works, nothing has to be set up again"
        return
    elif [ "$(id -u)" -ne 0 ]; then
        say "no Java 17 or later found: only the lab needs it. Run 'sudo apt-get install $(java_package)';"
        say "then 'cubecast lab' works, nothing has to be set up again"
        return
    fi
    refresh_packages
    if ! install_package "$(java_package)" || ! find_java; then
        say "no Java 17 or later could be installed: only the lab needs it. Install one, or set"
        say "JAVA_HOME to one; then 'cubecast lab' works, nothing has to be set up again"
    fi
}

if ! environment_is_sound; then
    python=$(choose_python)
    makes_environments "$python" || add_ensurepip "$python"
    say "making .venv with $python ($(version "$python"))"
    "$python" -m venv --clear .venv
fi
rm -f .venv/.complete
say "installing cubecast and its development tools"
# The variables, unlike the option, hold for what pip needs to build a package as well: the first for
# the pips of Debian, the second for newer ones. pyspark comes as source; pip is to build it in the way
# that it does not warn about.
PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --use-pep517 --editable '.[dev]' ||
    die "pip could not install the dependencies; see its message above, then run 'make setup' again"
touch .venv/.complete
add_java
