#!/usr/bin/env bash
# What is announced is what is sent, and no device is left open: see web/e2e/wishes.test.mjs.
set -euo pipefail
cd "$(dirname "$0")/../web"
MOIM_SEQUENCES="${MOIM_SEQUENCES:-32}" exec ../scripts/in-namespace.sh node --test --test-reporter=spec e2e/wishes.test.mjs
