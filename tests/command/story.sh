# The bundled model writes a story of at least 60 words, the same one every time and on every accelerator, and the command says
# where it ran. The fourth argument is the number of tokens to write; less than the whole story is enough on a slow accelerator.
anyaccel=$1
model=$2/models/stories
tokens=${4:-}
fail() { echo "FAILED: $1"; exit 1; }
out=$(mktemp); err=$(mktemp)
trap 'rm -f "$out" "$err"' EXIT
story() { "$anyaccel" generate --model "$model" --prompt "Once upon a time" ${tokens:+--max-new-tokens $tokens} >"$out" 2>"$err"; }

story || fail "$(cat "$err")"
words=$(wc -w <"$out")
[ "$words" -ge $((tokens ? tokens / 2 : 60)) ] || fail "the story has $words words: $(cat "$out")"
grep -q "${DS_ACCELERATOR:-cpu}" "$err" || fail "the accelerator is not named: $(cat "$err")"
grep -q "tokens" "$err" || fail "no token rate: $(cat "$err")"
first=$(cat "$out")
story
[ "$first" = "$(cat "$out")" ] || fail "the second story differs"
DS_ACCELERATOR=cpu story || fail "$(cat "$err")"
[ "$first" = "$(cat "$out")" ] || fail "the CPU's story differs: $(cat "$out")"
# Layers change nothing but what they check and log.
ANYACCEL_LAYERS=validate story || fail "$(cat "$err")"
[ "$first" = "$(cat "$out")" ] || fail "the story differs under the validate layer"
# A trace that a viewer can open.
ANYACCEL_TRACE=$err "$anyaccel" generate --model "$model" --prompt "Once" --max-new-tokens 4 >/dev/null 2>&1
head -c 1 "$err" | grep -q '\[' || fail "no trace was written"
echo "story: ok, $words words"
