# Weights that are cut short or overwritten while text is generated end the command with exit code 1 and one line that names
# the file; with --no-mmap they may change.
anyaccel=$1
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DS_ACCELERATOR=cpu

# generate CHANGE OPTIONS...: starts it, runs CHANGE once there is some text, and leaves its exit code in $code.
generate() {
  change=$1; shift
  rm -rf "$work/model"
  cp -r "$source/models/stories" "$work/model"
  touch -d '1 hour ago' "$work/model/model.safetensors"  # file times have steps of some milliseconds
  : >"$work/out"
  "$anyaccel" generate --model "$work/model" --prompt "Once upon a time" --quiet --greedy --ignore-eos "$@" \
    >"$work/out" 2>"$work/err" &
  child=$!
  while [ ! -s "$work/out" ] && kill -0 $child 2>/dev/null; do sleep 0.01; done
  eval "$change"
  wait $child
  code=$?
}
source=$2
weights=$work/model/model.safetensors
cut='truncate -s 4096 "$weights"'
overwrite='printf other | dd of="$weights" bs=1 seek=100000 conv=notrunc 2>/dev/null'

generate "$cut" --max-new-tokens 60000 --context 61000
[ $code = 1 ] || fail "cut short: exit code $code: $(cat "$work/err")"
grep -q "model.safetensors: byte [0-9]* is gone: the file was cut short\|model.safetensors: was written to" "$work/err" ||
  fail "cut short: $(cat "$work/err")"

generate "$overwrite" --max-new-tokens 60000 --context 61000
[ $code = 1 ] || fail "overwritten: exit code $code: $(cat "$work/err")"
grep -q "model.safetensors: was written to while it was in use" "$work/err" || fail "overwritten: $(cat "$work/err")"

for change in "$cut" "$overwrite"; do
  generate "$change" --max-new-tokens 400 --context 500 --no-mmap
  [ $code = 0 ] || fail "--no-mmap: exit code $code: $(cat "$work/err")"
done
echo ok
