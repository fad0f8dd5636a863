# The bundled model writes a story of at least 60 words, the same one every time and on every accelerator, and the command says
# where it ran.
anyaccel=$1
model=$2/models/stories
fail() { echo "FAILED: $1"; exit 1; }
out=$(mktemp); err=$(mktemp)
trap 'rm -f "$out" "$err"' EXIT

"$anyaccel" generate --model "$model" --prompt "Once upon a time" >"$out" 2>"$err" || fail "$(cat "$err")"
words=$(wc -w <"$out")
[ "$words" -ge 60 ] || fail "the story has $words words: $(cat "$out")"
grep -q "${DS_ACCELERATOR:-cpu}" "$err" || fail "the accelerator is not named: $(cat "$err")"
grep -q "tokens" "$err" || fail "no token rate: $(cat "$err")"
first=$(cat "$out")
"$anyaccel" generate --model "$model" --prompt "Once upon a time" >"$out" 2>/dev/null
[ "$first" = "$(cat "$out")" ] || fail "the second story differs"
DS_ACCELERATOR=cpu "$anyaccel" generate --model "$model" --prompt "Once upon a time" >"$out" 2>"$err" || fail "$(cat "$err")"
[ "$first" = "$(cat "$out")" ] || fail "the CPU's story differs: $(cat "$out")"
# Layers change nothing but what they check and log.
ANYACCEL_LAYERS=validate "$anyaccel" generate --model "$model" --prompt "Once upon a time" >"$out" 2>"$err" || fail "$(cat "$err")"
[ "$first" = "$(cat "$out")" ] || fail "the story differs under the validate layer"
# A trace that a viewer can open.
ANYACCEL_TRACE=$err "$anyaccel" generate --model "$model" --prompt "Once" --max-new-tokens 4 >/dev/null 2>&1
head -c 1 "$err" | grep -q '\[' || fail "no trace was written"
echo "story: ok, $words words"
