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

# node3_lacks FOLDER TEXT...: a host that cannot start its ranks ends the job at once, and not when the others have waited
# for the time limit.
node3_lacks() {
  mkdir -p $W/empty
  on node3 mount --bind $W/empty "$1"
  begin=$(date +%s)
  code=0
  launch pdsh "$ranks" "" || code=$?
  seconds=$(($(date +%s) - begin))
  on node3 umount "$1"
  shift
  [ $code -ne 0 ] && [ $seconds -le 30 ] || fail "exit code $code after $seconds s: $(said)"
  for text in "$@"; do grep -q "$text" $W/err || fail "no '$text': $(said)"; done
  left_behind node1 "multi_host_ranks|anyaccel launch|pdsh"
  left_behind node2 "multi_host_ranks|anyaccel launch"
}
node3_lacks "$(dirname "$anyaccel")" "anyaccel: No such file" "ssh to node3 exited with code 127; the job is ended"
node3_lacks "$(dirname "$ranks")" "multi_host_ranks. is not a program" "ssh to node3 exited with code 2; the job is ended"

# The same path holds another model there.
mkdir $W/other
cp "$source"/models/stories/* $W/other
echo >>$W/other/config.json
on node3 mount --bind $W/other "$source/models/stories"
# shellcheck disable=SC2086
launch pdsh "$anyaccel" $generate && fail "a text of two models: $(said)"
grep -q "the files of rank 4 on node3 differ from those of rank 0 on node1" $W/err || fail "$(said)"
on node3 umount "$source/models/stories"
backend=gloo
cut_off pdsh
echo "pdsh: ok"
