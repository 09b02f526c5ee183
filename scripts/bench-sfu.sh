#!/usr/bin/env bash
# See scripts/bench-sfu.mjs.
set -euo pipefail
exec "$(dirname "$0")/beside-janus.sh" bench-sfu "$@"
