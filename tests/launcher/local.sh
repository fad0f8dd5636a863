# `anyaccel launch` on this host: environment, cores, output, exit codes, signals, and what is left afterwards.
anyaccel=$1
umask 022
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $1"; [ -f "$dir/err" ] && cat "$dir/err"; exit 1; }

# Runs the launcher; its exit code must be $1. Output in $dir/out and $dir/err.
run() {
  want=$1; shift
  "$anyaccel" launch "$@" >"$dir/out" 2>"$dir/err" </dev/null
  got=$?
  [ $got = "$want" ] || fail "'launch $*' gave exit code $got, expected $want"
}
says() { grep -qF -- "$1" "$dir/err" || fail "standard error lacks '$1'"; }
prints() { grep -qxF -- "$1" "$dir/out" || { cat "$dir/out"; fail "standard output lacks the line '$1'"; }; }

# Processes that carry a variable of ours.
marked() { grep -lsz "^LAUNCH_TEST_MARK=$1\$" /proc/[0-9]*/environ | wc -l; }
# A command sees its own processes too: a dead one has no environment.
nothing_left() {
  for i in $(seq "${3:-10}"); do
    [ "$(marked "$1")" = 0 ] && return
    sleep 0.1
  done
  fail "processes are left after $2"
}

# environment
port=$("$anyaccel" launch --num_accelerators 1 printenv MASTER_PORT) || fail "no port is free"
run 0 --num_accelerators 2 --master_port "$port" sh -c \
  'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_SIZE $CROSS_RANK/$CROSS_SIZE $MASTER_ADDR:$MASTER_PORT ${#ANYACCEL_JOB_TOKEN}"'
prints "0/2 0/2 0/1 127.0.0.1:$port 32"
prints "1/2 1/2 0/1 127.0.0.1:$port 32"
[ "$(wc -l <"$dir/out")" = 2 ] || fail "more output than two lines"
run 0 --num-accelerators 3 --num_nodes 1 printenv ANYACCEL_JOB_TOKEN
[ "$(sort -u "$dir/out" | wc -l)" = 1 ] || fail "ranks of one job have several tokens"
first=$(head -1 "$dir/out")
run 0 printenv ANYACCEL_JOB_TOKEN
[ "$(head -1 "$dir/out")" != "$first" ] || fail "two jobs have one token"
RANK=7 WORLD_SIZE=9 LOCAL_SIZE=5 run 0 --num_gpus 1 sh -c 'echo $RANK $WORLD_SIZE $LOCAL_SIZE'
prints "0 1 1"
# an mpirun or srun of one process around the launcher
export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 PMI_RANK=0 PMI_SIZE=1 PMI_FD=3 PMIX_RANK=0 MPI_LOCALNRANKS=1 LAUNCH_KEPT=1
run 0 --num_accelerators 2 sh -c 'env | grep -E "^(OMPI_COMM|PMI|MPI_LOCAL)" || echo "$RANK of $WORLD_SIZE, kept $LAUNCH_KEPT"'
prints "1 of 2, kept 1"
[ "$(wc -l <"$dir/out")" = 2 ] || fail "ranks have variables of the job around the launcher: $(cat "$dir/out")"
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE PMI_FD PMIX_RANK MPI_LOCALNRANKS LAUNCH_KEPT
OMP_NUM_THREADS=1 run 0 --num_accelerators 1 printenv OMP_NUM_THREADS
prints 1

# a port that somebody else listens at
if command -v python3 >/dev/null 2>&1; then
  python3 -c '
import os, socket, sys, time
s = socket.socket(); s.bind(("", 0)); s.listen()
open(sys.argv[1] + ".new", "w").write(str(s.getsockname()[1])); os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(1000)' "$dir/port" &
  listener=$!
  while [ ! -f "$dir/port" ]; do sleep 0.05; done
  run 2 --num_accelerators 1 --master_port "$(cat "$dir/port")" true
  kill $listener
  says "port $(cat "$dir/port") of $(hostname), where the ranks are to meet, is in use"
fi
run 0 --num_accelerators 2 sh -c 'exec cat' <&-

# variables from files
printf '# a comment\n\n LAUNCH_A =  x y "z" $HOME \n' >"$dir/env"
DS_ENV_FILE="$dir/env" run 0 --num_accelerators 1 printenv LAUNCH_A
prints 'x y "z" $HOME'
echo 'nonsense' >"$dir/env"
DS_ENV_FILE="$dir/env" run 2 --num_accelerators 1 true
says 'line 1: "nonsense"'

