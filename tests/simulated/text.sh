# The greedy text is the CPU's: that of one process, and that of two ranks, which are processes with a device each and exchange
# tensors by the accelerator's own communicator, where it has one, with random delays before each command. `info` names the
# accelerator.
. "$(dirname "$0")/common.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_SIZE MASTER_ADDR MASTER_PORT
export SIM_DEVICES=2 SIM_STRICT=abort
generate="$anyaccel generate --model $model --prompt Once --dtype fp32 --greedy --ignore-eos --max-new-tokens 6"
# The commands write no report: two ranks would write one file.
unset SIM_REPORT
DS_ACCELERATOR=cpu $generate >"$folder/cpu" 2>"$folder/err" || fail "on the CPU: $(cat "$folder/err")"
[ -s "$folder/cpu" ] || fail "the CPU writes nothing"
"$anyaccel" info >"$folder/info" 2>&1 || fail "info: $(cat "$folder/info")"
grep -q "^accelerator: $accelerator " "$folder/info" || fail "info does not name $accelerator: $(cat "$folder/info")"
$generate >"$folder/one" 2>"$folder/err" || fail "one process: $(cat "$folder/err")"
cmp -s "$folder/cpu" "$folder/one" || fail "another text than the CPU's: $(cat "$folder/cpu" "$folder/one")"
export ANYACCEL_COMM_BACKEND=$communicator # that one or an error
[ -n "$communicator" ] || unset ANYACCEL_COMM_BACKEND
SIM_REPORT=$folder/rank-%p SIM_SEED=1 SIM_DELAY_US=20 ANYACCEL_LOG=debug timeout 600 "$anyaccel" launch --num_accelerators 2 $generate >"$folder/two" 2>"$folder/err" ||
  fail "two ranks: $(cat "$folder/err")"
grep -q "LOCAL_RANK 1 uses $accelerator:$second" "$folder/err" || fail "rank 1 is not on $accelerator:$second: $(cat "$folder/err")"
cmp -s "$folder/cpu" "$folder/two" || fail "two ranks write another text: $(cat "$folder/cpu" "$folder/two")"
for report in "$folder"/rank-*; do check_report "two ranks"; done
summed=$(grep -lE "\"${all_reduce:-none}\": [1-9]" "$folder"/rank-* | wc -l)
[ "$summed" = "$([ -z "$all_reduce" ] && echo 0 || echo 2)" ] || fail "$summed processes have called $all_reduce"
unset ANYACCEL_COMM_BACKEND
# As many ranks as there are devices. A child of the launcher counts them: what it opens is free again for the ranks.
SIM_DEVICES=1 timeout 100 "$anyaccel" launch $generate >"$folder/launched" 2>"$folder/err" ||
  fail "launched without a number: $(cat "$folder/err")"
cmp -s "$folder/cpu" "$folder/launched" || fail "launched, another text: $(cat "$folder/cpu" "$folder/launched")"
echo "text: ok"
