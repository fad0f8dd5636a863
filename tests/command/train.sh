# examples/train: a model is trained, stops and goes on bit for bit, over two ranks too, and its checkpoint is run by the command.
command=$1
build=$3
train="$build/bin/anyaccel_train"
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ANYACCEL_CACHE_DIR="$work/cache" DS_ACCELERATOR=cpu
size="--hidden 48 --layers 2 --heads 4 --kv-heads 2 --intermediate 96 --steps 60 --batch 8 --length 64 --warmup 5 --rate 0.01"
# The loss of documents that training never saw, of the last line; 5.6 before the first step, 2.3 after the last.
held_out() { sed -n 's/^step 60: .* held-out loss \([0-9.]*\)$/\1/p' "$1"; }
below() { awk "BEGIN { exit !($1 < $2) }" </dev/null; }

"$train" "$work/whole" $size >"$work/out" 2>"$work/err" || fail "training: $(cat "$work/err")"
loss=$(held_out "$work/out")
below "${loss:-9}" 2.6 || fail "the loss did not fall: $(cat "$work/out")"
grep -q '^step 60/60  loss .* tokens/s  0:00 left$' "$work/err" || fail "no progress: $(cat "$work/err")"
grep -q '<polyline' "$work/whole/loss.svg" || fail "no curve"
"$command" generate --model "$work/whole/checkpoint-60" --prompt "The old fox" --temperature 0 --max-new-tokens 20 >"$work/text" \
  2>"$work/err" || fail "the checkpoint does not run: $(cat "$work/err")"
[ "$(wc -c <"$work/text")" -gt 25 ] || fail "no text: $(cat "$work/text")"

# Stopped after 25 steps, and gone on.
"$train" "$work/parts" $size --until 25 >/dev/null 2>"$work/err" || fail "the first part: $(cat "$work/err")"
"$train" "$work/parts" $size >/dev/null 2>"$work/err" && fail "a folder with a checkpoint was taken without --resume"
grep -q 'continue from it with --resume' "$work/err" || fail "no hint: $(cat "$work/err")"
"$train" "$work/parts" $size --resume --rate 0.02 >/dev/null 2>"$work/err" && fail "went on with another rate"
grep -q 'made with rate 0.01, not 0.02' "$work/err" || fail "other words: $(cat "$work/err")"
"$train" "$work/parts" $size --resume --rate 0.0100001 >/dev/null 2>"$work/err" && fail "went on with nearly the same rate"
cp -r "$work/parts" "$work/cut"
mkdir "$work/parts/checkpoint-30.part"
"$train" "$work/parts" $size --resume --save-every 10 >/dev/null 2>"$work/err" || fail "going on: $(cat "$work/err")"
cmp "$work/parts/checkpoint-60/model.safetensors" "$work/whole/checkpoint-60/model.safetensors" || fail "other weights"
[ "$(ls "$work/parts" | tr '\n' ' ')" = "checkpoint-50 checkpoint-60 loss.svg " ] || fail "$(ls "$work/parts")"

# A checkpoint that is cut short is refused, and stays for whoever wants to look.
truncate -s -7 "$work/cut/checkpoint-25/training.safetensors"
"$train" "$work/cut" $size --resume >/dev/null 2>"$work/err" && fail "went on from a damaged checkpoint"
grep -q 'checkpoint-25/training.safetensors' "$work/err" || fail "the file is not named: $(cat "$work/err")"
[ -e "$work/cut/checkpoint-25/model.safetensors" ] || fail "the damaged checkpoint is gone"

# Over two ranks, with the states in files.
OMP_NUM_THREADS=1 "$command" launch -q --num_accelerators 2 "$train" "$work/ranks" $size --offload "$work" >"$work/out" \
  2>"$work/err" || fail "two ranks: $(cat "$work/err")"
of_ranks=$(held_out "$work/out")
below "$of_ranks - $loss" 0.02 && below "$loss - $of_ranks" 0.02 || fail "two ranks reach $of_ranks, one $loss"

# The encoder, on all cores (the other runs have one thread, tests/CMakeLists.txt), and text of a file.
env -u OMP_NUM_THREADS "$train" "$work/encoder" --model encoder $size --steps 20 >"$work/out" 2>"$work/err" || fail "the encoder: $(cat "$work/err")"
grep -q '^step 20: loss' "$work/out" || fail "the encoder said: $(cat "$work/out")"
for i in 1 2 3 4 5 6 7 8; do
  printf 'A cat sat on a mat and looked at the rain for a long time.\n-----\nThe dog ran home, for it was late and the road was long.\n---\n'
done >"$work/once"
for i in 1 2 3 4 5; do cat "$work/once"; done >"$work/text"
"$train" "$work/file" $size --steps 10 --text "$work/text" --tokenizer "$2/models/stories" --length 32 >"$work/out" \
  2>"$work/err" || fail "a file: $(cat "$work/err")"
sed -n 3,80p "$work/text" >"$work/other_text"
"$train" "$work/file" $size --steps 10 --text "$work/other_text" --tokenizer "$2/models/stories" --length 32 --resume >/dev/null \
  2>"$work/err" && fail "went on with another text"
grep -q 'was made with text of 80 documents and .*, not of 39 documents' "$work/err" || fail "other words: $(cat "$work/err")"
cmp "$2/models/stories/tokenizer.json" "$work/file/checkpoint-10/tokenizer.json" || fail "another tokenizer"

