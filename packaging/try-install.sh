#!/bin/sh
# Runs inside a clean Debian, in a network of its own: installs the package as an administrator would, runs the command of
# the unit with the unit's user and capabilities, and asks it for a page. systemd itself does not run there.
set -eux

ip link set lo up
dpkg --install /srv/causeway.deb
getent passwd causeway | grep ':/var/lib/causeway:/usr/sbin/nologin$'
test -L /etc/systemd/system/multi-user.target.wants/causeway.service
test ! -e /etc/systemd/system/multi-user.target.wants/causeway-api.service
causeway version
causeway validate --config /etc/causeway/Caddyfile
causeway fmt /etc/causeway/Caddyfile >/dev/null

# What StateDirectory= does.
install -d -m 0700 -o causeway -g causeway /var/lib/causeway
command=$(sed -n 's/^ExecStart=//p' /lib/systemd/system/causeway.service)
reload=$(sed -n 's/^ExecReload=//p' /lib/systemd/system/causeway.service)
as_service="setpriv --reuid=causeway --regid=causeway --clear-groups --no-new-privs
    --inh-caps=-all,+net_bind_service --ambient-caps=-all,+net_bind_service --bounding-set=-all,+net_bind_service"
export HOME=/var/lib/causeway
$as_service $command >/tmp/server.log 2>&1 &
server=$!
trap 'cat /tmp/server.log; kill $server' EXIT
tries=0
until causeway status; do
    kill -0 $server
    tries=$((tries + 1))
    test $tries -lt 100
    sleep 0.1
done
curl --fail --silent --show-error http://127.0.0.1/ | grep 'Causeway is installed'

# A change of the configuration, and the reload of the unit.
printf ':80\nrespond "changed"\n' >/etc/causeway/Caddyfile
$as_service $reload
test "$(curl --fail --silent --show-error http://127.0.0.1/)" = changed
kill $server
wait $server
trap - EXIT

# An upgrade keeps the changed configuration, and a removal keeps it too; a purge leaves nothing.
dpkg --install /srv/causeway.deb
grep changed /etc/causeway/Caddyfile
dpkg --remove causeway
grep changed /etc/causeway/Caddyfile
test -d /var/lib/causeway
dpkg --purge causeway
test ! -e /etc/causeway
test ! -e /var/lib/causeway
test ! -e /etc/systemd/system/multi-user.target.wants/causeway.service
! getent passwd causeway
