#!/bin/sh
# Builds the program for Linux on both processors and packs it as wheel and npm packages (deploy/pack.py). From the
# project's root, in the environment that `make packages` sets: PROFILE, and PROGRAM to pack one that is already built.
set -eu

profile=${PROFILE:-release}
case $profile in dev) folder=debug fast=--fast ;; *) folder=$profile fast= ;; esac
host=$(rustc -vV | sed -n 's/^host: //p')

if [ -n "${PROGRAM:-}" ]; then
    exec deploy/pack.py "$PROGRAM" "$host" --kinds wheel,npm $fast
fi

. .venv/bin/activate
packed=0
for processor in x86_64 aarch64; do
    target=$processor-unknown-linux-musl
    asked=$target
    if ! rustup target add "$target"; then
        # Its standard library is there in any case; the oldest glibc that Rust supports.
        target=$processor-unknown-linux-gnu
        asked=$target.2.17
        [ "$target" = "$host" ] || rustup target add "$target" || {
            echo "make packages: no Rust target for $processor can be installed here, so that nothing was built for it; the release workflow builds it"
            continue
        }
    fi
    cargo zigbuild --locked --profile "$profile" --target "$asked" --bin toolrein
    deploy/pack.py "target/$target/$folder/toolrein" "$target" --kinds wheel,npm $fast
    packed=$((packed + 1))
done
[ "$packed" -gt 0 ]
