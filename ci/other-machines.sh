#!/usr/bin/env bash
# The corpus as objects for the other Linux machines, and as C for a big-endian one, under QEMU's user mode: the results
# are those that TVM recorded.
set -euo pipefail
cd "$(dirname "$0")/.."
TOOL=${RELAX_AOT:-target/release/relax-aot}
OUT=$(mktemp -d)
trap 'rm -rf "$OUT"' EXIT
python3 tests/machines/run.py "$TOOL" s390x-unknown-linux-gnu "$OUT"
python3 tests/machines/run.py "$TOOL" s390x-unknown-linux-gnu "$OUT" --emit c
python3 tests/machines/run.py "$TOOL" aarch64-unknown-linux-gnu "$OUT"
python3 tests/machines/run.py "$TOOL" riscv64gc-unknown-linux-gnu "$OUT" --cpu +v
