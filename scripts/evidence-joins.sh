#!/usr/bin/env bash
# 50 joins a second raise no packet of sound's residence in the server over 5 ms.
set -euo pipefail
cd "$(dirname "$0")/.."
exec scripts/in-namespace.sh node scripts/evidence-joins.mjs
