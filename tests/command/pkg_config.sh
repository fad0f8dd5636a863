# The program of the README compiles with plain `g++ $(pkg-config --cflags --libs anyaccel)` against the installed package, runs,
# and finds the files of the package that it was compiled with.
source=$2
build=$3
fail() { echo "FAILED: $1"; exit 1; }
command -v pkg-config >/dev/null || { echo "skipped: pkg-config is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sh "$source/tools/install_build" "$build" "$work/prefix" >"$work/log" 2>&1 || fail "install: $(cat "$work/log")"
export PKG_CONFIG_PATH="$work/prefix/lib/pkgconfig"
version=$(sed -n 's/^project(anyaccel VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")
[ "$(pkg-config --modversion anyaccel)" = "$version" ] || fail "the version is $(pkg-config --modversion anyaccel)"

sed -n '/^```cpp/,/^```/p' "$source/README.md" | sed '/^```/d' >"$work/readme.cpp"
cat >"$work/files.cpp" <<'C'
#include <anyaccel/accelerator.h>
#include <cstdio>
int main() { std::puts(anyaccel::get_accelerator()->op_builder_dir().c_str()); }
C
# Sanitizers of the library must be those of the program.
flags=$(sed -n 's/^ANYACCEL_SANITIZE:STRING=\(..*\)/-fsanitize=\1/p' "$build/CMakeCache.txt")
cd "$work" || exit 1
for program in readme files; do
  # shellcheck disable=SC2046,SC2086
  g++ $flags $program.cpp -o $program $(pkg-config --cflags --libs anyaccel) >log 2>&1 || fail "compiling $program: $(cat log)"
done
./readme >log 2>&1 || fail "running: $(cat log)"
folder=$(DS_ACCELERATOR=cpu ./files 2>log) || fail "running: $(cat log)"
[ "$folder" = "$work/prefix/share/anyaccel/kernels" ] || fail "sources of ops are taken from $folder"

# Programs that do not find the package say where it was looked for. The source tree, which exists here, is hidden.
cat >"$work/adam.cpp" <<'C'
#include <anyaccel/accelerator.h>
#include <anyaccel/error.h>
#include <anyaccel/op_builder.h>
#include <cstdio>
int main() try {
  anyaccel::get_accelerator()->create_op_builder("CPUAdamBuilder")->load();
} catch (const anyaccel::Error& error) {
  std::puts(error.what());
}
C
if unshare -m mount -t tmpfs none "$source" 2>log; then
  libs=$(pkg-config --libs anyaccel)
  # shellcheck disable=SC2086
  g++ $flags -std=c++20 adam.cpp -o relative -Iprefix/include $libs >log 2>&1 || fail "compiling with a relative path: $(cat log)"
  # shellcheck disable=SC2086
  g++ $flags -std=c++20 adam.cpp -o moved "-I$work/prefix/include" $libs >log 2>&1 || fail "compiling: $(cat log)"
  mv prefix elsewhere
  hidden() { DS_ACCELERATOR=cpu unshare -m sh -c 'mount -t tmpfs none "$1" && "$2"' sh "$source" "$1" >log 2>&1; }
  hidden ./relative && grep -q "compiled with the relative path prefix/include" log || fail "a relative path: $(cat log)"
  hidden ./moved && grep -q "in $work/prefix, with whose headers it was compiled" log || fail "a moved package: $(cat log)"
else
  echo "not tested, needs root: a program whose package is not where it was compiled"
fi
echo "pkg-config: ok"
