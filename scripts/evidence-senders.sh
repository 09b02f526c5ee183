#!/usr/bin/env bash
# See scripts/evidence-senders.mjs. In a PID namespace of its own: whatever it started ends with it, however it ends.
set -euo pipefail
cd "$(dirname "$0")/.."
exec scripts/in-namespace.sh unshare --pid --fork --mount-proc --kill-child node scripts/evidence-senders.mjs "$@"
