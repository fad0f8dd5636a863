#!/bin/sh
# Intel MPI's mpirun, of the virtual environment $4, and ssh: two ranks on each of three hosts. Its compiler command
# needs I_MPI_ROOT on every host, which is not set here, so that the ranks talk over Gloo.
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/job.sh"
[ -x "$4/bin/mpiexec.hydra" ] || skip "$4 has no bin/mpiexec.hydra: it is made by tools/install_python_packages"
enter ssh sshd ssh-keygen -- "$@"
anyaccel=$1 source=$2 ranks=$3
PATH=$4/bin:$PATH
hosts_up 3
six_ranks impi "$ranks" gloo
same_text impi
echo "impi: ok"
