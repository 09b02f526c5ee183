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

count() { grep -oE "$1" "$logs/out" | grep -oE '[0-9]+' | awk '{ n += $1 } END { print n + 0 }'; }

# A test runner whose own counts are added.
runner() {
  local name=$1 ok=$2 bad=$3 skip=$4
  shift 4
  printf -- '--- %s\n' "$name"
  "$@" >"$logs/out" 2>&1
  local code=$?
  local good wrong left
  good=$(count "$ok") wrong=$(count "$bad") left=$(count "$skip")
  # A runner that fails without a failed test (it did not compile, it was killed) is a failure.
  [ $code -ne 0 ] && [ "$wrong" -eq 0 ] && wrong=1
  [ $code -eq 0 ] && [ "$good" -eq 0 ] && wrong=1 && echo "no test ran"
  passed=$((passed + good)) failed=$((failed + wrong)) skipped=$((skipped + left))
  grep -E '^# [A-Za-z]+:|skip' "$logs/out"
  [ "$wrong" -gt 0 ] && cat "$logs/out"
  printf '%s: %s passed, %s failed, %s skipped\n' "$name" "$good" "$wrong" "$left"
}

scripts/deps.sh || exit 1
part "web builds" scripts/web.sh || exit 1
part "formatting (Rust)" cargo fmt --all --check
part "types and formatting (web)" npm --prefix web run --silent check
runner "web unit tests" 'Tests .*[0-9]+ passed' 'Tests .*[0-9]+ failed' 'Tests .*[0-9]+ skipped' \
  npm --prefix web test
part "the binary builds" cargo build --release --locked || exit 1
runner "Rust tests" '[0-9]+ passed' '[0-9]+ failed' '[0-9]+ ignored' \
  scripts/in-namespace.sh cargo test --release --locked --workspace --no-fail-fast
part "no warnings (clippy)" \
  cargo clippy --release --locked --workspace --all-targets -- -D warnings
runner "browsers" '^# pass [0-9]+' '^# fail [0-9]+' '^# skipped [0-9]+' \
  scripts/in-namespace.sh node --test --test-reporter=tap --test-concurrency=1 web/e2e/
printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
