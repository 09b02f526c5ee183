#!/usr/bin/env bash
# Runs a bench (scripts/NAME.mjs) beside its floor and Janus, in a network namespace of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
shift
cargo build --release --locked --bench floor
# The peer, from Debian; without it the rows beside it are left out, and nothing can be said to hold.
if [ "$(id -u)" = 0 ] && ! command -v janus >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y -qq --no-install-recommends janus >/dev/null || true
fi
exec scripts/in-namespace.sh node "scripts/$name.mjs" "$@"
