# examples/memory_limit, built against the installed package: a model in limited memory gives the text that it gives without a
# limit, or one clear error.
command=$1
source=$2
build=$3
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ANYACCEL_CACHE_DIR="$work/cache" DS_ACCELERATOR=cpu
sh "$source/tools/install_build" "$build" "$work/prefix" >"$work/log" 2>&1 || fail "install: $(cat "$work/log")"
# Sanitizers of the library must be those of the program.
flags=$(sed -n 's/^ANYACCEL_SANITIZE:STRING=\(..*\)/-fsanitize=\1/p' "$build/CMakeCache.txt")
cmake -S "$source/examples/memory_limit" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_FLAGS="$flags" \
  >"$work/log" 2>&1 && cmake --build "$work/build" >>"$work/log" 2>&1 || fail "building: $(cat "$work/log")"
model="$source/models/stories"
prompt="Once upon a time"

"$work/build/memory_limit" "$model" 1000000000 "$prompt" >"$work/out" 2>"$work/err" || fail "a wide limit: $(cat "$work/err")"
"$command" generate --model "$model" --prompt "$prompt" --temperature 0 --max-new-tokens 32 >"$work/text" 2>"$work/log" ||
  fail "anyaccel generate: $(cat "$work/log")"
[ "$(cat "$work/out")" = "$(cat "$work/text")" ] || fail "other text: $(cat "$work/out") and not $(cat "$work/text")"
peak=$(sed -n 's/^at most \([0-9]*\) bytes were allocated$/\1/p' "$work/err")
[ "${peak:-0}" -gt 100000 ] || fail "no memory was counted: $(cat "$work/err")"

"$work/build/memory_limit" "$model" $((peak / 2)) "$prompt" >"$work/out" 2>"$work/err"
code=$?
[ "$code" = 1 ] || fail "half the memory gave exit code $code"
[ ! -s "$work/out" ] || fail "half the memory gave text: $(cat "$work/out")"
grep -q '^memory_limit: .*cpu out of memory: .* asked, .* allocated, and its allocator is limited to .*; raise the limit' \
  "$work/err" || fail "half the memory said: $(cat "$work/err")"
[ "$(wc -l <"$work/err")" = 1 ] || fail "not one line: $(cat "$work/err")"
