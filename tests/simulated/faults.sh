# Every fault that the simulated driver injects, and that cannot be survived, ends in one clear error, an exit code of 1, the
# text that there was, and no leak and no broken rule. Those that any driver can have are here, the others in
# tests/ACCELERATOR/faults.sh.
. "$(dirname "$0")/common.sh"

run || fail "without a fault: $(cat "$folder/err")"
check_report "without a fault"
whole=$(cat "$folder/out")

# $1: the fault; $2: as above.
expect_error() {
  SIM_FAULT=$1 run
  check_error "$1" "$2" $?
  check_report "$1"
}
# $1: a fault for which the driver may not even start the runtime, which then writes no report; $2: as above.
expect_unstarted() {
  SIM_FAULT=$1 run
  check_error "$1" "$2" $?
  [ ! -e "$report" ] || check_report "$1"
}
# $1: a fault that is survived.
expect_story() {
  SIM_FAULT=$1 run || fail "$1: $(cat "$folder/err")"
  [ "$whole" = "$(cat "$folder/out")" ] || fail "$1: another text: $(cat "$folder/out")"
  check_report "$1"
}

# $1: a fault that is survived, or ends in an error that matches $2.
expect_either() {
  if SIM_FAULT=$1 run; then
    [ "$whole" = "$(cat "$folder/out")" ] || fail "$1: another text: $(cat "$folder/out")"
  else
    check_error "$1" "$2" 1
  fi
  check_report "$1"
}

expect_unstarted 'init' "$accelerator"
# One failed allocation is survived: the allocator gives back what it keeps and tries again.
for call in $survived_allocations; do expect_story "oom:call=$call"; done
expect_error 'oom:bytes=1m' 'memory'
expect_error 'oom:bytes=2m' 'model .* needs .* room .* but it could not be loaded'
for command in $lost_commands; do
  expect_error "device_lost:command=$command" "$lost_error"
  expect_error "sticky:command=$command" "$sticky_error"
done
expect_story no_peer
. "$2/tests/$accelerator/faults.sh"
echo "faults: ok"
