#!/usr/bin/env bash
# Random modules before TVM and before us: the same verdicts, the same results. Seeded.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${RELAX_AOT:-$PWD/target/release/relax-aot}
cd tests/python/verdicts
for family in operators programs; do
  python3 compare.py "$program" "$family" --seed 20 --count 120
done
# What TVM's own frontends and passes write, and slips in it: one module of ten.
rm -rf ../../../target/verdicts
python3 collect.py ../../../target/verdicts --sources nn,docs --passes 1 --mutations 1 --sample 10 2>/dev/null >&2
python3 compare.py "$program" ../../../target/verdicts --classes
# Operators that neither these nor the corpus have; then the table of all.
python3 compare.py "$program" singles
python3 coverage.py | tail -1
