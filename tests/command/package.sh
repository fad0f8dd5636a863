# The portable tarball, unpacked anywhere: the command finds its libraries, kernels and model there, and needs nothing of this
# source tree or of the machine but glibc. The test package/tarball has made it by tools/package from this build.
anyaccel=$1
source=$2
build=$3
fail() { echo "FAILED: $1"; exit 1; }
[ -d "$build/tested_package" ] || { echo "skipped: no tarball of the test package/tarball, or not build/release"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

tar -C "$folder" -xJf "$build"/tested_package/anyaccel-*.tar.xz || fail "the tarball cannot be unpacked"
cd "$folder"/anyaccel-* || fail "the tarball holds no folder of its name"
# It was made with a umask of 077.
unreadable=$(tar -tvJf "$build"/tested_package/anyaccel-*.tar.xz | grep -vE '^(-r..r..r..|drwxr-xr-x|l)' | head -3)
[ -z "$unreadable" ] || fail "not everybody may read what is in the tarball: $unreadable"

gloo=lib/anyaccel/libanyaccel_gloo.so  # opened by name, with what it needs beside it
[ ! -e "$build/$gloo" ] || [ -e $gloo ] || fail "$gloo is missing"
for program in bin/* tests/* $(find $gloo 2>/dev/null); do
  ldd "$program" | awk '$2 == "=>" {print $1, $3}' | while read -r name file; do
    case $name:$file in
      *:"$PWD"/*) ;;
      libc.so.6:* | libm.so.6:* | libpthread.so.0:* | libdl.so.2:* | librt.so.1:*) ;;
      *) echo "$program takes $name from $file" ;;
    esac
  done
done >"$folder/foreign"
[ ! -s "$folder/foreign" ] || fail "$(cat "$folder/foreign")"

words=$(env -i HOME="$folder" PATH=/usr/bin:/bin DS_ACCELERATOR=cpu bin/anyaccel generate --model share/anyaccel/models/stories \
  --prompt "Once upon a time" --max-new-tokens 8 2>"$folder/err") || fail "generate: $(cat "$folder/err")"
here=$(DS_ACCELERATOR=cpu "$anyaccel" generate --model "$source/models/stories" --prompt "Once upon a time" --max-new-tokens 8 2>/dev/null)
[ "$words" = "$here" ] || fail "another text: $words"
env -i HOME="$folder" PATH=/usr/bin:/bin DS_ACCELERATOR=cpu bin/anyaccel conformance >"$folder/out" 2>&1 ||
  fail "conformance: $(tail -5 "$folder/out")"
env -i HOME="$folder" PATH=/usr/bin:/bin DS_ACCELERATOR=cpu ANYACCEL_TEST_ACCELERATOR=cpu ANYACCEL_TEST_SOURCE_DIR="$PWD/share/anyaccel" \
  tests/model_test --gtest_brief=1 >"$folder/out" 2>&1 || fail "model_test of the tarball: $(tail -5 "$folder/out")"
echo "package: ok"
