#!/bin/sh
# Open MPI's mpirun and ssh: two ranks on each of three hosts, also with more ranks than cores; a host that is cut off.
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/job.sh"
enter ssh sshd ssh-keygen mpirun.openmpi mpicc.openmpi -- "$@"
anyaccel=$1 source=$2 ranks=$3
hosts_up 3
as_root="--launcher_args --allow-run-as-root"
# shellcheck disable=SC2086
six_ranks openmpi $as_root "$ranks" mpi
# shellcheck disable=SC2086
same_text openmpi $as_root
# shellcheck disable=SC2086
node3_lacks_ranks openmpi $as_root
backend=mpi
# shellcheck disable=SC2086
cut_off openmpi $as_root
echo "openmpi: ok"
