#!/usr/bin/env bash
# See scripts/evidence-compare.mjs.
set -euo pipefail
cd "$(dirname "$0")/.."
exec scripts/in-namespace.sh node scripts/evidence-compare.mjs "$@"
