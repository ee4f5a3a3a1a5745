#!/bin/bash
# PRISM-KV behind `nicol serve`, redis-server and memcached by turns, on one machine and over Unix
# sockets, under the same client: SETs, then GETs, of 512 B values.
# usage: benches/peers/kv.sh NICOL KV_LOAD DIR [SECONDS] [ROUNDS]
# KV_LOAD is target/release/examples/kv_load, of
# `cargo build --release -p nicol-resp --example kv_load`. Prints the machine's load before each
# run, and a JSON object for each: what counts is `per_server_cpu_s`, which has the server's own CPU
# time only.
set -eu
nicol=$1 kv_load=$2 dir=$3 seconds=${4:-5} rounds=${5:-3}
connections=50 depth=1 bytes=512 keys=100000
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

# measure NAME PROTOCOL SOCKET COMMAND...: starts a server, loads it, ends it.
measure() {
  local name=$1 protocol=$2 socket=$3
  shift 3
  rm -f "$socket"
  "$@" >"$dir/$name.log" 2>&1 &
  local server=$!
  for _ in $(seq 100); do
    [ -S "$socket" ] && break
    sleep 0.1
  done
  echo "$name, load $(cut -d' ' -f1-3 /proc/loadavg)"
  "$kv_load" $protocol "unix:$socket" $connections $depth $bytes $keys "$seconds" $server
  kill $server
  wait $server || true
}

as_root=
[ "$(id -u)" = 0 ] && as_root="-u root"
redis-server --version
memcached --version
"$nicol" --version
for round in $(seq "$rounds"); do
  echo "round $round"
  measure nicol resp "$dir/nicol.sock" \
    "$nicol" serve --system prism-kv --listen "unix:$dir/nicol.sock"
  measure redis resp "$dir/redis.sock" \
    redis-server --port 0 --unixsocket "$dir/redis.sock" --save '' --appendonly no
  # shellcheck disable=SC2086
  measure memcached memcached "$dir/memcached.sock" \
    memcached -s "$dir/memcached.sock" -a 777 -t 1 -m 1024 $as_root
done
