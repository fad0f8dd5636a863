# generate --check-tensors: a sound model passes and needs no prompt; damage and values too large for the dtype are named, with
# exit code 1 and no text.
anyaccel=$1
fail() { echo "FAILED: $1"; cat "$work/out" "$work/err"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DS_ACCELERATOR=cpu
cp -r "$2/models/stories" "$work/model"
weights=$work/model/model.safetensors

# check EXPECTED_CODE OPTIONS...
check() {
  expected=$1; shift
  "$anyaccel" generate --model "$work/model" --check-tensors "$@" >"$work/out" 2>"$work/err"
  code=$?
  [ $code = "$expected" ] || fail "$*: exit code $code, expected $expected"
}
says() { grep -qF -- "$1" "$work/$2" || fail "no '$1' on $2"; }

check 0
says "checked 56 tensors" out
says ": 0 damaged" out
check 0 --prompt "Once upon a time" --greedy --max-new-tokens 8 --quiet
says ", there was" out

# The last value of the last tensor becomes a NaN: bf16 with all bits set.
size=$(stat -c %s "$weights")
printf '\377\377' | dd of="$weights" bs=1 seek=$((size - 2)) conv=notrunc 2>/dev/null
check 1
says "damaged: " out
says "1 not a number; the first at [" out
says "$weights" out
says "anyaccel: error: $work/model: 1 tensor is damaged" err
check 1 --json
says '"nan": 1' out
says '"damaged": true' out
says '"error": {' out
[ "$(grep -c '^{' "$work/out")" = 1 ] || fail "--json printed more than one object"
check 1 --prompt "Once upon a time" --quiet
[ ! -s "$work/out" ] || fail "text from a damaged model"
says "1 not a number" err

# 2^17, which bf16 holds and fp16 does not, at the end of the tensor before it (a matrix; the last one has 192 values).
cp "$2/models/stories/model.safetensors" "$weights"
printf '\000\110' | dd of="$weights" bs=1 seek=$((size - 2 * 192 - 2)) conv=notrunc 2>/dev/null
check 0 --dtype bf16
check 1 --dtype fp16
says "1 too large for float16 (up to 131072)" out
says "bf16 and fp32 hold these values" out
echo ok
