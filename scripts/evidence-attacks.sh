#!/usr/bin/env bash
# Hostile participants and addresses, one attack after the other and then all at once for a minute. The server has the first
# CPU for itself, the attackers have the others: see tests/abuse/amplification.rs and tests/abuse/together.rs. Then all at
# once over TLS, and all attacks of `make test` over TLS and two media threads.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo test --release --locked --workspace --test integration --no-run
last=$(($(nproc) - 1))
# The server beside nothing else.
alone() {
  MOIM_SERVER_CPU=0 scripts/in-namespace.sh taskset -c "1-$last" \
    cargo test --release --locked --workspace --test integration -- --test-threads 1 --nocapture "$@"
}
for shards in 1 2; do
  echo "--- over $shards media threads"
  MOIM_SHARDS=$shards alone abuse::amplification abuse::together
done
echo "--- over TLS"
MOIM_TLS=1 alone abuse::together
MOIM_TLS=1 MOIM_SHARDS=2 scripts/in-namespace.sh cargo test --release --locked --workspace --test integration -- abuse
