#!/usr/bin/env bash
# See scripts/evidence-situations.mjs.
set -euo pipefail
cd "$(dirname "$0")/.."
exec scripts/in-namespace.sh node scripts/evidence-situations.mjs "$@"
