#!/usr/bin/env bash
# A recursive model on bare AArch64 with librelax_rt.a, under QEMU. Needs: aarch64-linux-gnu-gcc, qemu-system-aarch64, a
# Rust compiler with the core library for the target or its sources.
set -euo pipefail
cd "$(dirname "$0")/../.."
TOOL=${RELAX_AOT:-target/release/relax-aot}
[ -n "${RELAX_AOT:-}" ] || cargo build --release --quiet
CROSS=aarch64-linux-gnu-
BOARD=examples/embedded-aarch64
OUT=target/examples/embedded-runtime
mkdir -p "$OUT"
"$TOOL" tests/corpus/grow_recursion.rlx --prefix model --target aarch64-unknown-none -o "$OUT/model.o"
bash examples/embedded-runtime/build-runtime.sh aarch64-unknown-none "$OUT"
# The model needs the runtime, the runtime three functions, and neither has a writable section.
if ${CROSS}nm -u "$OUT/model.o" | grep -v relax_rt_; then exit 1; fi
if ${CROSS}nm -u "$OUT/relax_rt.o" | grep -vE ' (memcpy|memset|strlen)$'; then exit 1; fi
${CROSS}gcc -std=c99 -O2 -Wall -Wextra -Werror -ffreestanding -fno-builtin -fno-tree-loop-distribute-patterns -fno-pic \
  -nostdlib -static -Wl,--build-id=none -I "$OUT" -I examples/embedded -T $BOARD/link.ld \
  $BOARD/start.S $BOARD/board.c examples/embedded-runtime/app.c "$OUT/model.o" "$OUT/librelax_rt.a" -o "$OUT/image.elf"
${CROSS}size "$OUT/image.elf"
timeout 60 qemu-system-aarch64 -M virt -cpu cortex-a53 -m 32M -nographic -nic none -icount shift=0 \
  -semihosting-config enable=on,target=native -kernel "$OUT/image.elf"
