#!/bin/sh
# Run as root in a clean Debian system that has /keyhush.deb and /try.sh: the package installs, its program serves as its user, and removing
# it leaves data and nothing else.
set -eu

fails() {
    echo "$*" >&2
    exit 1
}

dpkg --install /keyhush.deb
dpkg --verify keyhush
for folder in /var/lib/keyhush /var/lib/keyhush/data /var/lib/keyhush/secrets; do
    [ "$(stat -c '%U %G %a' "$folder")" = 'keyhush keyhush 700' ] || fails "$folder belongs to others, or others may read it"
done
[ "$(stat -c '%U %G %a' /etc/keyhush)" = 'root keyhush 750' ] || fails "/etc/keyhush belongs to others, or others may read it"
man --where keyhush keyhush-serve >/dev/null
man keyhush-serve | grep -q -- --secrets
bash -c '. /usr/share/bash-completion/completions/keyhush && complete -p keyhush'
# An older one wants to make control groups before it reads a file.
if [ "$(systemctl --version | sed -n '1s/systemd \([0-9]*\).*/\1/p')" -ge 252 ]; then
    systemd-analyze verify /usr/lib/systemd/system/keyhush.service /usr/lib/systemd/system/keyhush-backup.timer
fi
[ "$(systemctl is-enabled keyhush.service || true)" = disabled ] || fails "the service is enabled before it has a task"

install -d -o keyhush -g keyhush /tmp/try
setpriv --reuid=keyhush --regid=keyhush --clear-groups env HOME=/tmp/try sh /try.sh /tmp/try

systemctl enable keyhush.service keyhush-backup.timer
echo kept >/var/lib/keyhush/data/ledger
echo 'KEYHUSH_SERVE="--help"' >/etc/keyhush/serve.conf
dpkg --install /keyhush.deb
grep -q -x 'KEYHUSH_SERVE="--help"' /etc/keyhush/serve.conf || fails "an upgrade replaces what the administrator wrote"
[ "$(systemctl is-enabled keyhush.service)" = enabled ] || fails "an upgrade disables the service"
dpkg --remove keyhush
[ ! -e /usr/bin/keyhush ] || fails "the program is left"
dpkg --purge keyhush
[ "$(cat /var/lib/keyhush/data/ledger)" = kept ] || fails "purging the package deletes data"
rm -r /tmp/try
left=$(find / -xdev \( -path /proc -o -path /sys -o -path /var/cache/man \) -prune -o -name '*keyhush*' -print | grep -v -x -e /keyhush.deb -e /var/lib/keyhush || true)
[ -z "$left" ] || fails "purging the package leaves $left"

dpkg --install /keyhush.deb
rm /var/lib/keyhush/data/ledger
dpkg --purge keyhush
[ ! -e /var/lib/keyhush ] || fails "an empty folder is left"
echo "installed, ran and removed on $(. /etc/os-release && echo "$PRETTY_NAME"), $(ldd --version | head -n 1)"
