#!/usr/bin/env bash
# See scripts/bench-sfu.mjs.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked --bench floor
exec scripts/in-namespace.sh node scripts/bench-sfu.mjs "$@"
