#!/usr/bin/env bash
# Makes other people's clients ready for web/e2e/clients.test.mjs, in target/clients: aiortc, Pion, werift, and webrtcbin of
# GStreamer. Where one cannot be had, NAME.missing there says why, and its test is skipped. As root, Debian packages are installed.
set -uo pipefail
cd "$(dirname "$0")/.."
here=$PWD/tests/clients
out=$PWD/target/clients
mkdir -p "$out"

packages() {
  local missing=()
  for package in "$@"; do dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package"); done
  [ ${#missing[@]} -eq 0 ] && return 0
  [ "$(id -u)" = 0 ] || { echo "install with: sudo apt-get install -y ${missing[*]}" && return 1; }
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

aiortc() {
  [ -x "$out/aiortc/bin/python" ] || python3 -m venv "$out/aiortc" || return 1
  "$out/aiortc/bin/pip" install -q -r "$here/aiortc/requirements.txt"
}

pion() {
  command -v go >/dev/null || { echo "Go is not installed" && return 1; }
  (cd "$here/pion" && go build -o "$out/pion" .)
}

werift() {
  mkdir -p "$out/werift" && cp "$here"/werift/package*.json "$here/werift/client.mjs" "$out/werift/" || return 1
  (cd "$out/werift" && npm ci --silent --no-audit --no-fund)
}

gstreamer() {
  packages python3 python3-pip python3-gi python3-gst-1.0 gir1.2-gst-plugins-bad-1.0 gstreamer1.0-nice \
    gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-bad || return 1
  python3 -m pip install -q --no-deps --upgrade --target "$out/gstreamer" "$(grep websockets "$here/aiortc/requirements.txt")" || return 1
  # webrtcbin would make a certificate of RSA.
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=client -days 30 \
    -keyout "$out/key.pem" -out "$out/certificate.pem" && cat "$out/key.pem" >>"$out/certificate.pem"
}

for client in aiortc pion werift gstreamer; do
  if "$client" >"$out/$client.log" 2>&1; then
    rm -f "$out/$client.missing"
  else
    tail -n 3 "$out/$client.log" | tr '\n' ' ' >"$out/$client.missing"
    echo "$client cannot be had here: $(cat "$out/$client.missing")"
  fi
done
