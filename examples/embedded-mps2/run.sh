#!/usr/bin/env bash
# Compiles a model to C for 32-bit processors, builds images for four Cortex-M boards and runs them in QEMU. Fails when
# a number differs from the host's. Needs: arm-none-eabi-gcc, qemu-system-arm.
set -euo pipefail
cd "$(dirname "$0")/../.."
TOOL=${RELAX_AOT:-target/release/relax-aot}
[ -n "${RELAX_AOT:-}" ] || cargo build --release --quiet
HERE=examples/embedded-mps2
OUT=target/examples/embedded-mps2
mkdir -p "$OUT"

MODEL=tests/corpus/torch_mobilenet_block
"$TOOL" run $MODEL.rlx --params $MODEL.params.safetensors --inputs $MODEL.0.in.npz --expect $MODEL.0.out.npz --rtol 1e-3
mkdir -p "$OUT/mobilenet" "$OUT/kws"
"$TOOL" $MODEL.rlx --params $MODEL.params.safetensors --prefix model --target thumbv7em-none-eabihf \
  -o "$OUT/mobilenet/model.c"
# A network of 8-bit integers; the image holds what `relax-aot run --quantized integer` gives here, to the bit.
"$TOOL" examples/models/kws_int8.onnx --prefix model --target thumbv7em-none-eabihf --messages none \
  -o "$OUT/kws/model.c"

# board, processor flags, picoseconds per clock
run() {
  both mobilenet "$@"
  both kws "$@"
}

# model, board, processor flags, picoseconds per clock
both() {
  local model=$1 board=$2 flags=$3 clock=$4
  echo "$model on $board ($flags):"
  # shellcheck disable=SC2086
  arm-none-eabi-gcc -std=c99 -pedantic -Wall -Wextra -Werror -ffreestanding -mthumb $flags \
    -O2 -fno-tree-loop-distribute-patterns -fcallgraph-info=su -c "$OUT/$model/model.c" -o "$OUT/$board.model.o"
  # Nothing but the compiler's own arithmetic may be missing.
  if arm-none-eabi-nm -u "$OUT/$board.model.o" | grep -v __aeabi_; then
    echo "the model has undefined symbols"
    exit 1
  fi
  # The bound that the header has for objects: here the C compiler knows the frames.
  local stack
  stack=$(python3 examples/embedded/stack_bound.py "$OUT/$board.model.ci" model_main)
  # shellcheck disable=SC2086
  arm-none-eabi-gcc -std=c99 -Wall -Wextra -Werror -ffreestanding -mthumb $flags -O2 -nostdlib -static \
    -fno-tree-loop-distribute-patterns -DPICOSECONDS_PER_CLOCK=$clock -DMODEL_MAIN_STACK_MAX=$stack -I "$OUT/$model" -I examples/embedded/$model -I examples/embedded -T $HERE/link.ld \
    $HERE/start.c examples/embedded/app.c "$OUT/$board.model.o" -lgcc -o "$OUT/$board.elf"
  arm-none-eabi-size "$OUT/$board.elf" "$OUT/$board.model.o"
  timeout 120 qemu-system-arm -M "$board" -nographic -icount shift=0 \
    -semihosting-config enable=on,target=native -kernel "$OUT/$board.elf"
}

run mps2-an385 "-mcpu=cortex-m3" 40000
run mps2-an386 "-mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16" 40000
run mps2-an500 "-mcpu=cortex-m7 -mfloat-abi=hard -mfpu=fpv5-d16" 40000
run mps3-an547 "-mcpu=cortex-m55 -mfloat-abi=hard" 31250