# the command itself, arguments as they are, and -- before the program
run 0 --num_accelerators 1 anyaccel --version
grep -q '^anyaccel ' "$dir/out" || fail "anyaccel was not run by itself"
run 0 --num_accelerators 1 -- printf '%s|' 'a b' '$x' "it's" --num_accelerators
grep -qF 'a b|$x|it'"'"'s|--num_accelerators|' "$dir/out" || fail "arguments were changed"
run 0 --num_accelerators 2 --pass_local_rank echo x
prints "--local_rank=1 x"

# cores
# Those of the affinity mask; a core with two hardware threads counts once.
cores=$(for cpu in $(taskset -cp $$ | sed 's/.*: //; s/,/ /g; s/\([0-9]*\)-\([0-9]*\)/$(seq \1 \2)/g; s/^/echo /' | sh); do
  cat "/sys/devices/system/cpu/cpu$cpu/topology/thread_siblings_list" 2>/dev/null || echo "$cpu"
done | sort -u | grep -c .)
run 0 --num_accelerators "$cores" --bind_cores_to_rank sh -c 'grep Cpus_allowed_list /proc/self/status; echo "threads $OMP_NUM_THREADS"'
per_core=$(grep -c . "$dir/out")
[ "$per_core" = $((2 * cores)) ] || fail "not every rank answered"
if lscpu -p=CPU,CORE 2>/dev/null | grep -v '^#' | cut -d, -f2 | sort | uniq -d | grep -q .; then
  echo "hardware threads share cores here: the masks are not compared"
else
  [ "$(grep Cpus_allowed_list "$dir/out" | sort -u | wc -l)" = "$cores" ] || fail "ranks share cores"
  prints "threads 1"
fi
own=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
one=$(echo "$own" | sed 's/[,-].*//')
run 0 --num_accelerators 1 --bind_core_list "$one" grep Cpus_allowed_list /proc/self/status
grep -qE "[[:space:]]$one\$" "$dir/out" || fail "rank 0 is not on core $one: $(cat "$dir/out")"
run 2 --num_accelerators 9999 --bind_cores_to_rank true
says "each of 9999 ranks needs a core of its own"
run 2 --num_accelerators 1 --bind_core_list 0,99999 true
says "names core 99999"
run 2 --num_accelerators 1 --bind_core_list 3-1 true
says '"3-1" runs backwards'
KMP_AFFINITY=compact run 2 --num_accelerators 1 --bind_cores_to_rank true
says "KMP_AFFINITY"

# other machines, on paper
HWLOC_SYNTHETIC="pack:2 [numa] core:56 pu:1" run 0 --dry_run --num_accelerators 4 --bind_cores_to_rank prog 'a b'
grep -q "^rank 3 on localhost: cores 84-111, memory bound to node 1\$" "$dir/out" || fail "dry run: $(cat "$dir/out")"
grep -q " OMP_NUM_THREADS=28 RANK=3 WORLD_SIZE=4 prog 'a b'\$" "$dir/out" || fail "dry run: $(cat "$dir/out")"
[ "$(grep -o 'cores [0-9-]*' "$dir/out" | sort -u | wc -l)" = 4 ] || fail "ranks share cores on paper"
HWLOC_SYNTHETIC="pack:2 [numa] core:56 pu:1" run 0 --dry_run --bind_cores_to_rank prog
[ "$(grep -c ^rank "$dir/out")" = 2 ] || fail "not one rank a NUMA node: $(cat "$dir/out")"
HWLOC_SYNTHETIC="pack:2 [numa] core:56 pu:1" run 2 --num_accelerators 1 --bind_cores_to_rank true
says "describes another machine"

# another host's cores are not this one's
printf '%s slots=2000\n' one two >"$dir/hosts"
for launcher in impi pdsh mpich; do
  run 0 -H "$dir/hosts" --launcher $launcher --master_addr 127.0.0.1 --bind_cores_to_rank --num_accelerators 2000 --dry_run prog
  grep -q '^rank 2000 on two: cores of its own there$' "$dir/out" || fail "dry run of $launcher: $(grep '^rank 2000' "$dir/out")"
  ! grep -q OMP_NUM_THREADS "$dir/out" || fail "dry run of $launcher tells threads of hosts that it does not know"
done
HWLOC_SYNTHETIC="pack:2 [numa] core:56 pu:1" run 0 -H "$dir/hosts" --launcher impi --master_addr 127.0.0.1 --bind_cores_to_rank \
  --num_accelerators 4 --dry_run prog
grep -q '^rank 7 on two: cores 84-111, memory bound to node 1$' "$dir/out" || fail "dry run of a described machine: $(cat "$dir/out")"

