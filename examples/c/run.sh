#!/usr/bin/env bash
# Compiles the example model to a shared object, builds the C program against it and runs it.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --release --quiet
mkdir -p target/examples/c
./target/release/relax-aot examples/models/mlp.rlx --params examples/models/mlp.safetensors -o target/examples/c/libmlp.so
cc -std=c11 -Wall -Wextra -Werror -O2 -I target/examples/c examples/c/main.c -L target/examples/c -lmlp \
   -Wl,-rpath,'$ORIGIN' -o target/examples/c/main
./target/examples/c/main
