#!/bin/sh
# toolrein beside nginx on this machine: CPU time per request, memory, start. Needs two processors, taskset and nginx.
# Loads 127.0.0.1 alone; takes less than three minutes. Quote ratios: absolute figures drift from machine to machine.
set -eu
cd "$(dirname "$0")/../.."
command -v nginx >/dev/null || { echo "compare: nginx is not installed" >&2; exit 2; }
cargo build --release --locked --bin toolrein --example compare
exec taskset -c 1 target/release/examples/compare target/release/toolrein
