#!/usr/bin/env bash
# Writes docs/studies.md from the newest full run of each study under runs/ (or the directory
# given): the figures live in the records alone. A second argument is a remark on the runs, such as the commit.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-runs}
remark=${2:-}
out=docs/studies.md
{
  cat <<'TEXT'
# The four studies, run here

moim contains what each of the four studies measured that it grew from, but for TURN, media servers on machines of their own, and load from several machines. It runs each test by one command: `moim study sfu`, `sockets`,
`mesh-vs-sfu` or `audio-room` (`--quick` for a look in one or two minutes). Every table of a study stands below with our figures; where the
study has a figure of its own it follows in italics. The studies' figures come from their own machines: they give the shape, not a ranking.
A dash is a figure that nobody measured, with the reason below its table. This page is written by `scripts/studies-doc.sh` from the records.
TEXT
  if [ -n "$remark" ]; then printf '\n%s\n' "$remark"; fi
  for name in sfu sockets mesh-vs-sfu audio-room; do
    newest=
    for dir in "$runs"/*-study-"$name"*/; do
      [ -f "$dir/study.md" ] && ! grep -qE -- "--(quick|like-the-study)" "$dir/scenario.yaml" && newest=$dir
    done
    [ -n "$newest" ] || { echo "no full run of study $name under $runs" >&2; exit 1; }
    printf '\n'
    head -n 1 "$newest/study.md"
    printf '![The charts of this run](img/study-%s.png)\n\n' "$name"
    tail -n +2 "$newest/study.md"
  done
} >"$out.part"
mv "$out.part" "$out"
echo "$out"
