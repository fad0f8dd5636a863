# Wrong usage gives exit code 2 and one clear line, which names the nearest option, command, benchmark or case; help gives 0.
anyaccel=$1
model=$2/models/stories
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

expect() {  # code, text that standard error must hold, arguments...
  code=$1; text=$2; shift 2
  "$anyaccel" "$@" >/dev/null 2>"$work/err"
  got=$?
  [ $got = "$code" ] || fail "'$*' gave exit code $got, expected $code: $(cat "$work/err")"
  [ -z "$text" ] || grep -qF -- "$text" "$work/err" || fail "'$*' did not say '$text': $(cat "$work/err")"
}

expect 2 "usage"
expect 2 '"dance"' dance
expect 0 "" --help
expect 0 "" --version
"$anyaccel" --version | grep -qxE 'anyaccel [0-9.]+ \(commit ([0-9a-f]{12}(-changed)?|unknown), driver table [0-9]+\.[0-9]+\)' ||
  fail "--version printed $("$anyaccel" --version)"
for command in info generate chat quantize perplexity embed tokenize bench conformance make-model build-ops launch; do expect 0 "" $command --help; done
expect 2 "--nonsense" info --nonsense
expect 2 "" bench nonsense
expect 2 "" bench --runs 0
expect 2 "" bench --runs -3
expect 2 "" bench --runs 99999999999999999999
expect 2 "" generate
expect 1 "/nonexistent" generate --model /nonexistent --prompt x
expect 2 "" generate --model "$model" --prompt x --max-new-tokens 0
expect 2 "" generate --model "$model" --prompt x --max-new-tokens -5
expect 2 "" generate --model "$model" --prompt x --temperature -1
expect 2 "" generate --model "$model" --prompt x --top-p 1.5
expect 2 "" make-model

# The error names the wrong word and the nearest right one, not an option that is missing because of it.
expect 2 "there is no option '--modle'; did you mean '--model'?" generate --modle "$model" --prompt x
expect 2 "there is no option '--modle'; did you mean '--model'?" generate "--modle=$model" --prompt x
expect 2 "there is no option '-model'; did you mean '--model'?" generate -model "$model" --prompt x
expect 2 "there is no option '--max_tokens'" generate --model "$model" --prompt x --max_tokens 3
expect 2 "did you mean '--max-new-tokens'?" generate --model "$model" --prompt x --max-new 3
expect 2 "there is no option '--rnus'; did you mean '--runs'?" bench --rnus 3 alloc
expect 2 "there is no option '--jsno'; did you mean '--json'?" info --jsno
expect 2 "there is no option '--pluging'; did you mean '--plugin'?" conformance --pluging /nope
expect 2 "there is no option '--opp'; did you mean '--op'?" build-ops --opp cpu_adam
expect 2 "there is no option '--shap'; did you mean '--shape'?" make-model --shap tiny --out "$work/model"
expect 2 "there is no option '--num_gpu'; did you mean '--num_gpus'?" launch --num_gpu 2 true
expect 2 "there is no command \"genrate\"; did you mean 'generate'?" genrate
expect 2 "'allocc' is not one of start, launch, alloc" bench allocc
expect 2 "did you mean 'alloc'?" bench allocc
expect 2 "did you mean 'tiny'?" make-model --shape tinny --out "$work/model"
expect 2 "did you mean 'cpu_adam'?" build-ops --op cpu_adm
expect 2 "--filter copyes matches no case; --list shows them; did you mean 'copies'?" conformance --filter copyes
expect 2 "--model was given 2 times; it takes one value" generate --model "$model" --model "$model" --prompt x
expect 2 "'Once upon' was not expected here" generate --model "$model" "Once upon"
expect 1 "--plugin: plugin \"/nope\"" conformance --plugin /nope
grep -q ANYACCEL_PLUGIN_PATH "$work/err" && fail "--plugin names a variable: $(cat "$work/err")"
for words in "generate --prompt x --model" "chat --model" "embed --text x --model" "tokenize --model" "make-model --shape tiny --out" \
  "make-model --out $work/model --shape"; do
  expect 2 "${words##* }: the value is empty; expected one" $words ""
