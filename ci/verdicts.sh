#!/usr/bin/env bash
# Random modules before TVM and before us: the same verdicts, the same results. Seeded.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet --release
program=$PWD/target/release/relax-aot
cd tests/python/verdicts
for family in operators programs; do
  python3 compare.py "$program" "$family" --seed 20 --count 120
done
# Operators that neither these nor the corpus have; then the table of all.
python3 compare.py "$program" singles
python3 coverage.py | tail -1
