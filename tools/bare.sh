#!/bin/sh
# Try the last commit in a bare Debian, with only the packages that the README asks for.
#
#   sh tools/bare.sh RELEASE [STEP...]      as root; RELEASE is bookworm, trixie, ...
#
# The steps, by default all three in this order:
#   demo        make demo
#   test        make test
#   background  make test once more, only the tests of programs and signals, started with nohup and &
#               in a script, so that SIGHUP and SIGINT are ignored
#
# ARGS    arguments for pytest, in both of the latter
# BARE    where bare systems are kept, by default cubecast-bare under ${TMPDIR:-/tmp}. One is made once a
#         release; each run has a fresh copy, RELEASE.run, which stays to be looked at. Remove them with
#         rm -rf: nothing is mounted there outside of a run
# MIRROR  Debian's mirror; by default the first one that apt uses here
#
# It needs debootstrap, git and unshare. pip is configured inside as it is outside.
set -eu
cd "$(dirname "$0")/.."

die() { printf 'bare: %s\n' "$*" >&2; exit 1; }
say() { printf 'bare: %s\n' "$*"; }

[ $# -ge 1 ] || die "usage: sh tools/bare.sh RELEASE [demo|test|background ...]"
release=$1
shift
steps=${*:-demo test background}
base=${BARE:-${TMPDIR:-/tmp}/cubecast-bare}/$release
root=$base.run

[ "$(id -u)" -eq 0 ] || die "only root can make and enter a bare system"
for program in debootstrap git unshare; do
    command -v "$program" >/dev/null || die "$program is not installed"
done

# The first site of a Debian release that apt knows here, without its security updates.
mirror() {
    apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep '/debian/*$' | head -n 1
}

if [ ! -e "$base/.complete" ]; then
    from=${MIRROR:-$(mirror)}
    [ -n "$from" ] || die "apt knows no mirror of Debian; name one: MIRROR=..."
    say "making a bare $release in $base"
    rm -rf "$base"
    mkdir -p "$base"
    debootstrap --variant=minbase --include=make,git,python3 "$release" "$base" "$from" >"$base.log" 2>&1 ||
        die "debootstrap failed; see $base.log"
    touch "$base/.complete"
fi
rm -rf "$root"
cp -a "$base" "$root"

# How names are resolved and pip reaches its index is the machine's business, not the release's.
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
# Installers and containers write it, and debootstrap does not for every release.
[ -e "$root/etc/hosts" ] || printf '127.0.0.1\tlocalhost\n::1\tlocalhost\n' >"$root/etc/hosts"
[ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/pip.conf"
# The certificates have a name of their own: packages of the release may write the usual one.
certificates=${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}
[ -e "$certificates" ] || die "no file of certificates at $certificates; name it: PIP_CERT=..."
cp -L "$certificates" "$root/etc/machine-certificates.crt"

git bundle create --quiet "$root/root/cubecast.bundle" HEAD

cat >"$root/root/steps.sh" <<'END'
set -eu
cd
git -c init.defaultBranch=main -c advice.detachedHead=false clone --quiet cubecast.bundle cubecast
cd cubecast
say() { printf 'bare: %s\n' "$*"; }
say "$(. /etc/os-release && echo "$PRETTY_NAME"), $(python3 --version), $(git log -1 --format='%h %s')"
signals='tests/cli tests/sync tests/docs/test_tutorial.py tests/docs/test_web_chat.py tests/rules/test_signals.py
    tests/spark/test_spark_kills.py tests/spark/test_spark_sessions.py'
for step in $STEPS; do
    say "$step begins"
    case $step in
        demo) make demo ;;
        test) make test ARGS="${ARGS:-}" ;;
        background)
            args=${ARGS:-$(echo $signals)}
            # A script's shell has no job control: what it starts with & ignores SIGINT.
            setsid nohup sh -c "make test ARGS='$args' & wait \$!" >background.log 2>&1 </dev/null &
            wait $! || { cat background.log; exit 1; }
            tail -n 1 background.log ;;
        *) say "no step $step"; exit 2 ;;
    esac
    say "$step passed"
done
END

# Mounts and processes end with the namespaces that they are made in, also if this is killed.
# shellcheck disable=SC2016
exec unshare --mount --pid --fork --kill-child sh -c '
    set -eu
    root=$1
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    shift
    exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb "$@" \
        sh /root/steps.sh
' sh "$root" STEPS="$steps" ARGS="${ARGS:-}" \
    PIP_CERT=/etc/machine-certificates.crt ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"}