# output
run 0 --num_accelerators 4 --prefix_output sh -c 'i=0; while [ $i -lt 200 ]; do echo "line $i of $RANK"; i=$((i+1)); done; printf end; echo oops >&2'
[ "$(grep -cE '^\[rank ([0-3])\] (line [0-9]+ of \1|end)$' "$dir/out")" = 804 ] || fail "lines are lost or mixed"
[ "$(grep -cE '^\[rank [0-3]\] oops$' "$dir/err")" = 4 ] || fail "standard error is not prefixed"
run 0 --num_accelerators 2 --enable_each_rank_log "$dir/a/logs" sh -c 'echo out $RANK; echo err $RANK >&2'
[ ! -s "$dir/out" ] || fail "output went elsewhere than to the log"
for rank in 0 1; do
  file=$(ls "$dir"/a/logs/[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]_rank$rank.log) || fail "no log of rank $rank"
  [ "$(cat "$file")" = "$(printf 'out %s\nerr %s' $rank $rank)" ] || fail "the log holds: $(cat "$file")"
done
touch "$dir/file"
run 2 --num_accelerators 1 --enable_each_rank_log "$dir/file" true
says "is not a folder"

# standard input goes to rank 0 alone
printf 'hello\n' | "$anyaccel" launch --num_accelerators 3 sh -c 'echo "$RANK $(cat)"' | sort >"$dir/out"
[ "$(tr '\n' ';' <"$dir/out")" = "0 hello;1 ;2 ;" ] || fail "standard input: $(cat "$dir/out")"

