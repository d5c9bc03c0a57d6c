#!/usr/bin/env bash
# Calls of every wrong kind, and right ones, with AddressSanitizer and under valgrind: nothing may be read or written
# out of bounds, nothing may leak. UPDATE=1 records the messages anew.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=${RELAX_AOT:-target/release/relax-aot}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$tool" tests/abi/pair.rlx -o "$out/libpair.so"
flags=(-std=c99 -g -O1 -Wall -Wextra -Werror -I "$out" tests/abi/errors.c -L "$out" -lpair "-Wl,-rpath,$out")

gcc "${flags[@]}" -fsanitize=address,undefined -o "$out/asan"
"$out/asan" > "$out/asan.txt" || { cat "$out/asan.txt"; exit 1; }
if [ -n "${UPDATE:-}" ]; then cp "$out/asan.txt" tests/abi/expected.txt; fi
diff tests/abi/expected.txt "$out/asan.txt"

gcc "${flags[@]}" -o "$out/plain"
valgrind --quiet --error-exitcode=1 --leak-check=full "$out/plain" > "$out/valgrind.txt"
diff tests/abi/expected.txt "$out/valgrind.txt"
echo "$(wc -l < tests/abi/expected.txt) calls are answered as they should be, under AddressSanitizer and valgrind"
