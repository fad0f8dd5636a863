# Settings of generation on the command line: warnings about fields of generation_config.json on standard error and in --json,
# bad words, biases, penalties, and what is refused.
anyaccel=$1
model=$2/models/stories
fail() { echo "FAILED: $1"; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$model"/*.json "$folder"
ln -s "$model/model.safetensors" "$folder/model.safetensors"
cat >"$folder/generation_config.json" <<'JSON'
{"bos_token_id": 1, "num_beams": 3, "chat_format": "chatml", "use_cache": true, "max_new_tokens": 5, "stop_strings": ["zebra"]}
JSON
generate() {
  "$anyaccel" generate --model "$folder" --prompt "Once upon a time" --greedy --dtype fp32 "$@" >"$folder/out" 2>"$folder/err"
}

generate || fail "$(cat "$folder/err")"
grep -q '^warning: .*generation_config.json: the field "num_beams" is ignored: ' "$folder/err" || fail "$(cat "$folder/err")"
grep -q '^warning: .*generation_config.json: the field "chat_format" is not known and is ignored' "$folder/err" ||
  fail "$(cat "$folder/err")"
[ "$(grep -c '^warning: ' "$folder/err")" = 2 ] || fail "other warnings: $(cat "$folder/err")"
generate --quiet || fail "$(cat "$folder/err")"
! grep -q "num_beams" "$folder/err" || fail "--quiet warns"
generate --json || fail "$(cat "$folder/err")"
python3 - "$folder/out" <<'PYTHON' || fail "--json: $(cat "$folder/out")"
import json, sys
result = json.load(open(sys.argv[1]))
assert len(result["warnings"]) == 2 and "num_beams" in result["warnings"][0], result["warnings"]
assert len(result["completions"][0]["token_ids"]) == 5  # max_new_tokens of the file
PYTHON

# The model's text has these words without the options, and does not have them with the options.
text() { generate --quiet --max-new-tokens 40 --ignore-eos "$@" || fail "$*: $(cat "$folder/err")"; cat "$folder/out"; }
plain=$(text)
word=$(echo "$plain" | tr -c 'A-Za-z\n' ' ' | awk '{ print $3 }')
text --bad-words "$word" | grep -qw "$word" && fail "--bad-words $word: $(cat "$folder/out")"
for option in "--frequency-penalty 1.5" "--presence-penalty 2" "--no-repeat-ngram-size 1" "--repetition-penalty 2"; do
  [ "$(text $option)" != "$plain" ] || fail "$option changes nothing"
done
[ "$(text --logit-bias 0=-inf --logit-bias 1=-50)" = "$plain" ] || fail "a bias of tokens that never come changes the text"
first=$(generate --json --max-new-tokens 1 && python3 -c "
import json, sys
print(json.load(open(sys.argv[1]))['completions'][0]['token_ids'][0])" "$folder/out")
[ "$(text --logit-bias "$first=-inf")" != "$plain" ] || fail "the first token is still there"

# Log-probabilities in --json: one for each token, the most likely first; penalties do not change them.
generate --json --max-new-tokens 4 --top-logprobs 2 --frequency-penalty 1.5 || fail "$(cat "$folder/err")"
python3 - "$folder/out" <<'PYTHON' || fail "--top-logprobs: $(cat "$folder/out")"
import json, math, sys
completion = json.load(open(sys.argv[1]))["completions"][0]
logprobs = completion["logprobs"]
assert [token["id"] for token in logprobs] == completion["token_ids"], logprobs
for token in logprobs:
    assert len(token["top"]) == 2 and isinstance(token["token"], str), token
    assert 0 >= token["top"][0]["logprob"] >= token["top"][1]["logprob"], token
    assert token["logprob"] <= token["top"][0]["logprob"], token
    assert sum(math.exp(entry["logprob"]) for entry in token["top"]) < 1 + 1e-5, token
PYTHON

# Typical sampling draws, and with a seed it draws the same.
draw() { "$anyaccel" generate --model "$folder" --prompt "Once upon a time" --dtype fp32 --quiet --max-new-tokens 30 --seed 3 "$@"; }
[ "$(draw --typical-p 0.6)" = "$(draw --typical-p 0.6)" ] || fail "--typical-p with a seed gives two texts"
[ "$(draw --typical-p 0.6 --temperature 1.5)" != "$(draw --temperature 1.5)" ] || fail "--typical-p changes nothing"

refused() {  # text, arguments...
  part=$1
  shift
  "$anyaccel" generate --model "$folder" --prompt x "$@" >"$folder/out" 2>"$folder/err"
  [ $? = 2 ] || fail "'$*' is not refused: $(cat "$folder/err")"
  grep -qF -- "$part" "$folder/err" || fail "'$*' does not say '$part': $(cat "$folder/err")"
}
refused "--logit-bias is '5'; expected ID=VALUE" --logit-bias 5
refused "--logit-bias" --logit-bias x=5
refused "--logit-bias" --logit-bias 5=much
refused "--min-p" --min-p 1.5
refused "--presence-penalty" --presence-penalty 3
refused "--frequency-penalty" --frequency-penalty -3
refused "--bad-words is empty" --bad-words ""
refused "--min-new-tokens" --min-new-tokens -1
refused "cannot go with" --greedy --min-p 0.1
refused "cannot go with" --greedy --typical-p 0.1
refused "--typical-p" --typical-p 0
refused "--top-logprobs" --top-logprobs 101 --json
refused "--top-logprobs is part of the output of --json" --top-logprobs 3
# Answers in a grammar and under a schema, and files that cannot be used.
printf 'root ::= "- " [a-z]{2} "\\n" "end"\n' >"$folder/list.gbnf"
[ "$(text --grammar "$folder/list.gbnf" | head -c 2)" = "- " ] || fail "--grammar: $(cat "$folder/out")"
text --grammar "$folder/list.gbnf" | tail -n 1 | grep -qx end || fail "--grammar: $(cat "$folder/out")"
echo '{"type": "array", "items": {"enum": ["a", 2]}, "minItems": 2, "maxItems": 3}' >"$folder/schema.json"
text --json-schema "$folder/schema.json" | python3 -c '
import json, sys
value = json.load(sys.stdin)
assert 2 <= len(value) <= 3 and set(value) <= {"a", 2}, value' || fail "--json-schema: $(cat "$folder/out")"
echo 'root ::= root "a"' >"$folder/left.gbnf"
generate --grammar "$folder/left.gbnf" && fail "left recursion is accepted"
grep -q "left recursion" "$folder/err" || fail "$(cat "$folder/err")"
refused "give one of them" --grammar "$folder/list.gbnf" --json-schema "$folder/schema.json"
generate --grammar "$folder/missing.gbnf" && fail "a missing grammar is accepted"
grep -q "missing.gbnf" "$folder/err" || fail "$(cat "$folder/err")"
# Drafts change nothing but the number of steps.
drafted() { text --deterministic --json "$@" >/dev/null; python3 -c '
import json, sys
result = json.load(open(sys.argv[1]))
timings = result["timings"]
print(result["completions"][0]["token_ids"], timings["draft_tokens"] > 0, timings["accepted_tokens"] > 20)' "$folder/out"; }
alone=$(drafted | sed "s/ False False//")
[ "$(drafted --draft "$folder" --draft-tokens 6)" = "$alone True True" ] || fail "--draft: $(cat "$folder/out")"
[ "$(drafted --draft-ngrams 2 | sed "s/ True [TF].*//")" = "$alone" ] || fail "--draft-ngrams: $(cat "$folder/out")"
refused "give one of them" --draft "$folder" --draft-ngrams 2
refused "--draft-tokens is about" --draft-tokens 3
refused "--draft-ngrams" --draft-ngrams 0
generate --draft "$2/tests/data/models/qwen3" && fail "a draft without a tokenizer is accepted"
mkdir "$folder/other"
cp "$folder"/*.json "$folder/other"
ln -s "$model/model.safetensors" "$folder/other/model.safetensors"
python3 - "$folder/other/tokenizer.json" <<'PYTHON'
import json, sys
tokenizer = json.load(open(sys.argv[1]))
vocabulary = tokenizer["model"]["vocab"]
names = sorted(vocabulary, key=vocabulary.get)
first, second = [name for name in names if len(name) == 1][:2]
vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
json.dump(tokenizer, open(sys.argv[1], "w"))
PYTHON
generate --draft "$folder/other" && fail "a draft with other tokens is accepted"
grep -q "the draft model's tokens differ from the model's" "$folder/err" || fail "$(cat "$folder/err")"
# Beams: all answers with their scores, the best one as the text.
generate --json --beams 3 --length-penalty 0.5 --early-stopping never --max-new-tokens 6 || fail "$(cat "$folder/err")"
python3 - "$folder/out" <<'PYTHON' || fail "--beams: $(cat "$folder/out")"
import json, sys
completion = json.load(open(sys.argv[1]))["completions"][0]
beams = completion["beams"]
scores = [beam["score"] for beam in beams]
assert len(beams) == 3 and scores == sorted(scores, reverse=True) and scores[0] < 0, scores
assert beams[0]["text"] == completion["text"] and beams[0]["token_ids"] == completion["token_ids"], completion
assert len({tuple(beam["token_ids"]) for beam in beams}) == 3, beams
PYTHON
[ "$(text --beams 1)" = "$plain" ] || fail "--beams 1: $(cat "$folder/out")"
refused "are about --beams N" --length-penalty 2
refused "expected yes, no or never" --beams 2 --early-stopping soon
refused "leave one out" --beams 2 --draft-ngrams 2
refused "leave one out" --beams 2 --prompt-cache "$folder/prompt.cache"
"$anyaccel" generate --model "$folder" --prompt a --beams 2 --top-p 0.5 >"$folder/out" 2>"$folder/err" &&
  fail "beams that are drawn are accepted"
grep -q "searches for the most likely answer" "$folder/err" || fail "$(cat "$folder/err")"
generate --beams 2 --grammar "$folder/list.gbnf" && fail "beams in a grammar are accepted"
grep -q "a grammar too, which it cannot go with" "$folder/err" || fail "$(cat "$folder/err")"
# A prompt that is kept in a file gives the same text, and is not run again.
whole=$(text --deterministic)
for run in first second; do
  [ "$(text --deterministic --prompt-cache "$folder/prompt.cache")" = "$whole" ] || fail "--prompt-cache, $run run"
done
generate --json --prompt-cache "$folder/prompt.cache" || fail "$(cat "$folder/err")"
grep -Eq '"prompt_tokens": ?1[,}]' "$folder/out" || fail "the prompt was run again: $(cat "$folder/out")"
refused "leave one out" --prompt-cache "$folder/prompt.cache" --draft-ngrams 2
refused "is for one prompt" --prompt-cache "$folder/prompt.cache" --prompt b
echo notes >"$folder/notes"
generate --prompt-cache "$folder/notes" && fail "a file of another kind is accepted"
grep -q "this is not a prompt cache of anyaccel" "$folder/err" || fail "$(cat "$folder/err")"
[ "$(cat "$folder/notes")" = notes ] || fail "a file of another kind was written to"
[ ! -s "$folder/out" ] || fail "the prompt is printed before an error: $(cat "$folder/out")"
echo "generation_settings: ok"
