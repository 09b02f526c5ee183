#!/usr/bin/env bash
# See scripts/evidence-networks.mjs.
set -euo pipefail
cd "$(dirname "$0")/.."
exec node scripts/evidence-networks.mjs "$@"
