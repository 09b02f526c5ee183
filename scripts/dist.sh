#!/usr/bin/env bash
# The binary for others: the same build without its line tables. Names of functions stay, so that a panic's
# backtrace says where; for line numbers keep target/release/moim of the same build.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v strip >/dev/null || {
  echo "strip is missing: install it with apt-get install binutils" >&2
  exit 1
}
mkdir -p dist
strip --strip-debug -o dist/moim target/release/moim
dist/moim --version >/dev/null
size() { stat -c %s "$1" | awk '{ printf "%.0f MB", $1 / 1e6 }'; }
echo "dist/moim: $(size dist/moim) (with line tables $(size target/release/moim))"
