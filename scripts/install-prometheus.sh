#!/bin/sh
# Put Debian's prometheus under .tools/, for the test of the live source. Nothing is installed into the system.
set -eu
tools="$(cd "$(dirname "$0")/.." && pwd)/.tools"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
command -v apt-get >/dev/null && command -v dpkg >/dev/null || {
    echo "apt-get and dpkg are needed; or put a prometheus on PATH" >&2
    exit 1
}
chmod 755 "$work"
(cd "$work" && apt-get download prometheus)
mkdir -p "$tools"
dpkg -x "$work"/prometheus_*.deb "$work/unpacked"
mv "$work/unpacked/usr/bin/prometheus" "$tools/prometheus"
"$tools/prometheus" --version
