#!/usr/bin/env bash
# Builds and runs every bare-metal example in QEMU; each compares its outputs with the host's.
set -euo pipefail
cd "$(dirname "$0")/.."
for example in examples/embedded-*/; do
  echo "-- $example"
  bash "$example/run.sh"
done
