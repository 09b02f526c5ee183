#!/usr/bin/env bash
# See scripts/evidence-canaries.mjs.
set -euo pipefail
cd "$(dirname "$0")/.."
exec scripts/in-namespace.sh node scripts/evidence-canaries.mjs "$@"
