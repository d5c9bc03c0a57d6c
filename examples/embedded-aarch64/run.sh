#!/usr/bin/env bash
# Compiles a model for bare AArch64, links it into an image, runs the image in QEMU. Fails when the numbers differ
# from the host's. Needs: aarch64-linux-gnu-gcc, qemu-system-aarch64.
set -euo pipefail
cd "$(dirname "$0")/../.."
TOOL=${RELAX_AOT:-target/release/relax-aot}
[ -n "${RELAX_AOT:-}" ] || cargo build --release --quiet
CROSS=aarch64-linux-gnu-
HERE=examples/embedded-aarch64
OUT=target/examples/embedded-aarch64
mkdir -p "$OUT/mobilenet" "$OUT/kws"

MODEL=tests/corpus/torch_mobilenet_block
# The numbers to come: the host's, which the image holds recorded (examples/embedded/record.py).
"$TOOL" run $MODEL.rlx --params $MODEL.params.safetensors --inputs $MODEL.0.in.npz --expect $MODEL.0.out.npz --rtol 1e-3
"$TOOL" $MODEL.rlx --params $MODEL.params.safetensors --prefix model \
  --emit obj --target aarch64-unknown-none -o "$OUT/mobilenet/model.o"
# A network of 8-bit integers, equal to the bit.
"$TOOL" examples/models/kws_int8.onnx --prefix model --messages none --region fast=9K,slow=16K \
  --emit obj --target aarch64-unknown-none -o "$OUT/kws/model.o"

for model in mobilenet kws; do
  echo "$model:"
  examples/embedded/check-object.sh ${CROSS} "$OUT/$model/model.o"
  ${CROSS}gcc -std=c99 -O2 -Wall -Wextra -Werror -ffreestanding -fno-pic -nostdlib -static -Wl,--build-id=none \
    -I "$OUT/$model" -I examples/embedded/$model -I examples/embedded -T $HERE/link.ld \
    $HERE/start.S $HERE/board.c examples/embedded/app.c "$OUT/$model/model.o" -o "$OUT/$model.elf"
  ${CROSS}size "$OUT/$model.elf"
  timeout 60 qemu-system-aarch64 -M virt -cpu cortex-a53 -m 32M -nographic -nic none -icount shift=0 \
    -semihosting-config enable=on,target=native -kernel "$OUT/$model.elf"
done
