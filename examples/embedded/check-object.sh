#!/usr/bin/env bash
# check-object.sh CROSS OBJECT: the object needs nothing from elsewhere and writes nowhere but where the caller says.
set -euo pipefail
undefined=$("$1nm" -u "$2")
[ -z "$undefined" ] || { echo "$2 has undefined symbols:"; echo "$undefined"; exit 1; }
# Flags column: W is writable. (.bss and .data of size 0 are what an assembler always adds.)
if "$1readelf" -SW "$2" | sed 's/^ *\[ *[0-9]*\] *//' |
  awk '$2 ~ /PROGBITS|NOBITS/ && $7 ~ /W/ && $5 !~ /^0+$/ { print; found = 1 } END { exit !found }'; then
  echo "$2 has writable sections"
  exit 1
fi