done
expect 2 "MODEL: the value is empty" quantize "" "$work/model.gguf"
expect 2 "OUT: the value is empty" quantize "$model" ""
expect 2 "FILE: the value is empty" perplexity --model "$model" ""
expect 2 "FILE: the value is empty" tokenize --model "$model" ""
# Without a value these would take the default, which was not asked for.
for words in "generate --model $model --prompt-file" "generate --model $model --prompt x --grammar" \
  "generate --model $model --prompt x --json-schema" "embed --model $model --file" "build-ops --op" "build-ops --list --prebuilt" \
  "bench alloc --model" "bench alloc --shape" "bench alloc --family" "bench alloc --builder" "bench alloc --dir" \
  "conformance --list --plugin" "conformance --list --accelerator" "conformance --list --filter" "conformance --list --junit"; do
  expect 2 "${words##* }: the value is empty; expected one, or no such option" $words ""
done
expect 1 "--junit: the report cannot be written" conformance --filter copies --junit "$work/none/report"

# The command alone, without the program that has bench and conformance.
mkdir "$work/alone"
cp "$anyaccel" "$work/alone/anyaccel"
"$work/alone/anyaccel" bench alloc --json >"$work/json" 2>"$work/err"
[ $? = 1 ] || fail "bench without its program: $(cat "$work/err")"
grep -qF "runs $work/alone/anyaccel-checks, which cannot be started: No such file or directory; 'make build' builds it" "$work/err" ||
  fail "bench without its program: $(cat "$work/err")"
grep -qF '"kind": "unavailable"' "$work/json" || fail "bench --json without its program: $(cat "$work/json")"
rm -r "$work/alone"

# Prompts from files.
prompt_file() { expect 1 "--prompt-file: cannot read '$1': $2" generate --model "$model" --prompt-file "$1" --max-new-tokens 1; }
prompt_file "$work" "it is a folder"
prompt_file "$work/none" "No such file"
: >"$work/empty"
prompt_file "$work/empty" "it is empty"
printf 'caf\351' >"$work/latin"
prompt_file "$work/latin" "it is not UTF-8: the byte 0xe9 at offset 3"
printf '\377\376h\0i\0' >"$work/utf16"
prompt_file "$work/utf16" "it is not UTF-8: the byte 0xff at offset 0 begins UTF-16"
mkfifo "$work/pipe"
prompt_file "$work/pipe" "it is a pipe that holds nothing and that no process writes to"
prompt_file /dev/zero "it holds more than 256 MiB"
if [ "$(id -u)" != 0 ]; then
  echo text >"$work/secret"
  chmod 000 "$work/secret"
  prompt_file "$work/secret" "Permission denied"
fi
expect 2 "--prompt: it is not UTF-8: the byte 0xff at offset 1" generate --model "$model" --prompt "$(printf 'a\377')"
# A shell's variable that is not set must not give the text of another model or other weights.
for option in --adapter --draft --prompt-cache --quantize; do
  expect 2 "$option: the value is empty" generate --model "$model" --prompt Once "$option" ""
done
expect 2 "--quantize is 'q9'; expected one of int8, " generate --model "$model" --prompt Once --quantize q9
expect 2 "--quantize is 'q9'; expected one of int8, " perplexity "$model/README.md" --model "$model" --quantize q9
expect 2 "--type is 'q9'; expected one of f32, " quantize "$model" "$work/out.gguf" --type q9
# The argument that names the file is the command's own.
expect 1 "FILE: cannot read '$work/none'" perplexity --model "$model" "$work/none"
expect 1 "FILE: cannot read '$work/empty': it is empty" tokenize --model "$model" "$work/empty"
expect 1 "--file: cannot read '$work/none'" embed --model "$model" --file "$work/none"
expect 1 "--importance: cannot read '$work/none'" quantize "$model" "$work/out.gguf" --importance "$work/none"
printf 'Once upon' >"$work/prompt"
(sleep 1; cat "$work/prompt") >"$work/pipe" &
for from in "$work/prompt" "$work/pipe"; do  # a pipe whose writer is slow is waited for
  [ "$from" = "$work/pipe" ] && sleep 0.3
  "$anyaccel" generate --model "$model" --prompt-file "$from" --max-new-tokens 3 --quiet --greedy >>"$work/out" 2>&1
