#!/usr/bin/env bash
# Installs what the checks beyond `cargo test` need: cross compilers, QEMU, valgrind, and the Python peers.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
need() { # command, package
  command -v "$1" >/dev/null 2>&1 || missing+=("$2")
}
need gcc gcc
need g++ g++
need clang clang
need ld.lld lld
need valgrind valgrind
need readelf binutils
need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
need s390x-linux-gnu-gcc gcc-s390x-linux-gnu
need riscv64-linux-gnu-gcc gcc-riscv64-linux-gnu
# The C libraries that these compilers link.
library() { # a file, package
  [ -e "$1" ] || missing+=("$2")
}
library /usr/aarch64-linux-gnu/lib/libc.a libc6-dev-arm64-cross
library /usr/s390x-linux-gnu/lib/libc.a libc6-dev-s390x-cross
library /usr/riscv64-linux-gnu/lib/libc.a libc6-dev-riscv64-cross
need qemu-system-aarch64 qemu-system-arm
need qemu-aarch64 qemu-user
need arm-none-eabi-gcc gcc-arm-none-eabi
need riscv64-unknown-elf-gcc gcc-riscv64-unknown-elf
need qemu-system-riscv64 qemu-system-misc
# The core library for bare AArch64, or its sources with the compiler that they belong to.
if ! [ -d "$(rustc --print sysroot)/lib/rustlib/aarch64-unknown-none/lib" ]; then
  need /usr/bin/rustc rustc-web
  ls -d /usr/src/rustc-*/library >/dev/null 2>&1 || missing+=(rust-web-src)
fi
if [ ${#missing[@]} -gt 0 ]; then
  apt-get -qq update
  # One by one: asked for together, the package solver refuses them.
  for package in "${missing[@]}"; do
    echo "installing $package"
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$package" >/dev/null
  done
fi
python3 -m pip install --quiet --disable-pip-version-check -r ci/requirements.txt
