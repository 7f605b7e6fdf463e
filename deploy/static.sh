#!/bin/sh
# Builds one program without any library: static.sh TARGET PROFILE, from the project's root. musl's is compiled and linked by
# zig, for either processor on either; glibc's by the host's own tools, as in deploy/Dockerfile. A target that cannot be
# installed is named and is no failure.
set -eu

target=$1
profile=$2
if ! rustup target add "$target"; then
    echo "make static: Rust's target $target cannot be installed here, so that nothing was built; the release workflow builds it"
    exit 0
fi
# By default the crate getrandom looks up its system call by symbol name, which fails in a static program, and then opens
# /dev/random, which does not exist in an empty root: hash maps with random keys would panic.
random='--cfg getrandom_backend="linux_getrandom"'
case $target in
    *-gnu)
        RUSTFLAGS="-C target-feature=+crt-static $random" \
            cargo build --locked --profile "$profile" --target "$target" --bin toolrein
        ;;
    *)
        [ -x .venv/bin/cargo-zigbuild ] || make .venv/bin/cargo-zigbuild
        . .venv/bin/activate
        RUSTFLAGS="$random" cargo zigbuild --locked --profile "$profile" --target "$target" --bin toolrein
        ;;
esac
