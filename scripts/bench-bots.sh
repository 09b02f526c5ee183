#!/usr/bin/env bash
# See scripts/bench-bots.mjs.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked --bench str0m_client
exec scripts/in-namespace.sh node scripts/bench-bots.mjs
