# `anyaccel tokenize`: ids and tokens of a text, the text of ids, JSON, the file's other tokenizers, and wrong input.
anyaccel=$1
source=$2
stories=$source/models/stories
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $1"; exit 1; }
tokenize() { "$anyaccel" tokenize --model "$@"; }

printf 'Once upon a time, "x"\n' >"$work/text"
tokenize "$stories" "$work/text" >"$work/out" || fail "tokenize failed"
[ "$(sed -n 1p "$work/out")" = '      0  "<|begin_of_text|>"' ] || fail "the first token is not the beginning: $(sed -n 1p "$work/out")"
grep -qxF '    285  "Ġ\""' "$work/out" || fail "the quote is missing: $(cat "$work/out")"
tokenize "$stories" --no-special "$work/text" | head -n 1 | grep -q '"Once"' || fail "--no-special added a token"

# Ids lead back to the text, byte for byte, also through a pipe and with commas.
tokenize "$stories" --ids "$work/text" >"$work/ids" || fail "--ids failed"
[ "$(wc -l <"$work/ids")" -eq 1 ] || fail "--ids prints more than a line"
tokenize "$stories" --decode --no-special <"$work/ids" | cmp -s - "$work/text" || fail "the ids lead to another text"
tr ' ' , <"$work/ids" | tokenize "$stories" --decode --no-special - | cmp -s - "$work/text" || fail "commas changed the text"
tokenize "$stories" --decode "$work/ids" | grep -q '^<|begin_of_text|>Once' || fail "special tokens are missing from the text"
tokenize "$stories" --json "$work/text" | tr -d ' \n' | grep -q '{"ids":\[0,504,' || fail "--json lacks the ids"

# A tokenizer's files are enough.
tokenize "$source/tests/data/tokenizers/wordpiece" "$work/text" | grep -q '"\[CLS\]"' || fail "the WordPiece tokenizer failed"

expect() {  # exit code, text of the error, arguments...
  code=$1 text=$2
  shift 2
  "$anyaccel" tokenize "$@" >"$work/out" 2>"$work/err"
  got=$?
  [ $got -eq "$code" ] || fail "$*: exit code $got instead of $code"
  grep -qF -- "$text" "$work/err" || fail "$*: '$text' is not in: $(cat "$work/err")"
}
echo 5 x >"$work/bad"
expect 2 "expected a whole number from 0 to 2047" --model "$stories" --decode "$work/bad"
echo 2048 >"$work/bad"
expect 2 "expected a whole number from 0 to 2047" --model "$stories" --decode "$work/bad"
expect 2 "--ids cannot go with --decode" --model "$stories" --decode --ids "$work/ids"
expect 1 "has no tokenizer" --model "$work" "$work/text"
expect 1 "$work/none" --model "$stories" "$work/none"
expect 2 "--model" "$work/text"
echo "tokenize: ok"
