#!/usr/bin/env bash
# See scripts/evidence-beside.mjs.
set -euo pipefail
cd "$(dirname "$0")/.."
exec scripts/in-namespace.sh node scripts/evidence-beside.mjs "$@"
