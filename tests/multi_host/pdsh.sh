#!/bin/sh
# pdsh and ssh: two ranks on each of three hosts, also with more ranks than cores; a host that is cut off.
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/job.sh"
enter ssh sshd ssh-keygen pdsh -- "$@"
anyaccel=$1 source=$2 ranks=$3
hosts_up 3
six_ranks pdsh "$ranks" ""
same_text pdsh
backend=gloo
cut_off pdsh
echo "pdsh: ok"
