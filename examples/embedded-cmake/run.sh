#!/usr/bin/env bash
# A CMake project that compiles a model and links it into an image for a Cortex-M4; ctest runs the image in QEMU. Needs:
# cmake (or Python's package of that name), arm-none-eabi-gcc, qemu-system-arm.
set -euo pipefail
cd "$(dirname "$0")/../.."
TOOL=${RELAX_AOT:-target/release/relax-aot}
[ -n "${RELAX_AOT:-}" ] || cargo build --release --quiet
OUT=target/examples/embedded-cmake
CMAKE=$(command -v cmake || python3 -c 'import cmake, os; print(os.path.join(cmake.CMAKE_BIN_DIR, "cmake"))')
rm -rf "$OUT"
"$CMAKE" -S examples/embedded-cmake -B "$OUT" -DCMAKE_BUILD_TYPE=Release -DRELAX_AOT="$(realpath "$TOOL")" \
  -DCMAKE_TOOLCHAIN_FILE="$PWD/examples/embedded-cmake/cortex-m4.cmake"
"$CMAKE" --build "$OUT"
"$CMAKE" --build "$OUT" --target test
