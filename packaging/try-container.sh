#!/bin/sh
# Runs in a directory with a Containerfile and the result of its first stage, in a network of its own: builds the image, starts a
# container as its user, and asks it for a page and for its health.
set -eux

ip link set lo up
mount -t proc proc /proc
buildah="$BUILDAH --storage-driver vfs --root $PWD/storage --runroot $PWD/run"
mkdir empty
$buildah build --isolation chroot --format docker --build-context "build=$PWD/first-stage" --tag causeway \
    --file Containerfile empty
container=$($buildah from causeway)
setting() { $buildah inspect --type image --format "{{.Docker.Config.$1}}" causeway; }
test "$(setting User)" = 65532:65532
test "$(setting Entrypoint)" = '[/usr/bin/causeway]'
test "$(setting Cmd)" = '[run --config /etc/causeway/Caddyfile]'
test "$(setting Healthcheck.Test)" = '[CMD /usr/bin/causeway status]'

inside="$buildah run --isolation chroot $container -- /usr/bin/causeway"
$inside run --config /etc/causeway/Caddyfile >server.log 2>&1 &
trap 'cat server.log' EXIT
# Two runs of buildah that begin at once both create the container's mount points, and the second to create one fails. So this asks the
# server itself until it answers, and only then runs the health check.
tries=0
until curl --fail --silent --show-error http://127.0.0.1:8080/ >page; do
    tries=$((tries + 1))
    test $tries -lt 100
    kill -0 $!
    sleep 0.1
done
grep 'Causeway runs in this container' page
$inside status
server=$(pgrep --full '^/usr/bin/causeway run')
test "$(ps -o uid= "$server" | tr -d ' ')" = 65532
# The server's own directory belongs to it, so that it can keep certificates there.
test -n "$(ls -A "/proc/$server/root/var/lib/causeway")"
kill "$server"
wait
trap - EXIT
