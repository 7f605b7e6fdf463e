#!/bin/sh
# Installs toolrein for the user that runs it: downloads the archive of this platform, compares its SHA-256 with the
# release's SHA256SUMS, and puts the program into a folder. Needs sh, tar, curl or wget, and no root.
#
#   curl -fsSL RELEASE/install.sh | sh
#
# Variables: TOOLREIN_BIN, the folder (~/.local/bin); TOOLREIN_VERSION (that of this script); TOOLREIN_TARGET, the
# platform as Rust names it; TOOLREIN_DOWNLOADS, where releases are (the release workflow writes it below).
set -eu

fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

platform() {
    case "$(uname -m)" in
        x86_64 | amd64) processor=x86_64 ;;
        aarch64 | arm64) processor=aarch64 ;;
        *) fail "there is no program for the processor $(uname -m); cargo install toolrein builds it" ;;
    esac
    case "$(uname -s)" in
        # Static, so that it starts with any libc.
        Linux) echo "$processor-unknown-linux-musl" ;;
        Darwin) echo "$processor-apple-darwin" ;;
        *) fail "there is no archive for $(uname -s); pip install toolrein and npm install toolrein have one for Windows" ;;
    esac
}

download() {
    if has curl; then
        curl -fsSL --retry 2 -o "$2" "$1"
    elif has wget; then
        wget -q -O "$2" "$1"
    else
        fail "needs curl or wget"
    fi || fail "cannot download $1"
}

digest() {
    if has sha256sum; then
        sha256sum "$1"
    elif has shasum; then
        shasum -a 256 "$1"
    else
        fail "needs sha256sum or shasum"
    fi | cut -d ' ' -f 1
}

main() {
    version=${TOOLREIN_VERSION:-@VERSION@}
    downloads=${TOOLREIN_DOWNLOADS:-@DOWNLOADS@}
    target=${TOOLREIN_TARGET:-$(platform)}
    folder=${TOOLREIN_BIN:-$HOME/.local/bin}
    case "$version $downloads" in
        *@*@*) fail "this copy belongs to no release: set TOOLREIN_VERSION and TOOLREIN_DOWNLOADS" ;;
    esac

    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    name=toolrein-$version-$target
    download "$downloads/v$version/SHA256SUMS" "$scratch/SHA256SUMS"
    expected=$(awk -v file="$name.tar.gz" '$2 == file || $2 == "*" file { print $1 }' "$scratch/SHA256SUMS")
    [ -n "$expected" ] || fail "the release $version has no $name.tar.gz"
    download "$downloads/v$version/$name.tar.gz" "$scratch/archive.tar.gz"
    found=$(digest "$scratch/archive.tar.gz")
    [ "$found" = "$expected" ] || fail "$name.tar.gz is not the released file: SHA-256 $found, expected $expected; nothing was installed"

    tar -xzf "$scratch/archive.tar.gz" -C "$scratch" "$name/toolrein"
    mkdir -p "$folder"
    # Beside the old program first, so that one that runs is replaced at once.
    cp "$scratch/$name/toolrein" "$folder/.toolrein.new"
    chmod 755 "$folder/.toolrein.new"
    mv "$folder/.toolrein.new" "$folder/toolrein"
    "$folder/toolrein" --version
    case ":$PATH:" in
        *":$folder:"*) echo "Try it: toolrein demo" ;;
        *) echo "Try it: $folder/toolrein demo ($folder is not in PATH)" ;;
    esac
}

# Last, so that half a script, from a connection that broke, does nothing.
main
