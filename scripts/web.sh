#!/usr/bin/env bash
# Builds the call page and the report where a source is newer than what was built.
set -euo pipefail
cd "$(dirname "$0")/../web"
if [ ! -d node_modules ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
  npm ci --no-audit --no-fund --loglevel=error
fi
newest() { find app sdk report -path '*/node_modules' -prune -o -path '*/dist' -prune -o -type f -newer "$1" -print -quit; }
if [ ! -f app/dist/index.html ] || [ ! -f report/dist/index.html ] \
  || [ -n "$(newest app/dist/index.html)" ] || [ -n "$(newest report/dist/index.html)" ]; then
  npm run --silent build
fi
