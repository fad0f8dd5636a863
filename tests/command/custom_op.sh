# A user's own op, in a project built against the installed package, is compiled at its first use.
source=$2
build=$3
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ANYACCEL_CACHE_DIR="$work/cache" DS_ACCELERATOR=cpu
sh "$source/tools/install_build" "$build" "$work/prefix" >"$work/log" 2>&1 || fail "install: $(cat "$work/log")"
cp -r "$source/examples/custom_op" "$work/example"
# Sanitizers of the library must be those of the program.
flags=$(sed -n 's/^ANYACCEL_SANITIZE:STRING=\(..*\)/-fsanitize=\1/p' "$build/CMakeCache.txt")
cmake -S "$work/example" -B "$work/example/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_FLAGS="$flags" \
  >"$work/log" 2>&1 && cmake --build "$work/example/build" >>"$work/log" 2>&1 || fail "building: $(cat "$work/log")"
# The same op in a shared library that a program loads: its source lies beside the library, not beside the program.
mkdir "$work/extension"
cat >"$work/extension/extension.cpp" <<'C'
#include <anyaccel/accelerator.h>
#include <anyaccel/op_builder.h>
struct ExtensionRmsBuilder : anyaccel::HostOpBuilder {
  ExtensionRmsBuilder() : HostOpBuilder("ExtensionRmsBuilder") {}
  std::vector<std::string> sources() const override { return {"ops/rms.cpp"}; }
};
AA_REGISTER_OP_BUILDER(ExtensionRmsBuilder)
extern "C" __attribute__((visibility("default"))) float rms_of_ones() {
  auto library = anyaccel::get_accelerator()->create_op_builder("ExtensionRmsBuilder")->load_as<anyaccel::HostOpLibrary>();
  const float x[3] = {1, 1, 1};
  float out = 0;
  library->function<void(float*, const float*, int64_t, int64_t)>("rms_rows")(&out, x, 1, 3);
  return out;
}
C
cat >"$work/extension/main.cpp" <<'C'
#include <dlfcn.h>
#include <cstdio>
int main(int, char** argv) {
  void* library = dlopen(argv[1], RTLD_NOW);
  if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  std::printf("%.1f\n", reinterpret_cast<float (*)()>(dlsym(library, "rms_of_ones"))());
}
C
cat >"$work/extension/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.25)
project(extension LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(anyaccel REQUIRED)
add_library(extension MODULE extension.cpp)
target_link_libraries(extension PRIVATE anyaccel::anyaccel)
add_executable(loader main.cpp)
target_link_libraries(loader PRIVATE ${CMAKE_DL_LIBS})
C
cmake -S "$work/extension" -B "$work/extension/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_FLAGS="$flags" \
  >"$work/log" 2>&1 && cmake --build "$work/extension/build" >>"$work/log" 2>&1 || fail "building: $(cat "$work/log")"
mkdir -p "$work/install/lib/ops"
cp "$work/extension/build/libextension.so" "$work/install/lib/"
cp "$work/example/rms.cpp" "$work/install/lib/ops/"
out=$("$work/extension/build/loader" "$work/install/lib/libextension.so" 2>"$work/err") || fail "extension: $(cat "$work/err")"
[ "$out" = "1.0" ] || fail "the extension's op gave $out: $(cat "$work/err")"
# The installed package is all it may use.
mv "$work/example/build" "$work/elsewhere"
rm -rf "$work/example"
out=$("$work/elsewhere/custom_op" 2>"$work/err") || fail "running: $(cat "$work/err")"
[ "$out" = "1.0000 3.5355" ] || fail "wrong result: $out"
ls "$work/cache/ops/rms_rows/"*.entry >/dev/null 2>&1 || fail "the op is not in the cache"
# From the cache, without a compiler.
out=$(CXX=/no/such/compiler "$work/elsewhere/custom_op" 2>"$work/err") || fail "from the cache: $(cat "$work/err")"
[ "$out" = "1.0000 3.5355" ] || fail "wrong result from the cache: $out"
# A mistake in the source is reported with the compiler's message.
echo "int broken( {" >>"$work/elsewhere/rms.cpp"
"$work/elsewhere/custom_op" >"$work/log" 2>"$work/err" && fail "a broken source built"
grep -q "rms.cpp:.*error" "$work/err" || fail "no words of the compiler: $(cat "$work/err")"
rm "$work/elsewhere/rms.cpp"
"$work/elsewhere/custom_op" >"$work/log" 2>"$work/err" && fail "ran without its source"
grep -q "$work/elsewhere/rms.cpp" "$work/err" || fail "the missing source is not named: $(cat "$work/err")"
echo "custom op: ok"
