#!/usr/bin/env bash
# The pictures of the README, made again from a real call, a real run and the newest run of each study
# (under runs/ or the directory given; a study without one is run with --quick first): docs/img/*.png.
# The terminal view is drawn from a tmux.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p docs/img target
command -v tmux >/dev/null || {
  echo "tmux is missing: install it with apt-get install tmux" >&2
  exit 1
}
scripts/in-namespace.sh node web/e2e/terminal-shot.mjs docs/img
scripts/in-namespace.sh node web/e2e/shots.mjs docs/img
scripts/in-namespace.sh node web/e2e/mix-shot.mjs docs/img
scripts/in-namespace.sh node web/e2e/study-shots.mjs "${1:-runs}" docs/img
for picture in docs/img/*.png; do
  size=$(stat -c %s "$picture")
  printf '%s: %s bytes\n' "$picture" "$size"
  [ "$size" -le 204800 ] || { echo "$picture is over 200 KB" >&2; exit 1; }
done
