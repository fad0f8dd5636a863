#!/bin/sh
# MPICH's mpirun and ssh: two ranks on each of three hosts.
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/job.sh"
enter ssh sshd ssh-keygen mpirun.mpich mpicc.mpich -- "$@"
anyaccel=$1 source=$2 ranks=$3
hosts_up 3
mpich_works on node1 || skip "mpirun.mpich starts any program as worlds of one rank"
six_ranks mpich "$ranks" mpi
same_text mpich
node3_lacks_ranks mpich
grep -q "node3: .*is not a program that can be run: No such file or directory; the job is ended" $W/err || fail "$(said)"
echo "mpich: ok"
