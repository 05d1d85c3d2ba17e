#!/bin/sh
# Collects what deploy/Containerfile copies: the program, the libraries of this machine that it needs, and root certificates.
#   sh deploy/context.sh PROGRAM FOLDER
set -eu
[ $# = 2 ] || { echo "usage: sh deploy/context.sh PROGRAM FOLDER" >&2; exit 2; }
root=$2/root
[ ! -e "$root" ] || { echo "$root is there already; give a new folder" >&2; exit 2; }
install -D -m 755 "$1" "$root/usr/bin/keyhush"
# A program that is linked statically needs none.
libraries=$(ldd "$1" | grep -o '/[^ ]*' || true)
for library in $libraries; do
    install -D -m 755 "$library" "$root$library"
done
install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
# Where the settings of tasks are mounted.
install -d -m 755 "$root/etc/keyhush"
# Volumes belong to the user that the server runs as; the Containerfile says who that is.
install -d -m 700 "$2/volumes/data" "$2/volumes/secrets"
