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

# ssh reaches a host without anyaccel.
mkdir -p $W/empty
on node3 mount --bind $W/empty "$(dirname "$anyaccel")"
launch pdsh --join_timeout 60 "$ranks" "" && fail "a host without anyaccel: $(said)"
on node3 umount "$(dirname "$anyaccel")"
grep -q "ssh to node3 exited with code 127; the job is ended" $W/err || fail "$(said)"
node3_lacks_ranks pdsh
grep -q "ssh to node3 exited with code 2; the job is ended" $W/err || fail "$(said)"

# The same path holds another model there.
mkdir $W/other
cp "$source"/models/stories/* $W/other
echo >>$W/other/config.json
on node3 mount --bind $W/other "$source/models/stories"
# shellcheck disable=SC2086
launch pdsh "$anyaccel" $generate && fail "a text of two models: $(said)"
grep -q "rank 4 on node3 loaded another model than rank 0 on node1; what differs: configuration;" $W/err || fail "$(said)"
on node3 umount "$source/models/stories"
backend=gloo
cut_off pdsh
echo "pdsh: ok"
