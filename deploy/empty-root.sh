#!/bin/sh
# Runs a program in a root that has nothing but this program: empty-root.sh PROGRAM ARGUMENTS. As root or with sudo. Only a
# static program starts there, as in an image from scratch.
set -eu

program=$1
shift
as_root=$([ "$(id -u)" = 0 ] || echo sudo)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
cp "$program" "$root/program"
$as_root chroot "$root" /program "$@"
