#!/usr/bin/env bash
# Compiles the example model to a shared object, builds the C++ program against it and runs it. Needs a C++ compiler.
set -euo pipefail
cd "$(dirname "$0")/../.."
TOOL=${RELAX_AOT:-${CARGO_TARGET_DIR:-target}/release/relax-aot}
[ -n "${RELAX_AOT:-}" ] || cargo build --release --quiet
OUT=target/examples/cpp
mkdir -p $OUT

"$TOOL" examples/models/mlp.rlx --params examples/models/mlp.safetensors -o $OUT/libmlp.so
${CXX:-c++} -std=c++17 -Wall -Wextra -Werror -O2 -I $OUT examples/cpp/main.cpp -L $OUT -lmlp -Wl,-rpath,'$ORIGIN' \
  -o $OUT/main
$OUT/main
