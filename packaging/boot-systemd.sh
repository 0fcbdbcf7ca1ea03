#!/bin/sh
# Boots systemd as process 1 of a clean Debian in the directory $1, in namespaces of its own, with try-systemd.sh as its only unit.
# systemd ends with the status of that unit.
set -eu

mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs tmpfs run
# A few devices, and no terminals of this machine.
mount -t tmpfs tmpfs dev
for device in null zero full random urandom; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/shm dev/pts
mount -t devpts -o newinstance devpts dev/pts
ln -s pts/ptmx dev/ptmx
# systemd works with either version of control groups; the machine decides which one is free.
if ! mount -t cgroup2 cgroup2 sys/fs/cgroup 2>/dev/null || ! mkdir sys/fs/cgroup/causeway-try 2>/dev/null; then
    mount -t tmpfs tmpfs sys/fs/cgroup
    mkdir sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
else
    rmdir sys/fs/cgroup/causeway-try
fi
cat >etc/systemd/system/try.service <<'UNIT'
[Unit]
Requires=basic.target
After=basic.target dbus.socket
SuccessAction=exit
FailureAction=exit

[Service]
Type=oneshot
ExecStart=/bin/sh /srv/try-systemd.sh
TimeoutStartSec=120
StandardOutput=file:/srv/try.log
StandardError=inherit
UNIT
touch etc/machine-id
pivot_root . mnt
umount -l /mnt
exec env -i container=lxc /lib/systemd/systemd --log-target=journal --unit=try.service
