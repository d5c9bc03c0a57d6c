#!/usr/bin/env bash
# Builds and runs the Rust program; its build script compiles the model.
set -euo pipefail
cd "$(dirname "$0")/../.."
TOOL=${RELAX_AOT:-${CARGO_TARGET_DIR:-target}/release/relax-aot}
[ -n "${RELAX_AOT:-}" ] || cargo build --release --quiet

RELAX_AOT=$(realpath "$TOOL") CARGO_TARGET_DIR=target/examples/rust \
  cargo run --quiet --manifest-path examples/rust/Cargo.toml