done
wait
[ "$(sed -n 1p "$work/out")" = "$(sed -n 2p "$work/out")" ] || fail "a pipe gives another text: $(cat "$work/out")"

# --quiet: the text alone, whatever there would be to warn about; errors stay.
ANYACCEL_LOG=debug "$anyaccel" generate --model "$model" --prompt Once --max-new-tokens 3 --quiet >"$work/out" 2>"$work/err" ||
  fail "--quiet: $(cat "$work/err")"
[ -s "$work/err" ] && fail "--quiet is not quiet: $(cat "$work/err")"
[ "$(wc -l <"$work/out")" = 1 ] || fail "--quiet prints more than the text: $(cat "$work/out")"
expect 1 "anyaccel: error: " generate --model /nonexistent --prompt x --quiet
[ "$(wc -l <"$work/err")" = 1 ] || fail "more than the error: $(cat "$work/err")"
"$anyaccel" make-model --shape tiny --out "$work/tiny" --quiet >"$work/out" 2>&1 || fail "make-model: $(cat "$work/out")"
[ -s "$work/out" ] && fail "make-model --quiet is not quiet: $(cat "$work/out")"

# Text fits a narrow terminal; in a pipe a message stays one line.
COLUMNS=80 "$anyaccel" info >"$work/out" 2>/dev/null || fail "info in 80 columns"
long=$(grep -E '^.{81}' "$work/out" | grep -v '/') # a path is not broken
[ -z "$long" ] || fail "info is wider than 80 columns: $long"
for command in "" info generate chat quantize perplexity embed tokenize bench conformance make-model build-ops launch; do
  COLUMNS=80 "$anyaccel" $command --help >"$work/out" || fail "the help of $command in 80 columns"
  long=$(grep -E '^.{81}' "$work/out")
  [ -z "$long" ] || fail "the help of $command is wider than 80 columns: $long"
  # In a pipe each entry stays one line, in which nothing is lost.
  COLUMNS= "$anyaccel" $command --help >"$work/long" || fail "the help of $command"
  [ "$(tr -s ' \n' '\n' <"$work/out")" = "$(tr -s ' \n' '\n' <"$work/long")" ] || fail "the help of $command lacks a word"
done
"$anyaccel" info 2>/dev/null | grep -q 'absent  *no NVIDIA GPU .*no AMD GPU\|^  cuda  *usable\|^  cuda  *unusable' ||
  fail "info breaks lines in a pipe: $("$anyaccel" info 2>/dev/null)"

# A standard output that is full or closed is an error of every command, also of its help.
for arguments in info "info --json" "info --help" "bench alloc --runs 1 --json" "conformance --list" "build-ops --list" --version --help \
  "generate --model $model --prompt Once --max-new-tokens 2"; do
  for where in /dev/full -; do
    if [ $where = - ]; then
      "$anyaccel" $arguments >&- 2>"$work/err"
    else
      "$anyaccel" $arguments >/dev/full 2>"$work/err"
    fi
    got=$?
    [ $got = 1 ] || fail "'$arguments' to $where gave $got: $(cat "$work/err")"
    grep -q "error: writing to standard output failed: " "$work/err" || fail "'$arguments' to $where: $(cat "$work/err")"
  done
done
# With standard error closed nothing is written into the model's files.
"$anyaccel" make-model --shape tiny --out "$work/again" >&- 2>&- || fail "make-model with closed standard files"
cmp "$work/tiny/model.safetensors" "$work/again/model.safetensors" || fail "the files of two models differ"

DS_ACCELERATOR=gpu expect 1 '"gpu" is not supported' info
DS_ACCELERATOR=mps expect 1 'MPS_Accelerator requires macOS on Apple silicon (Metal): DS_ACCELERATOR asks for "mps", which is absent on this machine: Metal is a part of macOS' info
echo "usage: ok"
