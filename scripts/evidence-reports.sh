#!/usr/bin/env bash
# See scripts/evidence-reports.mjs.
set -euo pipefail
cd "$(dirname "$0")/.."
exec scripts/in-namespace.sh node scripts/evidence-reports.mjs "$@"
