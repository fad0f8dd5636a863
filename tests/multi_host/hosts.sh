# Several hosts on one machine, for the tests of this folder: read by a test script, which then calls
#
#   enter NAME... -- "$@"   the programs the test needs; continues inside a container, or skips the test (77)
#   hosts_up 3              node1 to node3, each with an own network, host name, IPC, /dev/shm, processes and sshd
#   on node2 COMMAND        runs a command there, as a person who is logged in
#   cut_cable node3         its network is gone
#
# The container is a set of namespaces whose first process is the test script: when that ends, or is killed however hard,
# the kernel ends everything in it (sshd, launchers, daemons, ranks) and drops its networks and mounts. Names, addresses and
# ports are of the container alone, so any number of these tests may run at the same time. $W is a folder in memory that all
# hosts share, as a network file system would be.

skip() {
  echo "skipped: $*" >&2
  exit 77
}

# Root and namespaces are asked for here and nowhere else.
enter() {
  if [ -z "${ANYACCEL_TEST_CONTAINER:-}" ]; then
    [ "$(id -u)" = 0 ] || skip "namespaces that serve as hosts need root"
    for program in unshare nsenter setpriv ip; do
      command -v $program >/dev/null || skip "there is no $program (Debian: util-linux, iproute2)"
    done
    while [ "$1" != -- ]; do
      PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null || skip "there is no $1; tests/multi_host/packages.txt names its package"
      shift
    done
    shift
    unshare --net --uts --mount --ipc --pid --fork --kill-child --mount-proc true 2>/dev/null ||
      skip "this machine does not let root make namespaces"
    # unshare ends with this script, killed or not, and with it the container.
    ANYACCEL_TEST_CONTAINER=1 setpriv --pdeathsig KILL unshare --net --uts --mount --ipc --pid --fork --kill-child \
      --mount-proc sh "$0" "$@" &
    # shellcheck disable=SC2064
    trap "kill -KILL $! 2>/dev/null; exit 143" TERM INT HUP
    code=0
    wait $! || code=$?
    exit $code
  fi
  while [ "$1" != -- ]; do shift; done
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  unset LD_PRELOAD DS_ACCELERATOR MPICC OMP_NUM_THREADS TMPDIR
  mount -t tmpfs tmpfs /run
  W=/run/test
  mkdir -p $W/tmp $W/cache /run/sshd
  ip link set lo up
}

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# mpich_works [on NODE]: whether two ranks of any program are one world under MPICH's own mpirun. Under that of Ubuntu 24.04 they
# are two worlds; anything else fails the test. Call it when /etc/hosts is the container's.
mpich_works() {
  cat >$W/plain.c <<'END'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int size = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  printf("%d\n", size);
  MPI_Finalize();
  return 0;
}
END
  mpicc.mpich $W/plain.c -o $W/plain || fail "mpicc.mpich does not compile a plain program of MPI"
  "$@" timeout -k 5 60 mpirun.mpich -n 2 $W/plain >$W/sizes 2>$W/err </dev/null ||
    fail "mpirun.mpich cannot run a plain program (exit code $?): $(cat $W/sizes $W/err)"
  case $(tr '\n' ' ' <$W/sizes) in
    "2 2 ") ;;
    "1 1 ") return 1 ;;
    *) fail "two ranks under mpirun.mpich are in worlds of these sizes: $(cat $W/sizes $W/err)" ;;
  esac
}

# Replaces a file of the machine, inside the container only.
replace() {
  [ -e "$2" ] || return 0
  mount --bind "$1" "$2"
}

hosts_up() {
  hosts=$1
  home=$(getent passwd root | cut -d: -f6)
  ssh-keygen -q -t ed25519 -N '' -f $W/key
  ssh-keygen -q -t ed25519 -N '' -f $W/host_key
  echo "127.0.0.1 localhost" >$W/hosts
  for i in $(seq "$hosts"); do
    echo "10.77.0.$i node$i" >>$W/hosts
    echo "node$i,10.77.0.$i $(cut -d' ' -f1,2 $W/host_key.pub)" >>$W/known_hosts
  done
  printf '%s\n' 'Host *' "  IdentityFile $W/key" "  UserKnownHostsFile $W/known_hosts" '  StrictHostKeyChecking yes' \
    '  BatchMode yes' '  LogLevel ERROR' >$W/ssh_config
  cat >$W/sshd_config <<END
HostKey $W/host_key
AuthorizedKeysFile $W/key.pub
PermitRootLogin yes
PubkeyAuthentication yes
PasswordAuthentication no
UsePAM no
StrictModes no
MaxStartups 100
SetEnv TMPDIR=$W/tmp ANYACCEL_CACHE_DIR=$W/cache
PidFile none
END
  # A root without a password may be locked, for sshd.
  sed 's/^root:[^:]*:/root:*:/' /etc/shadow >$W/shadow
  chmod 600 $W/shadow
  replace $W/hosts /etc/hosts
  replace $W/ssh_config /etc/ssh/ssh_config
  replace $W/shadow /etc/shadow
  [ ! -d "$home/.ssh" ] || mount -t tmpfs tmpfs "$home/.ssh"

  ip link add switch type bridge
  ip link set switch up
  for i in $(seq "$hosts"); do
    # Its first process is sshd, and everything on the host ends with that.
    unshare --net --uts --mount --ipc --pid --fork --kill-child --mount-proc sh -c "
      hostname node$i
      mount -t tmpfs -o mode=1777 tmpfs /dev/shm
      ip link set lo up
      while ! ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
      ip address add 10.77.0.$i/24 dev eth0
      ip link set eth0 up
      exec \$(command -v sshd) -D -e -f $W/sshd_config
    " >$W/sshd$i.log 2>&1 &
    while ! first=$(cat /proc/$!/task/$!/children 2>/dev/null) || [ -z "$first" ]; do sleep 0.02; done
    first=${first%% *}
    echo "$first" >$W/node$i.process
    # The namespace is its own once its host name is.
    while [ "$(nsenter -t "$first" -u hostname)" != node$i ]; do sleep 0.02; done
    ip link add cable$i type veth peer name eth0 netns "$first"
    ip link set cable$i master switch up
  done
  for i in $(seq "$hosts"); do
    tries=0
    until on node1 ssh node$i true 2>$W/ssh.log; do
      tries=$((tries + 1))
      [ $tries -lt 200 ] || fail "node1 cannot log in to node$i: $(cat $W/ssh.log $W/sshd$i.log)"
      sleep 0.05
    done
  done
}

on() {
  node=$1
  shift
  nsenter -t "$(cat "$W/$node.process")" --net --uts --mount --ipc --pid \
    env -i HOME="$home" USER=root SHELL=/bin/sh PATH="$PATH" TMPDIR=$W/tmp ANYACCEL_CACHE_DIR=$W/cache "$@"
}

cut_cable() { ip link set "cable${1#node}" down; }
