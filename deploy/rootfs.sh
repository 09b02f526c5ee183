#!/usr/bin/env bash
# Puts all that a container of moim needs into a directory: the binary and the libraries it is linked with.
#   deploy/rootfs.sh BINARY DIRECTORY
set -euo pipefail
[ $# -eq 2 ] || {
  echo "usage: deploy/rootfs.sh BINARY DIRECTORY" >&2
  exit 2
}
binary=$1 root=$2
mkdir -p "$root/etc/moim" "$root/proc" "$root/tmp"
install -m 0755 "$binary" "$root/moim"
ldd "$binary" | grep -oE '/[^ ]+' | while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done
chmod -R go-w,a+rX "$root"
du -sh "$root" | sed 's/\t.*/ in all/'
