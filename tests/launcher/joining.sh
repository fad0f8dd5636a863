# Ranks that do not come: what the others and the launcher say, and how soon. The usual limits are minutes; each case here ends
# at once or after the limit that it sets. tests/multi_host/ranks.cpp is the program that joins.
anyaccel=$1
ranks=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $1"; cat "$dir/out" "$dir/err"; exit 1; }
unset ANYACCEL_JOIN_TIMEOUT DEEPSPEED_TIMEOUT
says() { grep -qE -- "$1" "$dir/err" || fail "standard error lacks '$1'"; }
# job CODE OPTIONS... -- SCRIPT: `script` with the program as $0.
job() {
  want=$1; shift
  timeout -k 5 100 "$anyaccel" launch "$@" >"$dir/out" 2>"$dir/err" </dev/null
  got=$?
  [ $got = "$want" ] || fail "launch $*: exit code $got, expected $want"
}

# A rank that ends with 0 and never joined: any but the first, several, the first.
job 1 --num_accelerators 4 sh -c '[ $RANK = 2 ] && exit 0; exec "$0"' "$ranks"
says "ranks: rank 2 on $(hostname) ended with exit code 0 before it joined the process group of 4 ranks; missing: (.*, )?2( on|,)"
job 1 --num_accelerators 4 sh -c '[ $RANK -ge 2 ] && exit 0; exec "$0"' "$ranks"
says "ranks: rank [23] on $(hostname) ended with exit code 0 before it joined"
job 1 --num_accelerators 3 sh -c '[ $RANK = 0 ] && exit 0; exec "$0"' "$ranks"
says "ranks: rank 0 on $(hostname) ended with exit code 0 before it joined the process group of 3 ranks, which cannot be made without it"
# Late, when the others already wait.
job 1 --num_accelerators 2 sh -c '[ $RANK = 1 ] && { sleep 1; exit 0; }; exec "$0"' "$ranks"
says "ranks: rank 1 on $(hostname) ended with exit code 0 before it joined"

# One that neither ends nor joins.
job 1 --join_timeout 2 --num_accelerators 3 sh -c '[ $RANK = 1 ] && exec sleep 1000; exec "$0"' "$ranks"
says "ranks: 2 of 3 ranks came within 2 s; missing: 1 on $(hostname)"
ANYACCEL_JOIN_TIMEOUT=2 job 1 --num_accelerators 2 sh -c '[ $RANK = 0 ] && exec sleep 1000; exec "$0"' "$ranks"
says "ranks: the job's store at 127.0.0.1:[0-9]* \(MASTER_ADDR:MASTER_PORT\) was not reached within 2 s: .*Rank 0 serves it"

# In a network namespace whose loopback interface is down, waiting would not help.
if unshare -n true 2>/dev/null; then
  timeout -k 5 100 unshare -n "$anyaccel" launch --num_accelerators 2 "$ranks" >"$dir/out" 2>"$dir/err" </dev/null
  [ $? = 1 ] || fail "a job without a loopback interface did not fail"
  says "cannot be reached: 127.0.0.1:[0-9]*: Network is unreachable. The loopback interface of this network namespace is down or lacks this address: .*--master_addr ::1"
fi

# Ranks that have nothing to do with each other end when they like.
job 0 --num_accelerators 3 sh -c 'sleep 0.$RANK'
job 0 --num_accelerators 3 sh -c '[ $RANK = 2 ] || exit 0; sleep 1.5'
[ ! -s "$dir/err" ] || fail "something was said"
# Those that have joined, too.
job 0 --num_accelerators 3 sh -c '"$0"; sleep 0.$RANK' "$ranks"
grep -q '^3 ranks over' "$dir/out" || fail "no ranks"

# A runner that starts one rank and not the other.
mkdir "$dir/bin"
cat >"$dir/bin/mpirun" <<'M'
#!/bin/sh
[ "$1" = --version ] && { echo "mpirun (Open MPI) 4.1.4"; exit 0; }
for word in "$@"; do
  case $word in */anyaccel) break ;; esac
  shift
done
export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0 "$@" &
[ -n "$ENDS" ] && OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=1 "$@" &
wait
M
chmod +x "$dir/bin/mpirun"
printf '%s slots=2\n' "$(hostname)" >"$dir/hosts"
PATH=$dir/bin:$PATH
mpi="-H $dir/hosts --launcher openmpi --no_ssh_check"
if [ "$(command -v mpirun.openmpi)" = "" ]; then ln -s mpirun "$dir/bin/mpirun.openmpi"; else cp "$dir/bin/mpirun" "$dir/bin/mpirun.openmpi"; fi
job 1 $mpi --join_timeout 2 sleep 1000
says "anyaccel: error: these ranks were not started within 2 s: 1 on $(hostname); the job is ended"
# With both, one of which ends before it joins.
ENDS=1 job 1 $mpi sh -c '[ $RANK = 1 ] && exit 0; exec "$0"' "$ranks"
says "ranks: rank 1 on $(hostname) ended with exit code 0 before it joined the process group of 2 ranks"
echo "joining: ok"
