# Memory that is not there is an error that says what would fit, and not a promise that the kernel breaks later.
anyaccel=$1
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DS_ACCELERATOR=cpu

"$anyaccel" make-model --shape tiny --out "$work/model" --quiet || fail "make-model"
sed 's/"max_position_embeddings": 512/"max_position_embeddings": 2147483647/' "$work/model/config.json" >"$work/config.json"
mv "$work/config.json" "$work/model/config.json"

# The cache is as long as the answer may become; "a" ends it soon.
generate() {
  tokens=$1
  shift
  "$anyaccel" generate --model "$work/model" --prompt x --stop a --greedy --context 2000000000 --max-new-tokens $tokens "$@" \
    >"$work/out" 2>"$work/err"
}
generate 2000000000
code=$?
[ $code = 1 ] || fail "a cache for 2 billion tokens: exit code $code: $(cat "$work/err")"
grep -q "a cache for 1 sequence of 2000000000 tokens needs .* a context of about [0-9]* tokens would fit" "$work/err" ||
  fail "what would fit is not said: $(cat "$work/err")"
fits=$(sed -n 's/.*a context of about \([0-9]*\) tokens would fit.*/\1/p' "$work/err")
generate $((fits / 2)) || fail "half of $fits tokens, which would fit, do not: $(cat "$work/err")"
generate 2000000000 --json && fail "generated"
grep -q '"kind": "out_of_memory"' "$work/out" || fail "the error's kind: $(cat "$work/out")"

# A limit on addresses.
(ulimit -v 600000; generate 10000000)
code=$?
if grep -q "AddressSanitizer failed to allocate\|ThreadSanitizer" "$work/err"; then
  echo "skipped: a sanitizer's own memory does not fit under ulimit -v"
else
  [ $code = 1 ] || fail "under ulimit -v: exit code $code: $(cat "$work/err")"
  grep -q "the limit on addresses of this process (ulimit -v) has" "$work/err" || fail "under ulimit -v: $(cat "$work/err")"
fi

ANYACCEL_CPU_OVERCOMMIT=perhaps generate 2 && fail "ANYACCEL_CPU_OVERCOMMIT=perhaps"
grep -q 'ANYACCEL_CPU_OVERCOMMIT is "perhaps"; expected 1' "$work/err" || fail "$(cat "$work/err")"
echo "memory: ok"
