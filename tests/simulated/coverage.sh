# Every function of the vendor's that the driver binds ($bound, set by tests/ACCELERATOR/simulated.sh) is called by the
# conformance suite, by a story, or by what else the accelerator's file runs (more_runs): one that is not would be untested.
# $untouched are those that other tests call; $left_out is a filter of the suite's cases, where some cannot run. Where
# $in_one_process is set, all cases can run in one process, must pass, and break no rule of the runtime.
. "$(dirname "$0")/common.sh"
run || fail "the story: $(cat "$folder/err")"
cp "$report" "$folder/story.json"
rm -f "$report"
${in_one_process:+env SIM_STRICT=abort} env SIM_DEVICES=2 SIM_MEMORY=64m "$anyaccel" conformance --in-process --accelerator "$accelerator" \
  ${left_out:+--filter "$left_out"} >"$folder/out" 2>&1
code=$?
[ -z "$in_one_process" ] || [ $code = 0 ] || fail "the conformance suite: exit code $code: $(grep -A3 "^  fail " "$folder/out")"
[ -s "$report" ] || fail "the simulator wrote no report: $(cat "$folder/out")"
cp "$report" "$folder/conformance.json"
more_runs
[ "$(echo "$bound" | wc -l)" -gt 20 ] || fail "no list of bound functions"
missing=
for name in $bound; do
  case " $untouched " in *" $name "*) continue ;; esac
  grep -qE "\"$name(_v[0-9]+)?\": *[1-9]" "$folder"/*.json || missing="$missing $name"
done
[ -z "$missing" ] || fail "never called:$missing"
echo "coverage: ok, $(echo "$bound" | wc -l) functions"
