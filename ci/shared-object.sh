#!/usr/bin/env bash
# A produced library needs nothing but the C library, exports only its own names, and has no writable data.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"${RELAX_AOT:-target/release/relax-aot}" examples/models/mlp.rlx --params examples/models/mlp.safetensors -o "$out/libmlp.so"

undefined=$(nm -D --undefined-only "$out/libmlp.so" | awk '{print $NF}' | sed 's/@.*//' | sort)
allowed='^(memcpy|memmove|memset|memcmp|strlen|malloc|free|aligned_alloc|madvise|calloc|realloc)$'
if foreign=$(grep -Ev "$allowed" <<<"$undefined" | grep .); then
  echo "undefined symbols beyond the C library: $foreign"; exit 1
fi
needed=$(readelf -d "$out/libmlp.so" | awk '/NEEDED/ {print $NF}')
[ "$needed" = "[libc.so.6]" ] || { echo "it needs $needed"; exit 1; }
if other=$(nm -D --defined-only "$out/libmlp.so" | awk '{print $NF}' | grep -v '^mlp_'); then
  echo "exports beyond mlp_*: $other"; exit 1
fi
if readelf -SW "$out/libmlp.so" | grep -E ' \.(data|bss) '; then
  echo "it has writable data"; exit 1
fi
if readelf -lW "$out/libmlp.so" | grep -E 'GNU_STACK.*E|LOAD.*RWE'; then
  echo "writable memory is executable"; exit 1
fi
echo "the shared object stands alone"
