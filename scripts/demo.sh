#!/usr/bin/env bash
# The main job in one command: a server, a room of bots and browsers in it, a report.
set -euo pipefail
cd "$(dirname "$0")/.."
exec scripts/in-namespace.sh target/release/moim load scenarios/first-room.yaml
