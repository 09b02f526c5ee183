#!/usr/bin/env bash
# Everything that must hold. The last line is `N passed, N failed, N skipped`.
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0 failed=0 skipped=0
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# A part that passes or fails as a whole.
part() {
  local name=$1
  shift
  printf -- '--- %s\n' "$name"
  if "$@" >"$logs/out" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    cat "$logs/out"
    printf 'FAILED: %s\n' "$name"
    return 1
  fi
}

# Sum of the numbers before a word (`83 passed`), in lines of a form.
before() { grep -E "$1" "$logs/out" | grep -oE "[0-9]+ $2" | awk '{ n += $1 } END { print n + 0 }'; }
# The number after a word (`# pass 4`).
after() { grep -E "^# $1 [0-9]+$" "$logs/out" | awk '{ n += $3 } END { print n + 0 }'; }

# A test runner whose own counts are added: `runner NAME KIND COMMAND…`.
runner() {
  local name=$1 kind=$2
  shift 2
  printf -- '--- %s\n' "$name"
  NO_COLOR=1 "$@" 2>&1 | sed 's/\x1b\[[0-9;]*m//g' >"$logs/out"
  local code=${PIPESTATUS[0]}
  local good wrong left
  case $kind in
    vitest) good=$(before '^ *Tests ' passed) wrong=$(before '^ *Tests ' failed) left=$(before '^ *Tests ' skipped) ;;
    cargo) good=$(before '^test result' passed) wrong=$(before '^test result' failed) left=$(before '^test result' ignored) ;;
    tap) good=$(after pass) wrong=$(after fail) left=$(after skipped) ;;
  esac
  # A runner that fails without a failed test (it did not compile, it was killed) is a failure.
  [ "$code" -ne 0 ] && [ "$wrong" -eq 0 ] && wrong=1
  [ "$code" -eq 0 ] && [ "$good" -eq 0 ] && wrong=1 && echo "no test ran"
  passed=$((passed + good)) failed=$((failed + wrong)) skipped=$((skipped + left))
  grep -E '^# \\#|# SKIP|ignored,' "$logs/out"
  [ "$wrong" -gt 0 ] && cat "$logs/out"
  printf '%s: %s passed, %s failed, %s skipped\n' "$name" "$good" "$wrong" "$left"
}

scripts/deps.sh || exit 1
part "web builds" scripts/web.sh || exit 1
part "other people's clients are made ready" scripts/clients.sh
part "formatting (Rust)" cargo fmt --all --check
part "types and formatting (web)" npm --prefix web run --silent check
runner "web unit tests" vitest npm --prefix web test
# Together, since crates that tests need make others build anew; outside the namespace, which has no network.
part "the binary and the tests build" cargo test --release --locked --workspace --no-run || exit 1
runner "Rust tests" cargo \
  scripts/in-namespace.sh cargo test --release --locked --workspace --no-fail-fast
part "no warnings (clippy)" \
  cargo clippy --release --locked --workspace --all-targets -- -D warnings
# Lists of known faults come from outside: where one cannot be had, that is told, and counts as nothing.
for list in npm crates; do
  printf -- '--- known faults: %s\n' "$list"
  scripts/advisories.sh "$list"
  case $? in
    0) passed=$((passed + 1)) ;;
    77) ;;
    *) failed=$((failed + 1)) && printf 'FAILED: known faults: %s\n' "$list" ;;
  esac
done
runner "the same over two shards" cargo \
  env MOIM_SHARDS=2 scripts/in-namespace.sh \
  cargo test --release --locked --workspace --test integration -- bad_input refusals witness
runner "calls over two shards" tap \
  env MOIM_SHARDS=2 scripts/in-namespace.sh \
  node --test --test-reporter=tap --test-concurrency=1 web/e2e/call.test.mjs web/e2e/mcu.test.mjs
runner "browsers" tap \
  scripts/in-namespace.sh node --test --test-reporter=tap --test-concurrency=1 web/e2e/*.test.mjs
printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
