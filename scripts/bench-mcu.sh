#!/usr/bin/env bash
# See scripts/bench-mcu.mjs.
set -euo pipefail
exec "$(dirname "$0")/beside-janus.sh" bench-mcu "$@"
