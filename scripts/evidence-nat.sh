#!/usr/bin/env bash
# See scripts/evidence-nat.mjs.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/clients.sh
exec scripts/in-namespace.sh node scripts/evidence-nat.mjs "$@"
