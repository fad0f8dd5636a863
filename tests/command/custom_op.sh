# A person's own op, in a project of its own built against the installed package, is compiled when it is first asked for.
source=$2
build=$3
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ANYACCEL_CACHE_DIR="$work/cache" DS_ACCELERATOR=cpu
cmake --install "$build" --prefix "$work/prefix" >"$work/log" 2>&1 || fail "install: $(cat "$work/log")"
cp -r "$source/examples/custom_op" "$work/example"
# Sanitizers of the library must be those of the program.
flags=$(sed -n 's/^ANYACCEL_SANITIZE:STRING=\(..*\)/-fsanitize=\1/p' "$build/CMakeCache.txt")
cmake -S "$work/example" -B "$work/example/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_FLAGS="$flags" \
  >"$work/log" 2>&1 && cmake --build "$work/example/build" >>"$work/log" 2>&1 || fail "building: $(cat "$work/log")"
# The installed package is all it may use.
mv "$work/example/build" "$work/elsewhere"
rm -rf "$work/example"
out=$("$work/elsewhere/custom_op" 2>"$work/err") || fail "running: $(cat "$work/err")"
[ "$out" = "1.0000 3.5355" ] || fail "wrong result: $out"
ls "$work/cache/ops/rms_rows/"*.entry >/dev/null 2>&1 || fail "the op is not in the cache"
# From the cache, without a compiler.
out=$(CXX=/no/such/compiler "$work/elsewhere/custom_op" 2>"$work/err") || fail "from the cache: $(cat "$work/err")"
[ "$out" = "1.0000 3.5355" ] || fail "wrong result from the cache: $out"
# A mistake in the source is told in the compiler's words.
echo "int broken( {" >>"$work/elsewhere/rms.cpp"
"$work/elsewhere/custom_op" >"$work/log" 2>"$work/err" && fail "a broken source built"
grep -q "rms.cpp:.*error" "$work/err" || fail "no words of the compiler: $(cat "$work/err")"
rm "$work/elsewhere/rms.cpp"
"$work/elsewhere/custom_op" >"$work/log" 2>"$work/err" && fail "ran without its source"
grep -q "$work/elsewhere/rms.cpp" "$work/err" || fail "the missing source is not named: $(cat "$work/err")"
echo "custom op: ok"
