#!/bin/sh
# Packs a program that is already built: manual pages and completions, which it writes itself, into a Debian package and
# an archive, with their checksums. From the project's root; `make package` builds first.
#   deploy/package.sh [PROFILE [TARGET]]     into $DIST, target/dist without it
set -eu

profile=${1:-release}
target=${2:-}
dist=${DIST:-target/dist}
pages=target/pages
case $profile in dev) folder=debug ;; *) folder=$profile ;; esac
program=target/${target:+$target/}$folder/toolrein
version=$("$program" --version | cut -d ' ' -f 2)
host=$(rustc -vV | sed -n 's/^host: //p')
name=toolrein-$version-${target:-$host}

rm -rf "$pages"
mkdir -p "$pages" "$dist"
"$program" man > "$pages/toolrein.1"
for command in $(sed -n 's/^toolrein\\-\([a-z-]*\)(1)$/\1/p' "$pages/toolrein.1"); do
    "$program" man "$command" > "$pages/toolrein-$command.1"
done
"$program" completions bash > "$pages/toolrein.bash"
"$program" completions zsh > "$pages/_toolrein"
"$program" completions fish > "$pages/toolrein.fish"

# The debug build is packed for tests alone: quickly rather than small.
cargo deb --quiet --no-build --locked --profile "$profile" ${target:+--target "$target"} \
    $([ "$profile" = release ] || echo --fast) --output "$dist/"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/$name/man/man1" "$scratch/$name/completions"
cp "$program" proxy.toml README.md CHANGELOG.md LICENSE "$scratch/$name/"
cp "$pages"/*.1 "$scratch/$name/man/man1/"
cp "$pages/toolrein.bash" "$pages/_toolrein" "$pages/toolrein.fish" "$scratch/$name/completions/"
tar --owner=0 --group=0 --numeric-owner -czf "$dist/$name.tar.gz" -C "$scratch" "$name"

cd "$dist"
find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum > SHA256SUMS
