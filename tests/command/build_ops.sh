# anyaccel build-ops: from an empty cache it builds every op that has sources, and a second run builds nothing.
anyaccel=$1
build=$3
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ANYACCEL_CACHE_DIR="$work/cache" DS_ACCELERATOR=cpu
export CXXFLAGS="${CXXFLAGS:-} -O0" # which takes less time; nothing that is built here runs

"$anyaccel" build-ops --list >"$work/list" 2>"$work/err" || fail "--list: $(cat "$work/err")"
grep -q "^transformer_inference  *included  *yes" "$work/list" || fail "inference is not included: $(cat "$work/list")"
grep -q "^dc  *no  *no  *DeepCompileBuilder" "$work/list" || fail "no reason for dc: $(cat "$work/list")"
[ -e "$work/cache" ] && fail "--list built something"
to_build=$(grep -c "  no  *yes" "$work/list")
[ "$to_build" -ge 5 ] || fail "only $to_build ops to build: $(cat "$work/list")"

"$anyaccel" build-ops >"$work/out" 2>"$work/err" || fail "$(cat "$work/err")"
[ "$(grep -c "  now  *yes" "$work/out")" = "$to_build" ] || fail "not all were built: $(cat "$work/out")"
grep -q "\[$to_build/$to_build\]" "$work/err" || fail "no progress: $(cat "$work/err")"
find "$work/cache" -name '*.so' -printf '%p %T@\n' | sort >"$work/before"
"$anyaccel" build-ops >"$work/out" 2>"$work/err" || fail "second run: $(cat "$work/err")"
grep -q "  now  " "$work/out" && fail "the second run built: $(cat "$work/out")"
find "$work/cache" -name '*.so' -printf '%p %T@\n' | sort >"$work/after"
cmp -s "$work/before" "$work/after" || fail "the second run changed the cache"

# One op by either name; an op that was requested by name and cannot be built is a failure.
rm -rf "$work/cache"
"$anyaccel" build-ops --op cpu_adam --op QuantizerBuilder >"$work/out" 2>"$work/err" || fail "$(cat "$work/err")"
[ "$(grep -c "  now  " "$work/out")" = 2 ] || fail "--op built something else: $(cat "$work/out")"
"$anyaccel" build-ops --op dc >"$work/out" 2>"$work/err"
[ $? = 1 ] || fail "--op dc did not fail"
grep -q "DeepCompileBuilder" "$work/err" || fail "no reason: $(cat "$work/err")"
"$anyaccel" build-ops --op nonsense >"$work/out" 2>"$work/err"
[ $? = 2 ] || fail "an unknown op is not a usage error"
grep -q "nonsense.*cpu_adam" "$work/err" || fail "the known ops are not listed: $(cat "$work/err")"

# The original's switches.
rm -rf "$work/cache"
DS_BUILD_OPS=0 DS_BUILD_CPU_LION=1 "$anyaccel" build-ops >"$work/out" 2>"$work/err" || fail "$(cat "$work/err")"
[ "$(grep -c "  now  " "$work/out")" = 1 ] || fail "DS_BUILD_OPS=0: $(cat "$work/out")"
DS_BUILD_CPU_LION=perhaps "$anyaccel" build-ops >"$work/out" 2>"$work/err"
[ $? = 2 ] || fail "DS_BUILD_CPU_LION=perhaps is not a usage error"

# A compiler that is missing, and one that fails.
rm -rf "$work/cache"
CXX=/no/such/compiler "$anyaccel" build-ops --op cpu_adam >"$work/out" 2>"$work/err" && fail "built without a compiler"
grep -q "/no/such/compiler" "$work/err" || fail "no reason: $(cat "$work/err")"
printf '#!/bin/sh\necho "words of the compiler" >&2\nexit 3\n' >"$work/failing"
chmod +x "$work/failing"
CXX="$work/failing" "$anyaccel" build-ops --op cpu_adam >"$work/out" 2>"$work/err" && fail "built with a failing compiler"
grep -q "words of the compiler" "$work/err" || fail "the compiler's words are lost: $(cat "$work/err")"

# Without a cache folder nothing is kept: a warning, and no success.
env -u ANYACCEL_CACHE_DIR -u XDG_CACHE_HOME -u HOME "$anyaccel" build-ops --op cpu_lion >"$work/out" 2>"$work/err" &&
  fail "build-ops kept nothing and ended with 0"
grep -q "there is no cache folder, because none of ANYACCEL_CACHE_DIR, XDG_CACHE_HOME and HOME is set" "$work/err" ||
  fail "no warning: $(cat "$work/err")"
grep -q "CPULionBuilder: it was compiled, but is not kept because there is no cache folder" "$work/err" ||
  fail "no error: $(cat "$work/err")"

# A package with prebuilt ops needs no compiler.
sh "$2/tools/install_build" "$build" "$work/prefix" >"$work/log" 2>&1 || fail "install: $(cat "$work/log")"
"$work/prefix/bin/anyaccel" build-ops --op cpu_adam --prebuilt "$work/prefix/lib/anyaccel/ops" >"$work/out" 2>"$work/err" ||
  fail "--prebuilt: $(cat "$work/err")"
CXX=/no/such/compiler "$work/prefix/bin/anyaccel" build-ops --list >"$work/out" 2>"$work/err" || fail "$(cat "$work/err")"
grep -q "^cpu_adam  *yes  *yes" "$work/out" || fail "the prebuilt op is not found: $(cat "$work/out")"
grep -q "^cpu_lion  *no  *no .*/no/such/compiler" "$work/out" || fail "no reason for cpu_lion: $(cat "$work/out")"
# One that others could have written is none.
chmod 775 "$work/prefix/lib/anyaccel/ops"
CXX=/no/such/compiler "$work/prefix/bin/anyaccel" build-ops --list >"$work/out" 2>"$work/err" || fail "$(cat "$work/err")"
grep -q "^cpu_adam  *no  *no" "$work/out" || fail "a prebuilt op that others could write is used: $(cat "$work/out")"
grep -q "prebuilt ops are not used, because $work/prefix/lib/anyaccel/ops can be written by its group" "$work/err" ||
  fail "it is not said why: $(cat "$work/err")"
[ "$(grep -c 'prebuilt ops are not used' "$work/err")" = 1 ] || fail "it is said more than once"
echo "build-ops: ok"
