# LoRA adapters that are kept apart: --adapter NAME=DIR and --use-adapter of generate, perplexity and embed, /adapter
# of chat, and what is refused.
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

# Perplexity and embeddings are those of the adapter that is added to the matrices.
printf 'ab cd ef gh' >"$folder/text"
measured() { "$anyaccel" "$command" --model "$model" --dtype fp32 --quiet "$@" 2>"$folder/err" || fail "$*: $(cat "$folder/err")"; }
same() {  # the numbers on standard input and in the file are the same, but for rounding
  python3 -c '
import re, sys
a, b = ([float(x) for x in re.findall(r"[-+]?[0-9.]+(?:e[-+]?[0-9]+)?", text)] for text in (sys.stdin.read(), open(sys.argv[1]).read()))
sys.exit(len(a) != len(b) or any(abs(x - y) > 1e-3 * max(1, abs(y)) for x, y in zip(a, b)))' "$1"
}
for command in perplexity embed; do
  text=$folder/text
  [ "$command" = embed ] && text="--file $folder/text"
  measured $text --adapter "$one" --adapter "$other" --use-adapter other >"$folder/kept" || fail "$command"
  measured $text --adapter "${other#other=}" >"$folder/added"
  measured $text --adapter "$one" --adapter "$other" >"$folder/without"
  same "$folder/added" <"$folder/kept" || fail "$command: $(cat "$folder/kept" "$folder/added")"
  same "$folder/without" <"$folder/kept" && fail "$command: the adapter changes nothing"
done
command=embed
measured --text ab --text ab --adapter "$one" --adapter "$other" --use-adapter one --use-adapter "" >"$folder/two"
[ "$(sort -u "$folder/two" | wc -l)" = 2 ] || fail "embed: one adapter for both texts"
refused_by() {  # text, arguments...
  part=$1
  shift
  "$anyaccel" "$@" >"$folder/out" 2>&1 && fail "'$*' is accepted"
  grep -qF -- "$part" "$folder/out" || fail "'$*' does not say '$part': $(cat "$folder/out")"
}
refused_by "2 adapters for 1 texts" embed --model "$model" --text a --adapter "$one" --use-adapter one --use-adapter one
refused_by "expected one" perplexity --model "$model" "$folder/text" --adapter "$one" --use-adapter one --use-adapter one
refused_by "no --adapter x=DIR is given" perplexity --model "$model" "$folder/text" --adapter "$one" --use-adapter x
echo "named_adapters: ok"
