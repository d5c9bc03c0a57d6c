#!/usr/bin/env bash
# Prints every text of the corpus in today's dialect; TVM must read whatever it reads of the originals.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
PRINT_DIR="$out" cargo test --quiet --test roundtrip
python3 tests/python/tvm_parses.py "$out"
