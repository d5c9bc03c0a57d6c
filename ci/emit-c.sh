#!/usr/bin/env bash
# The second back end against the first: every text of the corpus through `--emit c` gives the recorded results,
# compiled by gcc and by clang without a warning, with the undefined behaviour sanitizer (every finding stops the run)
# and with AddressSanitizer. Then the same files compile for machines of 32 bits.
#
#   ci/emit-c.sh [corpus filter]
#
# Needs gcc, clang; arm-none-eabi-gcc and a gcc with -m32 where they are installed.
set -euo pipefail
cd "$(dirname "$0")/.."
STRICT="-std=c99 -pedantic -Wall -Wextra -Werror -ffreestanding"
cargo test --quiet --no-run --test corpus
run() {
  local name=$1
  shift
  echo "emit c: $name"
  # The list of 800 passed tests tells nothing.
  if ! env RELAX_AOT_TEST_EMIT=c "$@" cargo test --quiet --test corpus -- "${FILTER[@]}" > target/emit-c.log 2>&1; then
    tail -60 target/emit-c.log
    exit 1
  fi
  grep "texts give" target/emit-c.log
}
FILTER=("$@")
run "gcc -O2, undefined behaviour" CC=gcc \
  RELAX_AOT_TEST_CFLAGS="$STRICT -O2 -fsanitize=undefined -fsanitize-undefined-trap-on-error"
run "clang -O1, undefined behaviour" CC=clang \
  RELAX_AOT_TEST_CFLAGS="$STRICT -O1 -fsanitize=undefined -fno-sanitize=function -fsanitize-trap=undefined"
run "gcc, addresses" CC=gcc RELAX_AOT_TEST_CFLAGS="$STRICT -O1 -fsanitize=address" \
  LD_PRELOAD="$(gcc -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0

# The first text of every case for a processor of 32 bits, by both compilers.
TOOL=${RELAX_AOT:-target/release/relax-aot}
[ -x "$TOOL" ] || cargo build --release --quiet
OUT=$(mktemp -d)
trap 'rm -rf "$OUT"' EXIT
count=0
while read -r file; do
  "$TOOL" "tests/corpus/$file" --target thumbv7em-none-eabihf --prefix m -o "$OUT/m.c" 2> "$OUT/err" || continue
  clang --target=thumbv7em-none-eabi $STRICT -O0 -fsyntax-only "$OUT/m.c"
  if command -v arm-none-eabi-gcc > /dev/null; then
    arm-none-eabi-gcc -mthumb -mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16 $STRICT -O1 -c "$OUT/m.c" -o "$OUT/m.o"
  fi
  count=$((count + 1))
done < <(python3 -c '
import json
for c in json.load(open("tests/corpus/MANIFEST.json"))["cases"]:
    print(c["texts"][0]["file"])')
echo "emit c: $count models for 32 bits"
[ "${#FILTER[@]}" -gt 0 ] || [ "$count" -ge 100 ]
