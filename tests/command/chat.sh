# A conversation with `anyaccel chat`: the text that the template renders, the contents of the cache from turn to turn,
# saving and loading, Ctrl-C, and models and messages that it rejects.
anyaccel=$1
stories=$2/models/stories
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $1"; exit 1; }

# The bundled model continues stories, so its template is only the messages in a row; a name rejects them.
model=$folder/model
mkdir "$model"
cp "$stories"/*.json "$stories"/*.safetensors "$model"
printf '%s' "{{ bos_token }}{% for m in messages %}{% if m.content == 'no' %}{{ raise_exception('not this') }}{% endif %}{{ m.content }}{% endfor %}" \
  >"$model/chat_template.jinja"
chat() { "$anyaccel" chat --model "$model" --greedy --max-new-tokens 24 --dtype fp32 --quiet "$@"; }

# One turn is the text of generate.
first=$(printf 'Once upon a time\n' | chat) || fail "chat failed"
wanted=$("$anyaccel" generate --model "$model" --greedy --max-new-tokens 24 --dtype fp32 --quiet --prompt "Once upon a time") ||
  fail "generate failed"
[ "$first" = "$wanted" ] || fail "the answer is '$first', generate gives '$wanted'"

# The options that choose tokens are those of generate.
for option in "--bad-words garden" "--no-repeat-ngram-size 1" "--logit-bias 5=-inf" "--frequency-penalty 1.5"; do
  wanted=$("$anyaccel" generate --model "$model" --greedy --max-new-tokens 24 --dtype fp32 --quiet --prompt "Once upon a time" $option) ||
    fail "generate $option failed"
  [ "$(printf 'Once upon a time\n' | chat $option)" = "$wanted" ] || fail "chat $option differs from generate"
done

# A second turn, from the cache, is that of a conversation that is loaded and read anew.
printf 'Once upon a time\n/save %s/saved.json\n The cat\n/save %s/both.json\n/exit\nnot read\n' "$folder" "$folder" |
  chat >"$folder/two" || fail "two turns failed"
[ "$(sed -n 1p "$folder/two")" = "$(printf '%s\n' "$first" | sed -n 1p)" ] || fail "the first turn changed"
python=$(command -v python3) && "$python" - "$folder" <<'PYTHON'
import json, sys
folder = sys.argv[1]
saved = json.load(open(folder + "/saved.json"))
assert [m["role"] for m in saved] == ["user", "assistant"], saved
both = json.load(open(folder + "/both.json"))
assert both[:2] == saved and [m["role"] for m in both] == ["user", "assistant", "user", "assistant"], both
assert both[2]["content"] == " The cat", both
json.dump(both[:3], open(folder + "/open.json", "w"))
open(folder + "/answer", "w").write(both[3]["content"] + "\n")
PYTHON
if [ -f "$folder/open.json" ]; then
  chat --load "$folder/open.json" </dev/null >"$folder/again" || fail "--load failed"
  cmp -s "$folder/again" "$folder/answer" || fail "a cached turn differs from the same one read anew"
fi

# A name without a folder is a file of the current one.
(cd "$folder" && printf 'Once upon a time\n/save here.json\n/load here.json\n' | chat >/dev/null 2>"$folder/notes") && [ -s "$folder/here.json" ] ||
  fail "/save with a name alone: $(cat "$folder/notes")"

# What is no regular file is written to and stays; of a link the target is written.
mkfifo "$folder/pipe"
ln -s aim.json "$folder/link.json"
echo '[]' >"$folder/aim.json"
timeout 600 cat "$folder/pipe" >"$folder/from_pipe" &
reader=$!
printf 'Once upon a time\n/save %s/pipe\n/save %s/link.json\n' "$folder" "$folder" | chat >/dev/null || fail "/save to a pipe and a link"
[ -p "$folder/pipe" ] || fail "/save replaced a pipe"
wait $reader
cmp -s "$folder/from_pipe" "$folder/here.json" || fail "/save wrote to a pipe: $(cat "$folder/from_pipe")"
[ -L "$folder/link.json" ] && cmp -s "$folder/aim.json" "$folder/here.json" || fail "/save did not write where a link points to"

# Where answers cannot be written, no more messages are read.
if [ -c /dev/full ]; then
  printf 'Once upon a time\nAnd\nAnd\n' | "$anyaccel" chat --model "$model" --greedy --max-new-tokens 4 >/dev/full 2>"$folder/notes"
  [ $? = 1 ] && grep -q "writing to standard output failed" "$folder/notes" || fail "a full disk: $(cat "$folder/notes")"
  [ "$(grep -c "tokens read" "$folder/notes")" = 1 ] || fail "chat answers without an output: $(cat "$folder/notes")"
fi

# The tokens of the first turn are not read again: the second turn reads the message only.
printf 'Once upon a time there was a little girl who had a very big garden\nAnd\n' |
  "$anyaccel" chat --model "$model" --greedy --max-new-tokens 4 --dtype fp32 2>"$folder/notes" >/dev/null || fail "two turns failed"
reads=$(sed -n 's/.*(\(.*; \)\?\([0-9]*\) tokens read.*/\2/p' "$folder/notes" | tr '\n' ' ')
set -- $reads
[ "$#" -eq 2 ] && [ "$1" -gt 10 ] && [ "$2" -lt 5 ] || fail "the turns read '$reads' tokens; expected many, then few"

