#!/usr/bin/env bash
# What moim is built and tested with beyond cargo and npm. As root missing Debian packages are
# installed; otherwise the one line that does it is printed, and this fails.
set -euo pipefail
missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need cc gcc
need cmake cmake
need make make
need chromium chromium
need firefox-esr firefox-esr
need ip iproute2
need unshare util-linux
need curl curl
need openssl openssl
need script bsdutils
need strip binutils
need nft nftables
need conntrack conntrack
need prometheus prometheus
need nginx nginx-light
need haproxy haproxy
need caddy caddy
need janus janus
for tool in cargo node npm; do
  command -v "$tool" >/dev/null 2>&1 || {
    echo "$tool is missing: install Rust 1.95 or newer (rustup) and Node.js 20.19 or newer" >&2
    exit 1
  }
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" = 0 ]; then
  echo "installing: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
  echo "missing; install with: sudo apt-get install -y ${missing[*]}" >&2
  exit 1
fi
