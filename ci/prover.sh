#!/usr/bin/env bash
# z3 judges some thousand answers of the shape prover.
set -euo pipefail
cd "$(dirname "$0")/.."
questions=$(mktemp)
trap 'rm -f "$questions"' EXIT
PROVER_QUESTIONS=$questions cargo test --quiet --test prover >/dev/null
python3 tests/python/prover.py < "$questions"
