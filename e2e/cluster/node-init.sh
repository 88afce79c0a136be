#!/bin/bash
# Runs under tini, the first process of fresh pid, mount, net, uts and ipc namespaces, and builds the node's own world:
# a small root of its own in which the machine's /usr and /etc are read-only. All that is mounted or configured here
# dies with the namespaces. $1: the mark by which the node is found. Environment: see node.py.
set -euo pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

root=$RUN/root
mkdir -p "$root"
mount -t tmpfs -o mode=755,size=16m tmpfs "$root"
cd "$root"
mkdir -m 755 proc sys dev run var opt etc usr root old
mkdir -m 1777 tmp
for d in bin sbin lib lib32 lib64 libx32; do
  if [ -L "/$d" ]; then cp -P "/$d" "$d"; elif [ -d "/$d" ]; then mkdir "$d"; mount --rbind "/$d" "$d"; fi
done
for d in usr etc; do mount --rbind "/$d" "$d"; mount -o remount,bind,ro "$d"; done
mount --rbind /dev dev
mount -t proc proc proc
mount -t sysfs sysfs sys # this network namespace's interfaces
mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mkdir -p run/lock run/netns "run/${RUN##*/}"
mount --bind "$RUN" "run/${RUN##*/}"
mount --bind "$STATE/var" var
mkdir -p var/lib/containerd
mount --bind "$STATE/containerd" var/lib/containerd
mkdir -p opt/radix-islands/bin
mount --bind "$BIN" opt/radix-islands/bin
IFS=$'\n'
for pair in $BINDS; do # lines NAME=DIRECTORY of this machine: read-only under /opt/radix-islands
  mkdir -p "opt/radix-islands/${pair%%=*}"
  mount --bind "${pair#*=}" "opt/radix-islands/${pair%%=*}"
  mount -o remount,bind,ro "opt/radix-islands/${pair%%=*}"
done
pivot_root . old
cd /
umount -l /old
rmdir /old
mount --make-rshared / # kubelet and containers pass mounts on

hostname "$NODE_NAME"
ip link set lo up
# The node's address on one end of a pair; a default route, so that packets to Service addresses are routed at all.
ip link add eth0 type veth peer name eth0-peer
ip link set eth0-peer up
ip address add "$NODE_IP/24" dev eth0
ip link set eth0 up
ip route add default dev eth0
for s in ipv4/ip_forward bridge/bridge-nf-call-iptables; do echo 1 > "/proc/sys/net/$s"; done
touch "$RUN/ready"
exec sleep infinity
