# Every Level Zero function that the driver binds is called by the conformance suite or by a story: one that is not would be
# untested.
. "$(dirname "$0")/simulated.sh"
run || fail "the story: $(cat "$folder/err")"
cp "$report" "$folder/story.json"
rm -f "$report"
SIM_DEVICES=2 "$anyaccel" conformance --accelerator xpu >"$folder/out" 2>&1
[ -s "$report" ] || fail "the simulator wrote no report: $(cat "$folder/out")"
bound=$(sed -n '/define ANYACCEL_LEVEL_ZERO_FUNCTIONS/,/OPTIONAL_FUNCTIONS/p' "$2/src/accelerators/xpu/level_zero/level_zero_api.h" |
  grep -oE 'X\(ze[A-Za-z]+' | cut -c3-)
[ "$(echo "$bound" | wc -l)" -gt 30 ] || fail "no list of functions in level_zero_api.h"
missing=
for name in $bound; do
  grep -qE "\"$name\": *[1-9]" "$report" "$folder/story.json" || missing="$missing $name"
done
[ -z "$missing" ] || fail "never called:$missing"
echo "coverage: ok, $(echo "$bound" | wc -l) functions"
