# LoRA adapters that are kept apart: --adapter NAME=DIR and --use-adapter of generate, /adapter of chat, and what is refused.
anyaccel=$1
model=$2/tests/data/models/llama_gqa
one=one=$2/tests/data/adapters/llama_patterns
other=other=$2/tests/data/adapters/llama_other
fail() { echo "FAILED: $1"; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
generate() {
  "$anyaccel" generate --model "$model" --greedy --dtype fp32 --max-new-tokens 8 --ignore-eos --json --adapter "$one" \
    --adapter "$other" "$@" >"$folder/out" 2>"$folder/err"
}
# The tokens of each answer on a line.
tokens() {
  generate "$@" || fail "$*: $(cat "$folder/err")"
  python3 -c '
import json, sys
for completion in json.load(open(sys.argv[1]))["completions"]:
    print(completion["token_ids"])' "$folder/out"
}
plain=$(tokens --prompt ab)
first=$(tokens --prompt ab --use-adapter one)
second=$(tokens --prompt ab --use-adapter other)
[ "$plain" != "$first" ] && [ "$plain" != "$second" ] && [ "$first" != "$second" ] || fail "$plain, $first, $second"
expected=$(printf '%s\n%s\n%s' "$second" "$plain" "$first")
[ "$(tokens --prompt ab --prompt ab --prompt ab --use-adapter other --use-adapter "" --use-adapter one)" = "$expected" ] ||
  fail "a batch: $(cat "$folder/out")"
[ "$(tokens --prompt ab --prompt ab --use-adapter one)" = "$(printf '%s\n%s' "$first" "$first")" ] || fail "one for all"

refused() {  # text, arguments...
  part=$1
  shift
  generate --prompt ab "$@" && fail "'$*' is accepted"
  grep -qF -- "$part" "$folder/err" "$folder/out" || fail "'$*' does not say '$part': $(cat "$folder/out" "$folder/err")"
}
refused "no --adapter third=DIR is given" --use-adapter third
refused "with another name for each" --adapter "$one"
refused "with another name for each" --adapter "=$folder"
refused "expected NAME=DIR for each of several" --adapter "$folder" --adapter "$folder"
refused "2 adapters for 3 prompts" --prompt a --prompt b --use-adapter one --use-adapter other
refused "kept apart" --adapter "head=$2/tests/data/adapters/llama_rslora"
refused "adapter_config.json" --adapter "none=$folder"

# A conversation switches between them.
mkdir "$folder/model"
for file in config.json model.safetensors tokenizer.json tokenizer_config.json; do ln -s "$model/$file" "$folder/model/$file"; done
printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}' >"$folder/model/chat_template.jinja"
chat() {
  "$anyaccel" chat --model "$folder/model" --greedy --dtype fp32 --max-new-tokens 6 --quiet --adapter "$one" "$@"
}
printf 'ab\n/reset\n/adapter one\nab\n/reset\n/adapter\nab\n' | chat >"$folder/out" || fail "chat"
printf 'ab\n' | chat --use-adapter one >"$folder/with" || fail "chat --use-adapter"
printf 'ab\n' | chat >"$folder/without" || fail "chat"
cat "$folder/without" "$folder/with" "$folder/without" | cmp - "$folder/out" || fail "chat switched: $(cat "$folder/out")"
cmp -s "$folder/with" "$folder/without" && fail "/adapter changes nothing"
printf '/adapter two\n' | chat >"$folder/out" 2>&1 && fail "an unknown adapter is accepted"
grep -q "expected one of one" "$folder/out" || fail "$(cat "$folder/out")"
echo "named_adapters: ok"
