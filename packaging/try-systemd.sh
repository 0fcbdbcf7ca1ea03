#!/bin/sh
# The only unit of a clean Debian that systemd has booted: installs the package as an administrator would, uses the service, and
# installs the package again, as an upgrade does.
set -eux

main() { systemctl show --property=MainPID --value causeway; }
page() { curl --fail --silent --show-error --retry 20 --retry-all-errors --retry-delay 1 http://127.0.0.1/; }

trap 'journalctl --no-pager --unit=causeway' EXIT
dpkg --install /srv/causeway.deb
systemctl is-active causeway
page | grep 'Causeway is installed'
printf ':80\nrespond "changed"\n' >/etc/causeway/Caddyfile
systemctl reload causeway
test "$(page)" = changed

# An upgrade gives the sockets to a new process, and refuses no client meanwhile.
former=$(main)
(
    set +x
    while test ! -e /srv/upgraded; do
        curl --fail --silent --show-error http://127.0.0.1/ >/dev/null || touch /srv/refused
    done
) &
dpkg --install /srv/causeway.deb
touch /srv/upgraded
wait $!
test ! -e /srv/refused
test "$(main)" != "$former"
# systemd waits only for the end of its own child.
test "$(sed -n 's/^PPid:\t//p' "/proc/$(main)/status")" = 1
systemctl is-active causeway
systemctl reload causeway

# systemd restarts a server that ended unexpectedly.
former=$(main)
kill -KILL "$former"
test "$(page)" = changed
test "$(main)" != "$former"

# A removal and an installation start the enabled unit again, whichever it is.
systemctl disable --now causeway
systemctl enable --now causeway-api
dpkg --remove causeway
dpkg --install /srv/causeway.deb
systemctl is-active causeway-api
systemctl disable --now causeway-api
systemctl enable --now causeway
systemctl is-active causeway

systemctl stop causeway
test "$(curl --silent http://127.0.0.1/ || echo refused)" = refused
dpkg --purge causeway
test "$(systemctl cat causeway || echo unknown)" = unknown
trap - EXIT
