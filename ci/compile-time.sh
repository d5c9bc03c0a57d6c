#!/usr/bin/env bash
# Modules of 10,000 bindings of several kinds compile in less than 20 s each, their analysis takes less than 2 s.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
RELAX_AOT_SCALE=$out cargo test --quiet --test scale >/dev/null
for model in "$out"/*.rlx; do
  name=$(basename "$model" .rlx)
  begin=$(date +%s%N)
  timeout 20 "${RELAX_AOT:-target/release/relax-aot}" "$model" -o "$out/lib$name.so" --timings 2> "$out/$name.txt" ||
    { echo "$name: not compiled within 20 s"; cat "$out/$name.txt"; exit 1; }
  analysis=$(awk '/analyse/ {print int($2)}' "$out/$name.txt")
  echo "$name: $((($(date +%s%N) - begin) / 1000000)) ms, analysis $analysis ms"
  [ "$analysis" -lt 2000 ] || { echo "$name: the analysis takes too long"; exit 1; }
done
