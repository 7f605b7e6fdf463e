#!/bin/sh
# Packs a program that is already built into a Debian package and an archive, with their checksums. From the project's root;
# `make package` builds first.
#   deploy/package.sh [PROFILE [TARGET]]     into $DIST, target/dist without it
set -eu

profile=${1:-release}
target=${2:-}
dist=${DIST:-target/dist}
case $profile in dev) folder=debug ;; *) folder=$profile ;; esac
program=target/${target:+$target/}$folder/toolrein
host=$(rustc -vV | sed -n 's/^host: //p')
# The debug build is packed for tests alone: quickly rather than small.
fast=$([ "$profile" = release ] || echo --fast)

mkdir -p "$dist"
deploy/pages.sh "$program"
cargo deb --quiet --no-build --locked --profile "$profile" ${target:+--target "$target"} $fast --output "$dist/"
deploy/pack.py "$program" "${target:-$host}" --kinds archive --pages target/pages $fast > /dev/null

cd "$dist"
find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum > SHA256SUMS
