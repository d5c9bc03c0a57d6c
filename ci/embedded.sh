#!/usr/bin/env bash
# Builds every bare-metal example image and runs it in QEMU; fails when a number differs from the host's.
set -euo pipefail
cd "$(dirname "$0")/.."
for board in aarch64 riscv64 mps2; do
  "examples/embedded-$board/run.sh"
done
