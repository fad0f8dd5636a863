# The same job by every runner that is installed, on this host: pdsh over a sshd of our own, Open MPI, MPICH; or, if $4 is
# impi, by Intel MPI, which tools/install_python_packages has put into the folder $3. What is missing is reported as skipped.
anyaccel=$1
sums=$2
python_packages=$3
umask 022
dir=$(mktemp -d)
sshd_pid=
trap '[ -n "$sshd_pid" ] && kill $sshd_pid; rm -rf "$dir"' EXIT
fail() { echo "FAILED: $runner: $1"; cat "$dir/out" "$dir/err"; exit 1; }
marked() { grep -lsz "^LAUNCH_TEST_MARK=$1\$" /proc/[0-9]*/environ; }
ran=0

# Waits for files ready.0 and ready.1; they are removed unless $1 says to keep them.
ready() {
  tries=0
  while [ ! -f "$dir/ready.0" ] || [ ! -f "$dir/ready.1" ]; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 600 ] || fail "the ranks did not start"
  done
  [ -n "$1" ] || rm -f "$dir"/ready.*
}

# check RUNNER OPTIONS...: a job of one rank a host, then jobs that end badly.
check() {
  runner=$1; shift
  printf 'LAUNCH_TEST_MARK=%s\nLAUNCH_TEXT=a "b" $c '"'"'d'"'"'  e\n' "$runner$$" >"$dir/env"
  export DS_ENV_FILE="$dir/env"
  "$anyaccel" launch "$@" --bind_core_list "$core" --prefix_output --num_accelerators 1 sh -c \
    'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_SIZE $CROSS_RANK/$CROSS_SIZE $OMP_NUM_THREADS ($LAUNCH_TEXT) $(sed -n "s/^Cpus_allowed_list:[^0-9]*//p" /proc/self/status) $(pwd)"' \
    >"$dir/out" 2>"$dir/err" </dev/null || fail "exit code $?"
  ranks=$(grep -c '^\[rank' "$dir/out")
  rank=0
  while [ $rank -lt "$ranks" ]; do
    grep -qxF "[rank $rank] $rank/$ranks 0/1 $rank/$ranks 1 (a \"b\" \$c 'd'  e) $core $(pwd)" "$dir/out" || fail "rank $rank"
    rank=$((rank + 1))
  done
  [ "$ranks" -ge 1 ] || fail "no rank ran"

  # One of several is killed; orphans and sessions of their own end too.
  "$anyaccel" launch "$@" --num_accelerators 2 sh -c \
    'setsid sleep 1000 & (sleep 1000 &); if [ $RANK = 1 ]; then sleep 0.5; kill -KILL $$; fi; sleep 1000' \
    >"$dir/out" 2>"$dir/err" </dev/null
  code=$?
  [ $code = 137 ] || fail "a killed rank gave exit code $code"
  grep -q 'rank 1 on .* was killed by signal 9 (SIGKILL)' "$dir/err" || fail "the killed rank is not named"
  "$anyaccel" launch "$@" --num_accelerators 2 sh -c '[ $RANK = 1 ] && exit 42; sleep 1000' >"$dir/out" 2>"$dir/err" </dev/null
  code=$?
  [ $code = 42 ] || fail "exit code 42 came back as $code"
  for i in 1 2 3 4 5 6 7 8 9 10; do
    [ -z "$(marked "$runner$$")" ] && break
    [ $i -lt 10 ] || fail "processes are left: $(ps axo pid,args)"
    sleep 0.2
  done

  # Signals reach the ranks.
  env --default-signal=INT "$anyaccel" launch "$@" --num_accelerators 2 sh -c \
    'trap "touch '"$dir"'/got.$RANK; exit 0" INT TERM; touch '"$dir"'/ready.$RANK; while :; do sleep 0.1; done' \
    >"$dir/out" 2>"$dir/err" </dev/null &
  launcher=$!
  ready
  kill -INT $launcher
  wait $launcher
  code=$?
  [ $code = 130 ] || fail "SIGINT gave exit code $code"
  tries=0
  while [ ! -f "$dir/got.0" ] || [ ! -f "$dir/got.1" ]; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "the ranks got no signal"
  done
  rm -f "$dir"/got.*

  # The launcher itself is killed.
  "$anyaccel" launch "$@" --num_accelerators 2 sh -c 'echo $ANYACCEL_JOB_TOKEN >'"$dir"'/token.$RANK; mv '"$dir"'/token.$RANK '"$dir"'/ready.$RANK; sleep 1000' >"$dir/out" 2>"$dir/err" </dev/null &
  launcher=$!
  ready keep
  token=$(cat "$dir/ready.0")
  [ ${#token} = 32 ] || fail "the token is '$token'"
  ! grep -qsF -f "$dir/ready.0" /proc/[0-9]*/cmdline || fail "the token is in a list of processes"
  rm -f "$dir"/ready.*
  kill -KILL $launcher
  wait $launcher 2>/dev/null
  tries=0
  while [ -n "$(marked "$runner$$")" ]; do
    sleep 0.2
    tries=$((tries + 1))
    [ $tries -lt 75 ] || fail "processes outlive a killed launcher: $(ps axo pid,args)"
  done
  ran=$((ran + 1))
  echo "$runner: ok"
}

core=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status | sed 's/[,-].*//')
has() { command -v "$1" >/dev/null 2>&1; }

# Intel MPI, in a test of its own, which needs what is installed from PyPI.
if [ "$4" = impi ]; then
  [ -x "$python_packages/bin/mpiexec.hydra" ] || { echo "skipped: $python_packages has no bin/mpiexec.hydra"; exit 77; }
  export PATH="$python_packages/bin:$PATH" I_MPI_ROOT="$python_packages"
  check impi --launcher impi
  # Its ranks as backend mpi, with the compiler command that finds its own headers. The library keeps memory.
  ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" MPICC=mpigcc ANYACCEL_CACHE_DIR="$dir/impi_cache" DS_ACCELERATOR=cpu "$anyaccel" launch --launcher impi --num_accelerators 2 \
    "$sums" mpi >"$dir/out" 2>"$dir/err" </dev/null || fail "the backend mpi"
  grep -q "^2 ranks over mpi on" "$dir/out" || fail "another backend than mpi"
  exit 0
fi

if has pdsh && has ssh && [ -x /usr/sbin/sshd ]; then
  mkdir -p /run/sshd 2>/dev/null
  port=$((20000 + $(od -An -N2 -tu2 /dev/urandom) % 20000))
  ssh-keygen -q -t ed25519 -N '' -f "$dir/host" && ssh-keygen -q -t ed25519 -N '' -f "$dir/user"
  cp "$dir/user.pub" "$dir/authorized"
  printf '%s\n' "Port $port" "ListenAddress 127.0.0.1" "HostKey $dir/host" "AuthorizedKeysFile $dir/authorized" \
    "StrictModes no" "UsePAM no" "PidFile none" >"$dir/sshd"
  /usr/sbin/sshd -D -f "$dir/sshd" 2>"$dir/sshd.log" &
  sshd_pid=$!
  export PDSH_SSH_ARGS_APPEND="-i $dir/user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
  tries=0
  # shellcheck disable=SC2086
  until ssh $PDSH_SSH_ARGS_APPEND -o BatchMode=yes -p "$port" 127.0.0.1 true 2>/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 20 ] && kill -0 $sshd_pid 2>/dev/null || break
    sleep 0.2
  done
  if ssh $PDSH_SSH_ARGS_APPEND -o BatchMode=yes -p "$port" 127.0.0.1 true 2>"$dir/err"; then
    printf '%s slots=1\n' 127.0.0.1 localhost >"$dir/hosts"
    check pdsh -H "$dir/hosts" --ssh_port "$port" --master_addr 127.0.0.1 --master_port $((port + 20000))
    kill $sshd_pid; wait $sshd_pid 2>/dev/null; sshd_pid=
    runner=pdsh
    "$anyaccel" launch -H "$dir/hosts" --ssh_port "$port" --master_addr 127.0.0.1 true >"$dir/out" 2>"$dir/err" && fail "no sshd, no error"
    grep -q 'the host "127.0.0.1" cannot be reached by ssh: ssh: connect' "$dir/err" || fail "the unreachable host is not named"
  else
    echo "skipped: pdsh: no sshd of our own can be used here: $(cat "$dir/err" "$dir/sshd.log" | head -2)"
  fi
