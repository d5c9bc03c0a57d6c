#!/usr/bin/env bash
# The ONNX backend suite through compiled libraries, in the best form that the machine has, in AVX2's, in that of 128
# bits and with every loop dealt out to threads: fails when a case outside of expected_failures.toml does. Then the cases
# at other shapes: fails when fewer pass than columns.toml records.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=$PWD/target/onnx-suite
columns=$PWD/target/onnx-columns
rm -rf "$suite"
python3 tests/onnx/suite.py "$suite" >/dev/null
for how in '' CPU=auto=x86-64-v3 CPU=auto=x86-64-v2 THREADS=3; do
  (
    [ -z "$how" ] || export "RELAX_AOT_TEST_$how"
    RELAX_AOT_ONNX_SUITE=$suite cargo test --quiet --test onnx_suite
  )
done
python3 tests/onnx/columns.py "$suite" "$columns"
RELAX_AOT_ONNX_SUITE=$suite RELAX_AOT_ONNX_COLUMNS=$columns cargo test --quiet --test onnx_suite
