#!/usr/bin/env bash
# The C of the given models compiles without a warning, freestanding, for machines of 64 and 32 bits, by gcc and clang.
# (For the corpus, ci/emit-c.sh does it.) The code of models with huge weights: MODEL.onnx with OPTIONS="--weights external".
#
#   ci/strict-c.sh MODEL.onnx..      needs gcc, clang, arm-none-eabi-gcc, riscv64-unknown-elf-gcc
set -euo pipefail
TOOL=${RELAX_AOT:-target/release/relax-aot}
STRICT="-std=c99 -pedantic -Wall -Wextra -Werror -ffreestanding"
OUT=$(mktemp -d)
trap 'rm -rf "$OUT"' EXIT
failed=0
check() { # what, compiler with flags
  local what=$1
  shift
  if ! "$@" $STRICT "$OUT/m.c" 2> "$OUT/err"; then
    echo "$what: $1 says:"
    head -5 "$OUT/err"
    failed=1
  fi
}
for model in "$@"; do
  for bits in 64 32; do
    target=x86_64-unknown-none
    [ $bits = 64 ] || target=thumbv7em-none-eabihf
    what="$(basename "$model") for $bits bits"
    # shellcheck disable=SC2086
    if ! "$TOOL" "$model" --emit c --target $target --prefix m ${OPTIONS:-} -o "$OUT/m.c" 2> "$OUT/err"; then
      echo "$what: not compiled: $(head -1 "$OUT/err")"
      failed=1
      continue
    fi
    begin=$SECONDS
    if [ $bits = 64 ]; then
      check "$what" gcc -O2 -c -o "$OUT/m.o"
      check "$what" clang -O1 -c -o "$OUT/m.o"
    else
      check "$what" arm-none-eabi-gcc -mthumb -mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16 -O2 -c -o "$OUT/m.o"
      check "$what" riscv64-unknown-elf-gcc -march=rv32imac -mabi=ilp32 -O2 -c -o "$OUT/m.o"
      check "$what" clang --target=thumbv7em-none-eabi -O1 -c -o "$OUT/m.o"
    fi
    echo "$what: $(wc -c < "$OUT/m.c") bytes of C, $((SECONDS - begin)) s"
  done
done
exit $failed
