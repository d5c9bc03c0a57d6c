#!/usr/bin/env bash
# The ONNX backend suite through compiled libraries: fails when a case outside of expected_failures.toml does.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=$PWD/target/onnx-suite
rm -rf "$suite"
python3 tests/onnx/suite.py "$suite" >/dev/null
RELAX_AOT_ONNX_SUITE=$suite cargo test --quiet --test onnx_suite
