#!/bin/bash
# etcd beside a served MINOS: three members each, on one machine and one file system, 1 KB values, 64 clients,
# one after the other. usage: benches/peers/etcd.sh NICOL KV_LOAD ETCD_LOAD DIR [SECONDS] [SYSTEMS...]
set -eu
nicol=$1 kv_load=$2 etcd_load=$3 dir=$4 seconds=${5:-10}
shift 5 || shift $#
systems=${*:-minos-b:synch minos-b:strict minos-b:renf minos-b:event minos-b:scope minos-o:synch}
clients=64 bytes=1024 keys=5000
mkdir -p "$dir"

etcd_members() {
  local urls=a=http://127.0.0.1:23801,b=http://127.0.0.1:23802,c=http://127.0.0.1:23803
  local number=0
  members=
  for name in a b c; do
    number=$((number + 1))
    rm -rf "$dir/etcd-$name"
    etcd --name $name --data-dir "$dir/etcd-$name" --initial-cluster $urls \
      --listen-peer-urls http://127.0.0.1:2380$number \
      --initial-advertise-peer-urls http://127.0.0.1:2380$number \
      --listen-client-urls http://127.0.0.1:2379$number \
      --advertise-client-urls http://127.0.0.1:2379$number >"$dir/etcd-$name.log" 2>&1 &
    members="$members $!"
  done
}

etcd_members
sleep 4
echo "etcd $(etcd --version | head -1)"
"$etcd_load" 127.0.0.1:23791,127.0.0.1:23792,127.0.0.1:23793 $clients $bytes $keys "$seconds"
for member in $members; do kill "$member"; done
wait || true
for system in $systems; do
  log="$dir/nicol-$system"
  rm -rf "$log" "$dir/nicol.sock"
  "$nicol" serve --system "$system" --nodes 3 --replicas 3 --log-device "file:$log" \
    --listen 127.0.0.1:26379 >"$dir/nicol.log" 2>&1 &
  server=$!
  sleep 4
  echo "$system"
  "$kv_load" resp 127.0.0.1:26379 $clients 1 $bytes $keys "$seconds" $server
  kill $server
  wait $server || true
done