else
  echo "skipped: pdsh: pdsh, ssh or sshd is not installed"
fi

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
if has mpirun.openmpi || { has mpirun && mpirun --version 2>&1 | grep -q "Open MPI"; }; then
  check openmpi --launcher openmpi
else
  echo "skipped: openmpi: not installed"
fi
if has mpirun.mpich; then
  check mpich --launcher mpich
else
  echo "skipped: mpich: not installed"
fi
# The backend mpi where no MPI started the ranks: Open MPI, which then starts itself, sets variables of PMIx on the way.
for compiler in mpicc.openmpi mpicc.mpich; do
  has $compiler || { echo "skipped: there is no $compiler"; continue; }
  runner="no MPI, $compiler"
  MPICC=$compiler "$anyaccel" launch --num_accelerators 2 "$2" mpi >"$dir/out" 2>"$dir/err" && fail "no error"
  grep -q "and no MPI's launcher has left its variables in the environment" "$dir/err" || fail "not told that there is none"
  ! grep -q "launched by" "$dir/err" || fail "told of a launcher that there is not"
done
# A program of another MPI under the requested name, and one that is broken.
runner="another mpirun"
mkdir "$dir/bin"
for kind in 'echo "mpirun (Another MPI) 1.0"' 'echo "cannot find liba.so" >&2; exit 127'; do
  for name in mpirun.openmpi mpirun; do printf '#!/bin/sh\n%s\n' "$kind" >"$dir/bin/$name" && chmod +x "$dir/bin/$name"; done
  PATH=$dir/bin:$PATH "$anyaccel" launch --launcher openmpi --num_accelerators 1 true >"$dir/out" 2>"$dir/err" && fail "no error"
  case $kind in
    *Another*) grep -q "mpirun.openmpi is another MPI's: mpirun (Another MPI) 1.0" "$dir/err" || fail "the other MPI is not named" ;;
    *) grep -q "mpirun.openmpi --version fails: cannot find liba.so" "$dir/err" || fail "the broken MPI is not told" ;;
  esac
done
[ $ran -gt 0 ] || { echo "no runner is installed"; exit 77; }
