#!/bin/bash
# Runs the generated sbatch file on a real Slurm from Debian's packages, requeue included. Needs root, and Debian.
#
# Two slurmd run on this machine, each in its own network and process namespace: to Ray and Slurm they are two
# machines. `ray symmetric-run` refuses a node on which Ray runs, and ends with `ray stop`: in a namespace of its own
# it neither sees nor touches any other Ray of this machine.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
export PATH="$root/.venv/bin:/usr/sbin:/sbin:$PATH"
export PYTHONPATH="$root"

if [ "$(id -u)" != 0 ]; then
  echo "skipped: starting Slurm's daemons needs root"
  exit 0
fi

case "$root" in /tmp/* | /dev/shm/*)
  echo "each node has a $(echo "$root" | cut -d/ -f2) folder of its own and would not see $root: clone to another place"
  exit 2 ;;
esac

if ! command -v slurmctld > /dev/null || ! command -v munged > /dev/null; then
  echo "==> installing Slurm from Debian's packages"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    slurmctld slurmd slurm-client munge iproute2 > /dev/null
fi

work=$(mktemp -d /var/tmp/robustsweep-slurm.XXXXXX)
started=()
say() { echo "==> $*"; }

unlink() {
  for node in n1 n2; do ip netns delete "robustsweep-$node" 2> /dev/null || true; done
  for link in rsveth1 rsveth2 robustsweep0; do ip link delete "$link" 2> /dev/null || true; done
}

cleanup() {
  for id in "${started[@]}"; do kill "$id" 2> /dev/null || true; done
  sleep 2
  for id in "${started[@]}"; do kill -9 "$id" 2> /dev/null || true; done
  unlink
  [ "${keep:-}" ] || rm -rf "$work"
}
trap cleanup EXIT

say "network: the controller and two nodes"
unlink
ip link add robustsweep0 type bridge
ip addr add 10.213.7.1/24 dev robustsweep0
ip link set robustsweep0 up
for number in 1 2; do
  node="robustsweep-n$number"
  ip netns add "$node"
  ip link add "rsveth$number" type veth peer name eth0 netns "$node"
  ip link set "rsveth$number" master robustsweep0 up
  ip -n "$node" addr add "10.213.7.1$number/24" dev eth0
  ip -n "$node" link set eth0 up
  ip -n "$node" link set lo up
done

say "munge and Slurm"
mkdir -p "$work"/{state,n1/spool,n2/spool,munge,job}
chmod 755 "$work"
dd if=/dev/urandom of="$work/munge/key" bs=1024 count=1 status=none
chmod 400 "$work/munge/key"
socket="$work/munge/socket"
munged --force --foreground --key-file="$work/munge/key" --socket="$socket" --pid-file="$work/munge/pid" \
  --log-file="$work/munge/log" --seed-file="$work/munge/seed" > "$work/munge/out" 2>&1 &
started+=($!)
disown  # killed at the end, which is nothing to report

cat > "$work/slurm.conf" <<CONF
ClusterName=robustsweep
SlurmctldHost=controller(10.213.7.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A credential lives five seconds: a requeued job starts after 26 s instead of 166 s.
AuthInfo=socket=$socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/%n/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/%n/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/%n/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/affinity
SchedulerType=sched/builtin
SelectType=select/cons_tres
ReturnToService=2
MpiDefault=none
KillWait=5
NodeName=n1 NodeAddr=10.213.7.11 CPUs=2 State=UNKNOWN
NodeName=n2 NodeAddr=10.213.7.12 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF="$work/slurm.conf"
printf '127.0.0.1 localhost\n10.213.7.1 controller\n10.213.7.11 n1\n10.213.7.12 n2\n' > "$work/hosts"

hosts='mount --bind "$0/hosts" /etc/hosts'
unshare --mount --uts bash -c "hostname controller; $hosts"' && exec "$@"' "$work" slurmctld -D > "$work/out" 2>&1 &
started+=($!)
disown
for node in n1 n2; do
  # bash stays as the first process of the namespace: it collects the dead, for which slurmd would wait in vain.
  # /tmp and shared memory are the node's own too: Ray keeps its sockets and its objects there.
  nsenter --net="/run/netns/robustsweep-$node" unshare --mount --uts --pid --fork --kill-child --mount-proc \
    bash -c "hostname $node; mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /dev/shm; $hosts"'; "$@" & wait $!' \
    "$work" slurmd -D -N "$node" > "$work/$node/out" 2>&1 &
  started+=($!)
  disown
done

for _ in $(seq 60); do
  [ "$(sinfo -h -o %T 2> /dev/null | sort -u)" = idle ] && break
  sleep 1
done
sinfo
[ "$(sinfo -h -o %T | sort -u)" = idle ] || { cat "$work"/*.log "$work"/n*/slurmd.log; exit 1; }

say "the generated file, on two nodes"
cd "$work/job"
cp "$root/tests/slurm/study.yaml" study.yaml
mkdir -p data
python -m sweep.submit --slurm job.sbatch --study study.yaml --store "$work/job/store" --data-dir "$work/job/data" \
  --nodes 2 --cpus-per-node 2 --time 30:00 --folder "$work/job" --venv "$root/.venv" \
  --env PYTHONPATH="$root"
job=$(sbatch --parsable job.sbatch)

records() { find store/trials -name record.json 2> /dev/null | wc -l; }
state() { squeue -h -j "$job" -o %T 2> /dev/null || true; }
await() { # what it waits for, then the condition
  for _ in $(seq 600); do
    eval "$2" && return 0
    if [ -z "$(state)" ] && [ "$1" != "the end" ]; then break; fi
    sleep 1
  done
  echo "waited in vain for $1"
  cat robustsweep-*.log "$work/slurmctld.log"
  return 1
}

await "a finished trial" '[ "$(records)" -ge 1 ]'
before=$(records)
[ "$(stat -c %a .ray-token-"$job")" = 600 ] || { echo "the token can be read by others"; exit 1; }
say "requeue with $before trials done, as two minutes before the time limit"
scancel --batch --signal=USR1 "$job"
await "the requeue" '[ "$(scontrol show job "$job" | grep -c "Restarts=1")" = 1 ]'
await "the end" '[ -z "$(state)" ]'

cat robustsweep-*.log
scontrol show job "$job" | grep -E 'JobState|Restarts|ExitCode' || true
grep -q "back into the queue" robustsweep-*.log
python - "$work/job/store" <<'CHECK'
import re
import sys

from sweep.store.opening import open_store

store = open_store(sys.argv[1])
cells = store.manifest("slurm").cells
states = {(cell.label, cell.seed): store.trial_record(cell.trial).status for cell in cells}
logs = "".join(store.read(path).decode() for path in store.paths("trials") if path.endswith("log.txt"))
seen = set(re.findall(r" on (\w+) with (\d+) cores$", logs, re.MULTILINE))
print(states, sorted(seen))
assert set(states.values()) == {"done"} and seen == {("n1", "2"), ("n2", "2")}  # each trial sees all cores of its node
CHECK
[ ! -e .ray-token-"$job" ] || { echo "the token was left behind"; exit 1; }
say "done: every trial is there, from two nodes, with one requeue in between"
