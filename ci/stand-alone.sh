#!/usr/bin/env bash
# Objects of the given models need nothing from elsewhere and hold no writable section, on every triple. (For the
# corpus, `cargo test --test embedded` asserts it.)
#
#   ci/stand-alone.sh MODEL.onnx..         needs binutils that know all targets: binutils-multiarch, or llvm-nm
set -euo pipefail
TOOL=${RELAX_AOT:-target/release/relax-aot}
READELF=$(command -v llvm-readelf || ls /usr/bin/llvm-readelf-* 2> /dev/null | tail -1 || echo readelf)
OUT=$(mktemp -d)
trap 'rm -rf "$OUT"' EXIT
failed=0
for model in "$@"; do
  for target in aarch64-unknown-none riscv64gc-unknown-none-elf riscv64gc-unknown-none-elf:+v x86_64-unknown-none \
    aarch64-unknown-linux-gnu riscv64gc-unknown-linux-gnu x86_64-unknown-linux-gnu s390x-unknown-linux-gnu; do
    cpu=${target#*:}
    [ "$cpu" != "$target" ] || cpu=baseline
    if ! "$TOOL" "$model" --emit obj --target "${target%:*}" --target-cpu "$cpu" --prefix m -o "$OUT/m.o" 2> "$OUT/err"; then
      echo "$(basename "$model") $target: not compiled: $(head -1 "$OUT/err")"
      failed=1
      continue
    fi
    undefined=$("$READELF" -sW "$OUT/m.o" | awk '$7 == "UND" && $8 != "" { print $8 }')
    writable=$("$READELF" -SW "$OUT/m.o" | sed 's/^ *\[ *[0-9]*\] *//' |
      awk '$2 ~ /PROGBITS|NOBITS/ && $7 ~ /W/ && $5 !~ /^0+$/ { print $1 }')
    if [ -n "$undefined$writable" ]; then
      echo "$(basename "$model") $target: undefined: $undefined, writable: $writable"
      failed=1
    fi
  done
  echo "$(basename "$model"): looked at"
done
exit $failed
