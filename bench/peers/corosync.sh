#!/bin/sh
# Three corosync nodes and their clients on one loopback of their own, for one measurement; run by `peers` as
#
#   unshare --net --mount --pid --fork --kill-child --mount-proc sh corosync.sh SCRATCH WINDOW RATE SECONDS
#
# so that nothing of the host is touched and everything ends with the first process. Each node has a mount namespace:
# libqb's sockets are files there, since abstract names would be shared. Each has a host name of its own, which is how
# corosync tells who it is. SCRATCH/cpg is the client; results are SCRATCH/out-1 .. out-3, one JSON line each.
set -eu
scratch=$1 window=$2 rate=$3 seconds=$4
mount --make-rprivate /

config() {
    echo "totem {"
    printf '\tversion: 2\n\tcluster_name: bench\n\ttransport: udpu\n\tcrypto_cipher: none\n\tcrypto_hash: none\n}\n'
    printf 'logging {\n\tto_stderr: yes\n\tto_logfile: no\n\tto_syslog: no\n}\nnodelist {\n'
    for k in 1 2 3; do
        printf '\tnode {\n\t\tnodeid: %s\n\t\tname: node%s\n\t\tring0_addr: 127.0.0.1%s\n\t}\n' "$k" "$k" "$k"
    done
    echo "}"
}

node() {
    mount -t tmpfs none /run
    mount -t tmpfs none /var/lib/corosync
    mkdir /run/up /run/work /run/scratch
    mount --bind "$scratch" /run/scratch
    mount -t tmpfs none /tmp
    scratch=/run/scratch
    mount -t overlay -o lowerdir=/etc,upperdir=/run/up,workdir=/run/work none /etc
    mkdir -p /etc/libqb
    : > /etc/libqb/force-filesystem-sockets
    hostname "node$1"
    config > /etc/corosync/corosync.conf
    corosync -f > "$scratch/log-$1" 2>&1 &
    daemon=$!
    # The client of a daemon in the real-time class is given that class too, where it may have it.
    class=; chrt -r 1 true 2> /dev/null && class="chrt -r 1"
    tries=0
    until $class "$scratch/cpg" bench 3 "$window" "$rate" "$seconds" $daemon > "$scratch/out-$1" 2> "$scratch/error-$1"; do
        tries=$((tries + 1))
        [ $tries -lt 40 ] && kill -0 $daemon || { kill -9 $daemon 2> /dev/null; exit 1; }
        sleep 0.2
    done
    kill -9 $daemon
    wait $daemon 2> /dev/null || true
}

if [ "${5:-}" ]; then node "$5"; exit; fi
mount -t tmpfs none /dev/shm
ip link set lo up
for i in 1 2 3; do ip addr add 127.0.0.1$i/32 dev lo; done
for i in 1 2 3; do unshare --mount --uts sh "$0" "$@" $i & done
wait