# Ctrl-C ends the answer and keeps its text, and the conversation continues. This model has no token that ends the text,
# because the bundled model's story can be over before the signal arrives.
endless=$folder/endless
cp -r "$model" "$endless"
sed -i 's/"eos_token_id": 1,/"eos_token_id": null,/' "$endless/config.json" "$endless/generation_config.json"
sed -i '/"eos_token":/d' "$endless/tokenizer_config.json"
mkfifo "$folder/input"
"$anyaccel" chat --model "$endless" --greedy --dtype fp32 --max-new-tokens 100000 --context 100000 <"$folder/input" >"$folder/output" 2>"$folder/notes" &
process=$!
exec 3>"$folder/input"
printf 'Once upon a time\n' >&3
for _ in $(seq 300); do [ -s "$folder/output" ] && break; sleep 0.1; done
kill -INT $process
for _ in $(seq 300); do grep -q 'stopped; ' "$folder/notes" && break; sleep 0.1; done
grep -q 'stopped; ' "$folder/notes" || fail "Ctrl-C did not end the answer: $(cat "$folder/notes")"
printf '/save %s/interrupted.json\n' "$folder" >&3
exec 3>&-
wait $process || fail "after Ctrl-C the command ended with $?"
grep -q '"assistant"' "$folder/interrupted.json" || fail "what was said before Ctrl-C is lost"

# Control tokens have no text after which the answer could end: the second Ctrl-C ends the command.
"$anyaccel" chat --model "$endless" --greedy --dtype fp32 --logit-bias 0=1000 --max-new-tokens 100000 --context 100000 <"$folder/input" \
  >"$folder/output" 2>"$folder/notes" &
process=$!
exec 3>"$folder/input"
printf 'Once upon a time\n' >&3
for _ in $(seq 300); do grep -q "^model: " "$folder/notes" && break; sleep 0.1; done
for _ in $(seq 300); do kill -INT $process 2>/dev/null || break; sleep 0.1; done
kill -KILL $process 2>/dev/null # if it still runs
exec 3>&-
wait $process
code=$?
[ $code = 130 ] || fail "two Ctrl-C: exit code $code: $(cat "$folder/notes")"
[ -s "$folder/output" ] && fail "control tokens have a text: $(cat "$folder/output")"

# Errors.
expect() {  # exit code, text of the error, input, arguments...
  code=$1 text=$2 input=$3
  shift 3
  printf "$input" | "$anyaccel" chat --quiet "$@" >"$folder/out" 2>"$folder/err"
  got=$?
  [ $got -eq "$code" ] || fail "chat $*: exit code $got instead of $code: $(cat "$folder/err")"
  grep -qF -- "$text" "$folder/err" || fail "chat $*: '$text' is not in: $(cat "$folder/err")"
}
expect 1 "has no chat template" 'hello\n' --model "$stories"
expect 1 "rejects the conversation: not this" 'no\n' --model "$model"
expect 2 "there is no /sav" '/sav x\n' --model "$model"
expect 1 "expected an array of messages" '' --model "$model" --load "$stories/config.json"
expect 1 "this message is not UTF-8" 'caf\351\nhello\n' --model "$model"
[ -s "$folder/out" ] && fail "chat goes on after a message that is not UTF-8: $(cat "$folder/out")"
expect 1 'there is no chat template "rag"' 'hello\n' --model "$model" --template rag
expect 2 "it cannot go with" 'hello\n' --model "$model" --greedy --top-k 3
RANK=0 WORLD_SIZE=2 expect 2 "a job of 2 ranks" 'hello\n' --model "$model"
printf '{%% for %%}' >"$model/chat_template.jinja"
expect 1 "the chat template cannot be used: line 1" 'hello\n' --model "$model"
echo "chat: ok"
