#!/usr/bin/env bash
# build-runtime.sh TARGET OUT: librelax_rt.a, the runtime of models with boxed values, for a target without an operating
# system. It needs `memcpy`, `memset` and `strlen` of the firmware, nothing else.
#
# With rustup, `rustup target add TARGET` before. Else from the sources of the core library (Debian: rustc-web and
# rust-web-src, or rustc and rust-src), of which only what is inlined is used.
set -euo pipefail
cd "$(dirname "$0")/../.."
TARGET=$1 OUT=$2
mkdir -p "$OUT"
RUSTC=${RUSTC:-rustc}
FLAGS=(--edition=2021 --crate-name=relax_rt --crate-type=lib --emit=obj --target "$TARGET" -Cpanic=abort -Copt-level=s
  -Ccodegen-units=1 -Coverflow-checks=off -Cdebug-assertions=off -Cforce-unwind-tables=no -Crelocation-model=static)
if ! [ -d "$($RUSTC --print sysroot)/lib/rustlib/$TARGET/lib" ]; then
  # The compiler that belongs to the sources.
  RUSTC=/usr/bin/rustc
  SOURCE=$(ls -d /usr/src/rustc-*/library /usr/lib/rustlib/src/rust/library 2> /dev/null | head -1)
  [ -n "$SOURCE" ] || { echo "no core library for $TARGET: rustup target add $TARGET"; exit 1; }
  export RUSTC_BOOTSTRAP=1
  LIB=$OUT/sysroot/lib/rustlib/$TARGET/lib
  mkdir -p "$LIB"
  COMMON=(--crate-type lib --emit=metadata -Zforce-unstable-if-unmarked -Cpanic=abort --target "$TARGET" --cap-lints allow)
  [ -e "$LIB/libcore.rmeta" ] || $RUSTC --crate-name core --edition 2024 "${COMMON[@]}" -Zalways-encode-mir \
    "$SOURCE/core/src/lib.rs" -o "$LIB/libcore.rmeta"
  # Arithmetic that processors of 64 bits have.
  echo '#![feature(compiler_builtins)] #![compiler_builtins] #![no_std]' |
    $RUSTC --crate-name compiler_builtins --edition 2021 "${COMMON[@]}" --sysroot "$OUT/sysroot" - \
      -o "$LIB/libcompiler_builtins.rmeta"
  FLAGS+=(--sysroot "$OUT/sysroot")
fi
$RUSTC "${FLAGS[@]}" -o "$OUT/relax_rt.o" rt/src/lib.rs
rm -f "$OUT/librelax_rt.a"
ar rcs "$OUT/librelax_rt.a" "$OUT/relax_rt.o"
