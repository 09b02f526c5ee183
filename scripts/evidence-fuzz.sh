#!/usr/bin/env bash
# Fuzzes whatever reads bytes of strangers, 20 minutes over all targets (MOIM_FUZZ_SECONDS: another time in all). Goes on
# where it stopped. With --keep what was found is minimised into fuzz/corpus/ instead.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cargo +nightly --version >/dev/null 2>&1; then
  echo "fuzzing needs a nightly toolchain: rustup toolchain install nightly --profile minimal" >&2
  exit 2
fi
host=$(rustc -vV | sed -n 's/^host: //p')
coverage=(-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares --cfg=fuzzing)
# With a target named, build scripts and macros are built without coverage.
RUSTFLAGS="${coverage[*]}" cargo +nightly build --release --locked --manifest-path fuzz/Cargo.toml \
  --target "$host" --target-dir target/fuzz
MOIM_BIN="target/fuzz/$host/release/fuzz" exec node scripts/evidence-fuzz.mjs "$@"