# A text with CR LF has the same documents, and one that is not UTF-8 has no tokens.
sed 's/$/\r/' "$work/text" >"$work/crlf"
"$train" "$work/lines" $size --steps 1 --text "$work/crlf" --length 32 >"$work/out" 2>"$work/err" || fail "CR LF: $(cat "$work/err")"
grep -aq 'of 80 documents' "$work/lines/checkpoint-1/training.safetensors" || fail "other documents with CR LF"
{ cat "$work/text"; printf 'caf\351\n'; } >"$work/latin1"
"$train" "$work/x" $size --text "$work/latin1" --tokenizer "$2/models/stories" >/dev/null 2>"$work/err" && fail "text that is not UTF-8"
grep -q "document 81 of '$work/latin1' is not UTF-8 at its byte 3" "$work/err" || fail "other words: $(cat "$work/err")"
# A tokenizer of other files than tokenizer.json is in the checkpoint too.
mkdir "$work/letters"
echo '{"<s>": 0, "</s>": 1, "a": 2, "b": 3, "\u0120": 4}' >"$work/letters/vocab.json"
echo '#version: 0.2' >"$work/letters/merges.txt"
echo '{"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>", "eos_token": "</s>"}' >"$work/letters/tokenizer_config.json"
for i in 1 2 3 4 5; do printf 'a b a ab b a\n---\nb a b ba a b\n---\naa bb aa b a\n---\nbb aa bb a b\n---\na a b b a b\n---\n'; done >"$work/abc"
"$train" "$work/small" $size --steps 2 --text "$work/abc" --tokenizer "$work/letters" --length 8 >"$work/out" 2>"$work/err" ||
  fail "a tokenizer of letters: $(cat "$work/err")"
"$command" generate --model "$work/small/checkpoint-2" --prompt "a b" --max-new-tokens 3 >"$work/out" 2>"$work/err" ||
  fail "the checkpoint with letters does not run: $(cat "$work/err")"

# Weights to begin with, and what tensors do not show: the rotary base, and heads whose matrices have the same shapes.
stories="--hidden 192 --layers 6 --intermediate 512 --steps 2 --batch 2 --length 32 --tokenizer $2/models/stories"
cp -r "$2/models/stories" "$work/weights" && sed -i 's/"rope_theta": 10000.0/"rope_theta": 20000.0/' "$work/weights/config.json"
"$command" generate --model "$2/models/stories" --prompt "Once upon a time" --temperature 0 >"$work/story" 2>"$work/err" ||
  fail "a story: $(cat "$work/err")"
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24; do cat "$work/story"; printf '\n---\n'; done >"$work/stories"
stories="$stories --text $work/stories"
"$train" "$work/tuned" $stories --heads 6 --kv-heads 2 --weights "$work/weights" --until 1 >"$work/out" 2>"$work/err" ||
  fail "with weights: $(cat "$work/err")"
# 7.6 without.
loss=$(sed -n 's/^step 1: loss \([0-9.]*\), .*/\1/p' "$work/out")
below "${loss:-9}" 2 || fail "the weights were not used: $(cat "$work/out")"
grep -q '"rope_theta": 20000' "$work/tuned/checkpoint-1/config.json" || fail "another rotary base"
"$train" "$work/tuned" $stories --heads 6 --kv-heads 2 --resume >/dev/null 2>"$work/err" && fail "went on with another rotary base"
grep -q 'made with rope_theta 20000.* not 10000' "$work/err" || fail "other words: $(cat "$work/err")"
"$train" "$work/x" $stories --heads 3 --kv-heads 1 --weights "$2/models/stories" >/dev/null 2>"$work/err" && fail "other heads"
grep -q 'has 6 query heads, 2 key/value heads and the head size 32' "$work/err" || fail "other words: $(cat "$work/err")"
sed -i 's/"llama"/"mistral"/' "$work/weights/config.json"
"$train" "$work/x" $stories --heads 6 --kv-heads 2 --weights "$work/weights" >/dev/null 2>"$work/err" && fail "another kind of model"

if [ -w /dev/full ]; then
  "$train" "$work/full" $size --steps 1 >/dev/full 2>"$work/err" && fail "nothing was printed, and the exit code is 0"
  grep -q 'standard output cannot be written' "$work/err" || fail "other words: $(cat "$work/err")"
  "$train" --help >/dev/full 2>"$work/err" && fail "no help was printed, and the exit code is 0"
  grep -q 'standard output cannot be written' "$work/err" || fail "other words: $(cat "$work/err")"
fi

# Wrong arguments.
for option in --text --tokenizer --weights --offload; do
  "$train" "$work/x" $size $option "" >/dev/null 2>"$work/err"
  [ $? = 2 ] && grep -q -- "$option: expected [A-Za-z|]* after it, not ''" "$work/err" || fail "$option without a value: $(cat "$work/err")"
done
for arguments in "" "$work/x --steps 0" "$work/x --model cnn" "$work/x --heads 5" "$work/x --heads 4 --kv-heads 3" "$work/x --hidden 36 --heads 4" "$work/x --no-such" "$work/x --steps"; do
  "$train" $arguments >/dev/null 2>"$work/err"
  code=$?
  [ "$code" = 2 ] || fail "'$arguments' gave exit code $code: $(cat "$work/err")"
done
"$train" "$work/x" --batch 3 --pieces 2 >/dev/null 2>"$work/err" && fail "three sequences in two pieces"
"$train" "$work/x" --resume >/dev/null 2>"$work/err" && fail "went on from nothing"
"$train" "$work/x" --text "$work/no-such-file" >/dev/null 2>"$work/err" && fail "a missing text"
grep -q "cannot read '$work/no-such-file'" "$work/err" || fail "other words: $(cat "$work/err")"
echo "train: ok"
