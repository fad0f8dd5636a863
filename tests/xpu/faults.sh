# Every fault that the simulated driver injects, and that cannot be survived, ends in one clear error, an exit code of 1, the text that there was, and no
# leak and no broken rule.
. "$(dirname "$0")/simulated.sh"

run || fail "without a fault: $(cat "$folder/err")"
check_report "without a fault"
whole=$(cat "$folder/out")

# $1: the fault; $2: an expression that the error must match.
expect_error() {
  SIM_FAULT=$1 run
  code=$?
  [ $code = 1 ] || fail "$1: exit code $code: $(cat "$folder/err")"
  [ "$(grep -c 'anyaccel: error:' "$folder/err")" = 1 ] || fail "$1: not one error: $(cat "$folder/err")"
  grep 'anyaccel: error:' "$folder/err" | grep -qE "$2" || fail "$1: expected '$2' in: $(cat "$folder/err")"
  case $whole in
    "$(cat "$folder/out")"*) ;;
    *) fail "$1: the text is not the beginning of the story: $(cat "$folder/out")" ;;
  esac
  check_report "$1"
}
expect_error 'init' 'xpu'
for symbol in zeKernelCreate zeMemAllocDevice zeCommandListCreateImmediate zeEventPoolCreate zeModuleCreate; do
  expect_error "hide:$symbol" "$symbol"
done
# One failed allocation is survived: the allocator gives back what it keeps and tries again.
for call in 1 2 5; do
  SIM_FAULT=oom:call=$call run || fail "oom:call=$call: $(cat "$folder/err")"
  [ "$whole" = "$(cat "$folder/out")" ] || fail "oom:call=$call: another text"
  check_report "oom:call=$call"
done
expect_error 'oom:bytes=1m' 'memory'
expect_error 'oom:bytes=4m' 'model .* needs .* would fit'
for command in 1 30 200 400; do
  expect_error "device_lost:command=$command" 'lost'
  expect_error "sticky:command=$command" 'xpu'
done
SIM_FAULT=no_peer run || fail "no_peer: $(cat "$folder/err")"
check_report no_peer
echo "faults: ok"
