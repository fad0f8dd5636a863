# quantize, generate --quantize and perplexity: the story in 8 bits is that of 16, from a GGUF file and from a directory; perplexity
# before and after, JSON, a file that cannot be written, a signal, wrong usage.
anyaccel=$1
fail() { echo "FAILED: $1"; cat "$work/out" "$work/err"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DS_ACCELERATOR=cpu
stories=$2/models/stories
story() { "$anyaccel" generate --quiet --prompt "Once upon a time" --max-new-tokens 40 --greedy "$@"; }
# expect CODE TEXT COMMAND...: the exit code, and a text on either output
expect() {
  expected=$1; text=$2; shift 2
  "$anyaccel" "$@" >"$work/out" 2>"$work/err"
  code=$?
  [ $code = "$expected" ] || fail "$*: exit code $code, expected $expected"
  grep -qF -- "$text" "$work/out" "$work/err" || fail "$*: no '$text'"
}

printf 'Once upon a time, there was a kind girl named Luna. She lived in a little house on a hill.' >"$work/text"
expect 0 "relative error of the quantized ones 0.005" quantize "$stories" "$work/stories.gguf" --text "$work/text"
grep -q "^perplexity before: [1-9].* over [0-9]* tokens" "$work/out" || fail "no perplexity before"
grep -q "^perplexity after:  [1-9].* over [0-9]* tokens" "$work/out" || fail "no perplexity after"
story --model "$stories" >"$work/of16"
story --model "$work/stories.gguf" >"$work/of8"
story --model "$stories" --quantize q8_0 >"$work/at_load"
cmp -s "$work/of16" "$work/of8" || fail "the story in 8 bits is $(cat "$work/of8")"
cmp -s "$work/of16" "$work/at_load" || fail "the story quantized while loading is $(cat "$work/at_load")"
expect 0 '"perplexity": ' perplexity --model "$work/stories.gguf" --json "$work/text"
expect 0 '"bytes_after": ' quantize "$stories" "$work/q4.gguf" --type q4_0 --json
expect 0 '"type": "int8"' quantize "$stories" "$work/directory" --json
story --model "$work/directory" >"$work/of_directory"
story --model "$stories" --quantize int8 >"$work/at_load"
cmp -s "$work/of_directory" "$work/at_load" || fail "the story in int8 while loading is $(cat "$work/at_load")"
cmp -s "$work/of16" "$work/of_directory" || fail "the story of the directory in int8 is $(cat "$work/of_directory")"
# Of a link the target is written: an empty folder, a file. Whatever else is there stays.
mkdir "$work/empty" "$work/folder.gguf"
mkfifo "$work/pipe.gguf"
touch "$work/file" "$work/aim.gguf"
ln -s empty "$work/to_empty"
ln -s aim.gguf "$work/link.gguf"
ln -s nowhere "$work/to_nothing"
expect 0 "relative error" quantize "$stories" "$work/to_empty/"
[ -L "$work/to_empty" ] && [ -s "$work/empty/model.safetensors" ] || fail "quantize to a link to a folder"
expect 0 "relative error" quantize "$stories" "$work/link.gguf"
[ -L "$work/link.gguf" ] && cmp -s "$work/aim.gguf" "$work/stories.gguf" || fail "quantize to a link to a file"
expect 1 "exists; expected a name that ends in .gguf, or that of a new directory" quantize "$stories" "$work/file"
expect 1 "exists; expected a name that ends in .gguf, or that of a new directory" quantize "$stories" "$work/to_nothing"
expect 1 "folder.gguf: cannot be created: Is a directory" quantize "$stories" "$work/folder.gguf"
expect 1 "pipe.gguf: cannot be created: it is a device or a pipe" quantize "$stories" "$work/pipe.gguf"
[ -p "$work/pipe.gguf" ] || fail "quantize replaced a pipe"
# Names as long as a file's name may be, in characters of three bytes.
long=$(printf '\344\270\255%.0s' $(seq 83))
expect 0 "relative error" quantize "$stories" "$work/$long.gguf"
expect 0 "relative error" quantize "$stories" "$work/$long-files"
expect 1 "expected int4 or int8" quantize "$stories" "$work/other" --type q4_0
expect 2 "expected a whole number from 0 to" perplexity --model "$stories" --window -1 "$work/text"
expect 2 "expected one of f32, f16, bf16, q4_0, q4_1" quantize "$stories" "$work/other.gguf" --type q4_7
expect 2 "expected one of int8, int4, q4_0, q4_1" generate --model "$stories" --prompt x --quantize q4_7
# A conversion without quantizing.
expect 0 "relative error of the quantized ones 0.00000" quantize "$stories" "$work/plain.gguf" --type bf16
story --model "$work/plain.gguf" >"$work/converted"
story --model "$stories" >"$work/of_directory"
cmp -s "$work/converted" "$work/of_directory" || fail "the story of the converted model is $(cat "$work/converted")"
expect 1 "quantized already (Q8_0)" quantize "$work/stories.gguf" "$work/other.gguf"
expect 2 "OUT" quantize "$stories"
RANK=0 WORLD_SIZE=2 expect 2 "a job of 2 ranks; only anyaccel generate splits" quantize "$stories" "$work/other.gguf"
RANK=0 WORLD_SIZE=2 expect 2 "perplexity runs in one process" perplexity --model "$stories" "$work/text"
(ulimit -f 20; "$anyaccel" quantize "$stories" "$work/large.gguf" >"$work/out" 2>"$work/err") && fail "past the limit"
grep -q "large.gguf: cannot be written: File too large" "$work/err" || fail "past the limit"
ls -A "$work" | grep -q "other.gguf\|large.gguf" && fail "quantize left $(ls -A "$work")"
# A signal that ends the command removes what it has not finished. The process is stopped as soon as its temporary file is
# there; if it was faster, there is no such file any more, and another is tried.
"$anyaccel" make-model --shape stories --out "$work/model" >"$work/out" 2>"$work/err" || fail "make-model"
for out in ended.gguf ended; do
  for attempt in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf "$work/$out"
    "$anyaccel" quantize "$work/model" "$work/$out" --quiet >"$work/out" 2>"$work/err" &
    process=$!
    until ls -A "$work" | grep -q "^$out"; do kill -0 $process 2>/dev/null || break; done
    kill -STOP $process 2>/dev/null
    [ -e "$work/$out" ] && { kill -CONT $process 2>/dev/null; wait $process; continue; }
    kill -TERM $process
    kill -CONT $process
    wait $process
    code=$?
    [ $code = 143 ] || fail "quantize that SIGTERM ends: exit code $code"
    ls -A "$work" | grep "^$out" && fail "quantize that SIGTERM ends left $(ls -A "$work")"
    continue 2
  done
  echo "skipped: quantizing was always faster than the signal ($out)"
done
exit 0
