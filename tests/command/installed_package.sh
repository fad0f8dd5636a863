# The programs of the README and of docs/library.md, one with the conformance suite, and examples/train build outside the tree against
# the installed package, and run.
# The programs' CMakeLists.txt chooses no version of C++: anyaccel::anyaccel brings the one that its headers need.
source=$2
build=$3
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sh "$source/tools/install_build" "$build" "$work/prefix" >"$work/log" 2>&1 || fail "install: $(cat "$work/log")"
# The pages that the command's help and its messages name are there.
pages=0
for command in generate chat quantize perplexity embed tokenize launch; do
  for page in $("$work/prefix/bin/anyaccel" $command --help | grep -oE 'docs/[a-z_]+\.md' | sort -u); do
    [ -f "$work/prefix/share/doc/anyaccel-tools/$page" ] || fail "$command --help names $page, which is not installed"
    pages=$((pages + 1))
  done
done
[ "$pages" -ge 5 ] || fail "the help of the commands names $pages pages"
for page in $(grep -rhoE '"[^"]*docs/[a-z_]+\.md' "$source/src" | grep -oE 'docs/[a-z_]+\.md' | sort -u); do
  [ -f "$work/prefix/share/doc/anyaccel-tools/$page" ] || fail "a message names $page, which is not installed"
done
sed -n '/^```cpp/,/^```/p' "$source/README.md" | sed '/^```/d' >"$work/main.cpp"
[ -s "$work/main.cpp" ] || fail "there is no program in the README"
sed -n '/^```cpp/,/^```/p' "$source/docs/library.md" | sed '/^```/d' >"$work/answer.cpp"
[ -s "$work/answer.cpp" ] || fail "there is no program in docs/library.md"
cat >"$work/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.25)
project(readme LANGUAGES CXX)
find_package(anyaccel REQUIRED)
add_executable(readme main.cpp)
target_link_libraries(readme PRIVATE anyaccel::anyaccel)
add_executable(answer answer.cpp)
target_link_libraries(answer PRIVATE anyaccel::anyaccel)
add_executable(suite suite.cpp)
target_link_libraries(suite PRIVATE anyaccel::conformance)
C
cat >"$work/suite.cpp" <<'C'
#include <anyaccel/conformance/suite.h>
#include <cstdio>
int main() { std::puts(anyaccel::conformance::conformance_cases().front().c_str()); }
C
# Sanitizers of the library must be those of the program.
flags=$(sed -n 's/^ANYACCEL_SANITIZE:STRING=\(..*\)/-fsanitize=\1/p' "$build/CMakeCache.txt")
# Every header that is installed includes only what is installed too. (That headers of include/ compile alone is tested apart.)
(cd "$work/prefix/include" && find anyaccel -name '*.h' -o -name '*.hpp') | sed 's/.*/#include <&>/' >"$work/headers.cpp"
g++ -std=c++20 $flags -M -I"$work/prefix/include" "$work/headers.cpp" >"$work/log" 2>&1 || fail "headers: $(grep error "$work/log")"
# A library that is elsewhere is found, and the message of one that is nowhere names it.
targets=$work/prefix/lib/cmake/anyaccel/anyaccel_targets.cmake
cp "$targets" "$work/targets"
sed -i 's#/[^;>,"]*/libutf8proc\.a#/nowhere/libnothing_of_this_name.a#' "$targets"
cmake -S "$work" -B "$work/incomplete" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/log" 2>&1 && fail "a library is missing, and CMake did not say so"
tr -s ' \n' ' ' <"$work/log" | grep -q 'link libnothing_of_this_name.a, which this machine does not have: install' ||
  fail "a missing library: $(cat "$work/log")"
# A project that can do without it sees no target of it.
mkdir "$work/optional"
cat >"$work/optional/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.25)
project(optional LANGUAGES CXX)
find_package(anyaccel QUIET)
foreach(library anyaccel nn conformance plugin)
  if(anyaccel_FOUND OR TARGET anyaccel::${library})
    message(FATAL_ERROR "found: '${anyaccel_FOUND}', and anyaccel::${library} is a target")
  endif()
endforeach()
C
cmake -S "$work/optional" -B "$work/without" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/log" 2>&1 ||
  fail "a missing library of an optional package: $(cat "$work/log")"
sed 's#/[^;>,"]*/libutf8proc\.a#/nowhere/libutf8proc.a#' "$work/targets" >"$targets"
cmake -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_FLAGS="$flags" >"$work/log" 2>&1 &&
  cmake --build "$work/build" >>"$work/log" 2>&1 || fail "building: $(cat "$work/log")"
first=$("$work/prefix/bin/anyaccel" conformance --list | head -1)
[ -n "$first" ] && [ "$("$work/build/suite")" = "$first" ] || fail "a program with the conformance suite: $("$work/build/suite" 2>&1)"
"$work/build/readme" >"$work/log" 2>&1 || fail "running: $(cat "$work/log")"
text=$(DS_ACCELERATOR=cpu "$work/build/answer" "$source/models/stories" "Once upon a time" 2>"$work/log") && [ -n "$text" ] ||
  fail "docs/library.md: $(cat "$work/log")"
# It includes no anyaccel/accelerator.h and lies outside the package, and still finds the package's files.
DS_ACCELERATOR=none "$work/build/answer" "$source/models/stories" x 2>&1 | grep -q "$work/prefix/lib/anyaccel/plugins" ||
  fail "a program outside the package looks elsewhere: $(DS_ACCELERATOR=none "$work/build/answer" "$source/models/stories" x 2>&1)"
cmake -S "$source/examples/train" -B "$work/train" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_FLAGS="$flags" \
  -DCMAKE_BUILD_TYPE=Debug >"$work/log" 2>&1 && cmake --build "$work/train" -j 2 >>"$work/log" 2>&1 ||
  fail "building examples/train: $(cat "$work/log")"
DS_ACCELERATOR=cpu "$work/train/anyaccel_train" "$work/out" --steps 2 --hidden 16 --layers 1 --heads 2 --kv-heads 1 \
  --intermediate 16 --batch 2 --length 16 >"$work/log" 2>&1 || fail "training: $(cat "$work/log")"
grep -q '^step 2: loss 5\.' "$work/log" || fail "training said: $(cat "$work/log")"
echo "installed package: ok"
