#!/usr/bin/env bash
# Builds the call page, the console and the report where a source is newer than what was built.
set -euo pipefail
cd "$(dirname "$0")/../web"
if [ ! -d node_modules ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
  npm ci --no-audit --no-fund --loglevel=error
fi
newest() { find app console sdk report -path '*/node_modules' -prune -o -path '*/dist' -prune -o -type f -newer "$1" -print -quit; }
stale=
for page in app/dist/index.html console/dist/console.html report/dist/index.html; do
  if [ ! -f "$page" ] || [ -n "$(newest "$page")" ]; then stale=1; fi
done
[ -z "$stale" ] || npm run --silent build
