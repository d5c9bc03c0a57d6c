#!/usr/bin/env bash
# Compiles the example model to a shared object and calls it from Python. Needs python3 with numpy.
set -euo pipefail
cd "$(dirname "$0")/../.."
TOOL=${RELAX_AOT:-${CARGO_TARGET_DIR:-target}/release/relax-aot}
[ -n "${RELAX_AOT:-}" ] || cargo build --release --quiet
OUT=target/examples/python
mkdir -p $OUT

"$TOOL" examples/models/mlp.rlx --params examples/models/mlp.safetensors -o $OUT/libmlp.so
PYTHONDONTWRITEBYTECODE=1 python3 examples/python/main.py $OUT/libmlp.so