# exit codes, and who is named
run 3 --num_accelerators 2 sh -c '[ $RANK = 1 ] && exit 3; sleep 1000'
says "rank 1 on $(hostname) (process "
says "exited with code 3"
for signal in KILL:9 SEGV:11 TERM:15; do
  run $((128 + ${signal#*:})) --num_accelerators 3 sh -c "ulimit -c 0; [ \$RANK = 2 ] && kill -${signal%:*} \$\$; sleep 1000"
  says "rank 2 on"
  says "was killed by signal ${signal#*:} (SIG${signal%:*})"
done
run 2 --num_accelerators 1 no-such-program-at-all
says 'there is no program "no-such-program-at-all" in PATH'
run 2 --num_accelerators 1 /etc/passwd
says "is not an executable file"
run 2 --nonsense true
says "there is no option '--nonsense'"
run 2
says "no program"
# an empty value is empty, and not the next option
run 2 --include= --num_nodes 2 true
says "--num_nodes is 2 but no extra nodes are available"
run 0 --include= --exclude= --launcher_args= --enable_each_rank_log= --hostfile= --num_nodes= --num_accelerators 2 sh -c 'echo "$RANK:$*"' x --a= '' b
prints "0:--a=  b"
prints "1:--a=  b"
run 2 --bind_core_list '' --num_accelerators 1 true
says "--bind_core_list is empty"
run 2 --bind_core_list= --num_accelerators 1 true
says "--bind_core_list is empty"
# DeepSpeed's, which are told what to write instead; and what that does
run 0 --no_python --num_accelerators 1 true
run 2 --module --num_accelerators 1 json.tool
says "anyaccel launch [options] python3 -m MODULE"
run 2 --venv_script "$dir/activate" --num_accelerators 1 true
says "sh -c '. $dir/activate && exec \"\$@\"' sh PROGRAM [ARGUMENTS...]"
echo 'LAUNCH_VENV=active; export LAUNCH_VENV' >"$dir/activate"
run 0 --num_accelerators 1 sh -c ". $dir/activate && exec \"\$@\"" sh printenv LAUNCH_VENV
prints active
run 2 --num_accelerators 0 true
run 2 --num_accelerators x true
run 2 --launcher dance true
says "expected local, pdsh, openmpi, mpich, impi, slurm or mvapich"
run 2 -H "$dir/no-such-file" true
says "cannot be read"
run 2 -H "$dir" true
says "the hostfile \"$dir\" cannot be read: Is a directory"
printf 'a slots=1\na slots=1\n' >"$dir/hosts"
run 2 -H "$dir/hosts" true
says 'line 2, "a slots=1"'
printf '%s slots=4\n' one two >"$dir/hosts"
run 2 -H "$dir/hosts" --include three true
says "Hostname 'three' not found"
run 2 -H "$dir/hosts" --launcher_args "'x" --dry_run true
says "its quotation does not end"
PATH=/nonexistent run 1 -H "$dir/hosts" --master_addr 127.0.0.1 /bin/true
says "there is no pdsh in PATH"

# a rank that the kernel kills because its control group has no memory left
group=
if [ "$(id -u)" = 0 ]; then
  for parent in "/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)" /sys/fs/cgroup/memory \
    "/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)" /sys/fs/cgroup; do
    mkdir "$parent/launch-test-$$" 2>/dev/null || continue
    for limit in memory.limit_in_bytes memory.max; do
      if [ -f "$parent/launch-test-$$/$limit" ] && echo 500000000 >"$parent/launch-test-$$/$limit" 2>/dev/null; then
        group="$parent/launch-test-$$"
        [ -f "$group/memory.swap.max" ] && echo 0 >"$group/memory.swap.max" 2>/dev/null
      fi
    done
    [ -n "$group" ] && break
    rmdir "$parent/launch-test-$$"
  done
fi
if [ -n "$group" ]; then
  sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$group" "$anyaccel" launch --num_accelerators 2 sh -c \
    '[ $RANK = 0 ] && exec sleep 1000; x=aaaaaaaa; while :; do x=$x$x; done' >"$dir/out" 2>"$dir/err"
  got=$?
  rmdir "$group"
  [ $got = 137 ] || fail "out of memory gave exit code $got"
  says "was killed by signal 9 (SIGKILL), killed for memory"
else
  echo "skipped: killed for memory: no control group for memory can be made here"
fi

# nothing is left: orphans in sessions of their own, and what ignores signals
export LAUNCH_TEST_MARK="orphans$$"
run 0 --num_accelerators 2 sh -c 'setsid sh -c "trap \"\" TERM HUP INT; while :; do sleep 1000; done" >/dev/null 2>&1 &
  (setsid sleep 1000 &) ; exit 0'
export LAUNCH_TEST_MARK=none
nothing_left "orphans$$" "ranks that left orphans"

# signals are passed on; the second does not wait
for signal in INT:2 TERM:15 HUP:1; do
  number=${signal#*:}
  LAUNCH_TEST_MARK="signal$number$$" env --default-signal=INT,TERM,HUP "$anyaccel" launch --num_accelerators 2 sh -c '
    trap "echo got '"${signal%:*}"' > '"$dir"'/got.$RANK; exit 0" '"${signal%:*}"'
    touch '"$dir"'/ready.$RANK
    while :; do sleep 0.05; done' 2>"$dir/err" &
  launcher=$!
  while [ ! -f "$dir/ready.0" ] || [ ! -f "$dir/ready.1" ]; do sleep 0.05; done
  kill -"${signal%:*}" $launcher
  wait $launcher
  got=$?
  [ $got = $((128 + number)) ] || fail "SIG${signal%:*} gave exit code $got"
  [ "$(cat "$dir"/got.0 "$dir"/got.1)" = "$(printf 'got %s\ngot %s' "${signal%:*}" "${signal%:*}")" ] || fail "no rank got SIG${signal%:*}"
  nothing_left "signal$number$$" "SIG${signal%:*}"
  rm -f "$dir"/ready.* "$dir"/got.*
done
# The terminal of a launcher that leads its session is closed: only the launcher is told.
if command -v script >/dev/null 2>&1; then
  LAUNCH_TEST_MARK="terminal$$" script -qc "exec $anyaccel launch --num_accelerators 2 sh -c 'touch $dir/ready.\$RANK; while :; do sleep 0.05; done'" \
    /dev/null >/dev/null 2>&1 </dev/null &
  terminal=$!
  while [ ! -f "$dir/ready.0" ] || [ ! -f "$dir/ready.1" ]; do sleep 0.05; done
  [ "$(marked "terminal$$")" -gt 3 ] || fail "the job in a terminal does not run"
  kill -KILL $terminal
  wait $terminal 2>/dev/null
  # The launcher, which nobody waits for, first gives its ranks time to end.
  nothing_left "terminal$$" "the terminal was closed" 100
  rm -f "$dir"/ready.*
else
  echo "skipped: a terminal that is closed: there is no program script"
fi
LAUNCH_TEST_MARK="twice$$" "$anyaccel" launch --num_accelerators 2 sh -c 'trap "" TERM; touch '"$dir"'/ready.$RANK; while :; do sleep 0.05; done' 2>"$dir/err" &
launcher=$!
while [ ! -f "$dir/ready.0" ] || [ ! -f "$dir/ready.1" ]; do sleep 0.05; done
kill -TERM $launcher
sleep 0.3
kill -TERM $launcher
wait $launcher
[ $? = 143 ] || fail "two signals"
nothing_left "twice$$" "two signals"

# the process number is kept while it runs
TMPDIR="$dir" "$anyaccel" launch --save_pid --num_accelerators 1 sh -c 'cat '"$dir"'/*.anyaccel' >"$dir/out" &
launcher=$!
wait $launcher || fail "--save_pid"
[ "$(cat "$dir/out")" = $launcher ] || fail "--save_pid wrote $(cat "$dir/out"), not $launcher"
[ ! -e "$dir/$launcher.anyaccel" ] || fail "--save_pid left its file"
echo "local: ok"
