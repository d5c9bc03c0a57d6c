#!/usr/bin/env bash
# Compiles a model for bare 64-bit RISC-V, without and with vectors, links images, runs them in QEMU. Fails when the
# numbers differ from the host's. Needs: riscv64-unknown-elf-gcc (or riscv64-linux-gnu-gcc), qemu-system-riscv64.
set -euo pipefail
cd "$(dirname "$0")/../.."
TOOL=${RELAX_AOT:-target/release/relax-aot}
[ -n "${RELAX_AOT:-}" ] || cargo build --release --quiet
CROSS=riscv64-unknown-elf-
command -v ${CROSS}gcc > /dev/null || CROSS=riscv64-linux-gnu-
HERE=examples/embedded-riscv64
OUT=target/examples/embedded-riscv64
mkdir -p "$OUT/mobilenet" "$OUT/kws"

MODEL=tests/corpus/torch_mobilenet_block
# The numbers to come: the host's, which the image holds recorded (examples/embedded/record.py).
"$TOOL" run $MODEL.rlx --params $MODEL.params.safetensors --inputs $MODEL.0.in.npz --expect $MODEL.0.out.npz --rtol 1e-3
for cpu in baseline +v; do
  options="--prefix model --emit obj --target riscv64gc-unknown-none-elf --target-cpu $cpu"
  # shellcheck disable=SC2086
  "$TOOL" $MODEL.rlx --params $MODEL.params.safetensors $options -o "$OUT/mobilenet/model.o"
  # A network of 8-bit integers, equal to the bit.
  # shellcheck disable=SC2086
  "$TOOL" examples/models/kws_int8.onnx --messages none $options -o "$OUT/kws/model.o"
  for model in mobilenet kws; do
    name=$model${cpu/baseline/}
    echo "$model on riscv64, target-cpu $cpu:"
    examples/embedded/check-object.sh ${CROSS} "$OUT/$model/model.o"
    ${CROSS}gcc -std=c99 -O2 -march=rv64gc_zicsr -mabi=lp64d -mcmodel=medany -Wall -Wextra -Werror -ffreestanding \
      -fno-pic -nostdlib -static -Wl,--build-id=none -I "$OUT/$model" -I examples/embedded/$model -I examples/embedded \
      -T $HERE/link.ld $HERE/start.S $HERE/board.c examples/embedded/app.c "$OUT/$model/model.o" -o "$OUT/$name.elf"
    ${CROSS}size "$OUT/$name.elf"
    timeout 60 qemu-system-riscv64 -M virt -cpu rv64,v=true,vlen=128 -m 32M -nographic -nic none -icount shift=0 \
      -bios none -semihosting-config enable=on,target=native -kernel "$OUT/$name.elf"
  done
done
