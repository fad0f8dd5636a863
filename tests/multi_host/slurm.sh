#!/bin/sh
# Slurm's own daemons on one host: srun starts the ranks, by the launcher and by hand with --mpi=pmi2 for MPICH.
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/job.sh"
enter munged slurmctld slurmd srun -- "$@"
anyaccel=$1 source=$2 ranks=$3

hostname slurmhost
echo "10.77.0.1 slurmhost" >$W/hosts
replace $W/hosts /etc/hosts
ip link add eth0 type bridge  # Slurm looks names up for interfaces other than lo only
ip address add 10.77.0.1/24 dev eth0
ip link set eth0 up
mkdir -p $W/state $W/spool
head -c 128 /dev/urandom >$W/munge.key
chmod 600 $W/munge.key
munged --force --key-file=$W/munge.key --socket=$W/munge.socket --pid-file=$W/munge.pid --log-file=$W/munge.log \
  --seed-file=$W/munge.seed || fail "munged: $(cat $W/munge.log)"
cat >$W/slurm.conf <<END
ClusterName=test
SlurmctldHost=slurmhost
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$W/munge.socket
StateSaveLocation=$W/state
SlurmdSpoolDir=$W/spool
SlurmctldPidFile=$W/slurmctld.pid
SlurmdPidFile=$W/slurmd.pid
SlurmctldLogFile=$W/slurmctld.log
SlurmdLogFile=$W/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/linear
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
NodeName=slurmhost CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
END
export SLURM_CONF=$W/slurm.conf HOME=$W TMPDIR=$W/tmp ANYACCEL_CACHE_DIR=$W/cache
slurmctld -f $SLURM_CONF && slurmd -f $SLURM_CONF || fail "$(cat $W/slurm*.log)"
for tries in $(seq 20); do
  ! timeout 10 sinfo -h -o %t 2>/dev/null | grep -q idle || break
  sleep 0.2
done
[ "$tries" -lt 20 ] || fail "Slurm does not start: $(cat $W/slurmctld.log $W/slurmd.log)"

# More ranks than cores: -O.
run() { timeout -k 5 60 "$@" >$W/out 2>$W/err </dev/null || fail "$*: $(said)"; }
run "$anyaccel" launch --launcher slurm --num_nodes 1 --num_accelerators 3 --launcher_args -O "$ranks" ""
grep -q "^3 ranks over [a-z+]* on slurmhost slurmhost slurmhost$" $W/out || fail "$(said)"
generate="generate --model $source/models/stories --prompt Once --dtype fp32 --greedy --ignore-eos --max-new-tokens 40 --quiet"
# shellcheck disable=SC2086
"$anyaccel" $generate >$W/one
# shellcheck disable=SC2086
run "$anyaccel" launch --launcher slurm --num_nodes 1 --num_accelerators 2 --launcher_args -O "$anyaccel" $generate
cmp -s $W/one $W/out || fail "another text than one process writes: $(said)"
if ! command -v mpicc.mpich >/dev/null; then
  echo "skipped: MPICH is not installed"
elif ! mpich_works; then
  echo "skipped: mpirun.mpich starts any program as worlds of one rank"
else
  export MASTER_ADDR=10.77.0.1 MASTER_PORT=29511 ANYACCEL_JOB_TOKEN=of-this-test
  run srun -n 4 -O --mpi=pmi2 "$ranks" mpi
  grep -q "^4 ranks over mpi on slurmhost" $W/out || fail "$(said)"
fi
echo "slurm: ok"
