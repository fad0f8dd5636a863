#!/bin/sh
# pdsh and ssh: two ranks on each of three hosts, also with more ranks than cores; a host that is cut off.
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/job.sh"
enter ssh sshd ssh-keygen pdsh -- "$@"
anyaccel=$1 source=$2 ranks=$3
hosts_up 3
six_ranks pdsh "$ranks" ""
same_text pdsh
# One host, and not this one: its ranks run there.
echo "node2 slots=2" >$W/hostfile
launch pdsh "$ranks" "" || fail "one other host: $(said)"
grep -q "^2 ranks over [a-z+]* on node2 node2$" $W/out || fail "one other host: $(said)"
printf 'node%s slots=2\n' 1 2 3 >$W/hostfile
backend=gloo
cut_off pdsh
echo "pdsh: ok"
