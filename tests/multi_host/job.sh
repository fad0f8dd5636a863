# The steps that the tests of this folder run with a launcher, on the hosts of hosts.sh. $anyaccel, $source and $ranks
# are set.

# launch LAUNCHER [OPTIONS...] PROGRAM...: on node1, over all hosts; output in $W/out and $W/err, the exit code is the job's.
launch() {
  launcher=$1
  shift
  on node1 timeout -k 5 120 "$anyaccel" launch --hostfile $W/hostfile --launcher "$launcher" "$@" \
    >$W/out 2>$W/err </dev/null
}

said() { sed 's/^/  | /' $W/out $W/err; }

# six_ranks: two of each of three hosts, in their order, whatever the launcher.
six_ranks() {
  printf 'node%s slots=2\n' 1 2 3 >$W/hostfile
  launch "$@" || fail "$1: $(said)"
  grep -q "^6 ranks over [a-z+]* on node1 node1 node2 node2 node3 node3$" $W/out || fail "$1: $(said)"
}

# same_text LAUNCHER...: the greedy text of one model cut over all ranks is that of one process.
same_text() {
  generate="generate --model $source/models/stories --prompt Once --dtype fp32 --greedy --ignore-eos --max-new-tokens 40 --quiet"
  # shellcheck disable=SC2086
  [ -s $W/one ] || on node1 "$anyaccel" $generate >$W/one || fail "generate on one host"
  # shellcheck disable=SC2086
  launch "$@" "$anyaccel" $generate || fail "$1: generate: $(said)"
  cmp -s $W/one $W/out || fail "$1: another text than one process writes: $(said)"
}

# node3_lacks_ranks LAUNCHER...: a host that cannot start its ranks ends the job at once, and not when the others have waited
# for the time limit.
node3_lacks_ranks() {
  mkdir -p $W/empty
  on node3 mount --bind $W/empty "$(dirname "$ranks")"
  begin=$(date +%s)
  code=0
  launch "$@" "$ranks" "" || code=$?
  seconds=$(($(date +%s) - begin))
  on node3 umount "$(dirname "$ranks")"
  [ $code -ne 0 ] && [ $seconds -le 30 ] || fail "$1: exit code $code after $seconds s: $(said)"
  grep -q "multi_host_ranks. is not a program" $W/err || fail "$1: $(said)"
  left_behind node1 "multi_host_ranks|anyaccel launch|mpirun"
  left_behind node2 "multi_host_ranks|anyaccel launch"
}

# cut_off LAUNCHER...: a host that goes silent in the middle ends the job, by name, and everything that the launcher started.
cut_off() {
  launch "$@" "$ranks" "$backend" forever &
  waiting=$!
  until grep -q "^6 ranks" $W/out 2>/dev/null; do
    kill -0 $waiting 2>/dev/null || fail "$1: the job ended too early: $(said)"
    sleep 0.05
  done
  begin=$(date +%s)
  cut_cable node3
  code=0
  wait $waiting || code=$?
  seconds=$(($(date +%s) - begin))
  echo "$1: a host that went silent ended the job after $seconds s with exit code $code"
  [ $code -ne 0 ] && [ $code -ne 124 ] && [ $code -ne 137 ] || fail "$1: exit code $code: $(said)"
  grep -q node3 $W/err || fail "$1: the host is not named: $(said)"
  [ $seconds -le 20 ] || fail "$1: it took $seconds s"
  # Nothing is left on the hosts that can be reached, and the ranks of the other one have noticed too.
  left_behind node1 "multi_host_ranks|anyaccel launch|mpirun|pdsh|orted|ssh .*node"
  left_behind node2 "multi_host_ranks|anyaccel launch|orted"
  left_behind node3 "multi_host_ranks"
}

# left_behind NODE EXPRESSION: fails when processes whose command line matches do not end.
left_behind() {
  for _ in $(seq 150); do
    left=$(on "$1" ps -eo args= | grep -E "$2" | grep -v grep) || return 0
    sleep 0.1
  done
  fail "left on $1: $left"
}
