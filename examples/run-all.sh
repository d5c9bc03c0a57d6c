#!/usr/bin/env bash
# Builds and runs every example and compares what it prints with its expected.txt. Exits non-zero on any difference.
#
#   examples/run-all.sh            an example whose tools are missing on this machine is skipped
#   examples/run-all.sh --strict   ... fails
#   UPDATE_EXPECT=1 examples/run-all.sh   writes expected.txt anew
set -euo pipefail
cd "$(dirname "$0")/.."
strict=${1:-}
if [ -z "${RELAX_AOT:-}" ]; then
  cargo build --release --quiet
  RELAX_AOT=${CARGO_TARGET_DIR:-target}/release/relax-aot
fi
export RELAX_AOT=$(realpath "$RELAX_AOT")
mkdir -p target/examples

# The tools an example needs beyond bash and cargo.
needs() {
  case $1 in
    c) echo "${CC:-cc}" ;;
    cpp) echo "${CXX:-c++}" ;;
    python) echo python3 ;;
    embedded-aarch64 | embedded-runtime) echo aarch64-linux-gnu-gcc qemu-system-aarch64 ;;
    embedded-cmake)
      # Python's package will do.
      python3 -c 'import cmake' 2> /dev/null || echo cmake
      echo arm-none-eabi-gcc qemu-system-arm
      ;;
    embedded-mps2) echo arm-none-eabi-gcc qemu-system-arm python3 ;;
    embedded-riscv64)
      # Either toolchain will do.
      command -v riscv64-unknown-elf-gcc || echo riscv64-linux-gnu-gcc
      echo qemu-system-riscv64
      ;;
  esac
}

failed=()
for script in examples/*/run.sh; do
  dir=$(dirname "$script") name=$(basename "$(dirname "$script")")
  missing=
  for tool in $(needs "$name"); do command -v "$tool" >/dev/null || missing+=" $tool"; done
  if [ "$name" = python ] && [ -z "$missing" ] && ! python3 -c 'import numpy' 2>/dev/null; then missing=" numpy"; fi
  if [ -n "$missing" ]; then
    echo "$name: skipped, it needs$missing"
    if [ "$strict" = --strict ]; then failed+=("$name"); fi
    continue
  fi
  log=target/examples/$name.log
  if ! "$script" >"$log" 2>"$log.err"; then
    cat "$log" "$log.err"
    echo "$name: FAILED"
    failed+=("$name")
  elif [ -n "${UPDATE_EXPECT:-}" ] && [ -f "$dir/expected.txt" ]; then
    cp "$log" "$dir/expected.txt"
    echo "$name: recorded"
  elif [ -f "$dir/expected.txt" ] && ! diff -u "$dir/expected.txt" "$log"; then
    echo "$name: FAILED, it prints something else"
    failed+=("$name")
  else
    echo "$name: ok"
  fi
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}"
  exit 1
fi
