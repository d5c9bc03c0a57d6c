#!/usr/bin/env bash
# The MLPerf Tiny networks as images under QEMU: results compared with the host's, flash, workspace, stack (used and at
# most) and instructions, on a Cortex-M4 (C) and on bare AArch64 and RISC-V (objects). Fails when a result differs or a
# bound of the stack does not hold or is more than 1.3 times what is used.
#
#   benches/tiny.sh MODELS [NETWORK..]     a folder of NAME.onnx with NAME.npz, its input
#
# Needs what examples/run-all.sh needs.
set -euo pipefail
MODELS=$(realpath "$1")
shift
NETWORKS=("$@")
if [ $# = 0 ]; then
  for n in dscnn_kws resnet8 mobilenet_v1_025 fc_ae; do NETWORKS+=("${n}_int8" "$n"); done
fi
cd "$(dirname "$0")/.."
export RELAX_AOT=$(realpath "${RELAX_AOT:-target/release/relax-aot}")
EXAMPLES=examples
OUT=$(mktemp -d)
trap 'rm -rf "$OUT"' EXIT
failed=0

# network, machine, prefix of the tools, command of QEMU: runs $OUT/image.elf, prints a line
image() {
  local name=$1 machine=$2 cross=$3
  shift 3
  if ! timeout 600 "$@" -nographic -icount shift=0 -semihosting-config enable=on,target=native -kernel "$OUT/image.elf" \
    > "$OUT/log" 2>&1; then
    tail -3 "$OUT/log"
    failed=1
  fi
  echo "$name, $machine: flash $("${cross}size" "$OUT/model.o" | awk 'NR == 2 { print $1 }'), $(grep instructions "$OUT/log" || echo failed)"
}

for name in "${NETWORKS[@]}"; do
  integer=() tolerance=1e-4
  case $name in *_int8) integer=(--quantized integer) tolerance=0 ;; esac
  mkdir -p "$OUT/$name"
  python3 $EXAMPLES/embedded/record.py "$OUT/$name" "$MODELS/$name.npz" $tolerance "$MODELS/$name.onnx" "${integer[@]}" \
    > /dev/null

  STRICT="-std=c99 -O2 -Wall -Wextra -Werror -ffreestanding"
  M4="-mthumb -mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16 -fno-tree-loop-distribute-patterns"
  INCLUDE="-I $OUT -I $OUT/$name -I $EXAMPLES/embedded"
  "$RELAX_AOT" "$MODELS/$name.onnx" --prefix model --target thumbv7em-none-eabihf --messages none -o "$OUT/model.c"
  # shellcheck disable=SC2086
  arm-none-eabi-gcc $STRICT -pedantic $M4 -fcallgraph-info=su -c "$OUT/model.c" -o "$OUT/model.o"
  stack=$(python3 $EXAMPLES/embedded/stack_bound.py "$OUT/model.ci" model_main)
  sed 's/LENGTH = 512K/LENGTH = 4M/' $EXAMPLES/embedded-mps2/link.ld > "$OUT/link.ld"
  # shellcheck disable=SC2086
  arm-none-eabi-gcc $STRICT $M4 -nostdlib -static -DPICOSECONDS_PER_CLOCK=40000 -DMODEL_MAIN_STACK_MAX="$stack" $INCLUDE \
    -T "$OUT/link.ld" $EXAMPLES/embedded-mps2/start.c $EXAMPLES/embedded/app.c "$OUT/model.o" -lgcc -o "$OUT/image.elf"
  image "$name" "Cortex-M4, C" arm-none-eabi- qemu-system-arm -M mps2-an386

  for machine in aarch64-unknown-none riscv64gc-unknown-none-elf; do
    case $machine in
      aarch64*) cross=aarch64-linux-gnu- board=$EXAMPLES/embedded-aarch64 flags= qemu="qemu-system-aarch64 -M virt -cpu cortex-a53" ;;
      *)
        cross=riscv64-unknown-elf- board=$EXAMPLES/embedded-riscv64
        command -v ${cross}gcc > /dev/null || cross=riscv64-linux-gnu-
        flags="-march=rv64gc_zicsr -mabi=lp64d -mcmodel=medany" qemu="qemu-system-riscv64 -M virt -bios none"
        ;;
    esac
    "$RELAX_AOT" "$MODELS/$name.onnx" --prefix model --emit obj --target $machine --messages none -o "$OUT/model.o"
    $EXAMPLES/embedded/check-object.sh $cross "$OUT/model.o"
    sed -E 's/(rom.*LENGTH = )1M/\11500K/' $board/link.ld > "$OUT/link.ld"
    # shellcheck disable=SC2086
    ${cross}gcc $STRICT $flags -fno-pic -nostdlib -static -Wl,--build-id=none $INCLUDE -T "$OUT/link.ld" \
      $board/start.S $board/board.c $EXAMPLES/embedded/app.c "$OUT/model.o" -o "$OUT/image.elf"
    # shellcheck disable=SC2086
    image "$name" $machine $cross $qemu -m 32M -nic none
  done
done
exit $failed
