# Plugins that are broken in every way: one clear error that names the file, exit code 1, and never a crash.
anyaccel=$1
build=$3
fail() { echo "FAILED: $1"; exit 1; }
err=$(mktemp)
dir=$(mktemp -d)
trap 'rm -rf "$err" "$dir"' EXIT

expect() {  # plugin, text
  plugin=$(find "$build/tests/plugins" -name "*$1*.so" | head -1)
  [ -n "$plugin" ] || fail "there is no plugin $1"
  ANYACCEL_PLUGIN_PATH=$plugin DS_ACCELERATOR=xpu.external "$anyaccel" info >/dev/null 2>"$err"
  code=$?
  [ $code = 1 ] || fail "$1: exit code $code, expected 1: $(cat "$err")"
  grep -qiE "$2" "$err" || fail "$1: expected '$2' in: $(cat "$err")"
  grep -q "$1" "$err" || fail "$1: the file is not named: $(cat "$err")"
  # Detection continues without it.
  ANYACCEL_PLUGIN_PATH=$plugin "$anyaccel" info >/dev/null 2>"$err" || fail "$1: detection failed: $(cat "$err")"
}
expect not_a_library "cannot be opened as a shared library"
expect no_entry "anyaccel_driver_query"
expect wrong_major "version"
expect version_1 "it speaks version 1.3 of the plugin interface"
expect throws_from_query "threw"

# Probes that misbehave are reasons, not crashes.
for name in garbage_probe throws_from_probe; do
  plugin=$(find "$build/tests/plugins" -name "*$name*.so" | head -1)
  [ -n "$plugin" ] || fail "there is no plugin $name"
  ANYACCEL_PLUGIN_PATH=$plugin DS_ACCELERATOR=xpu.external "$anyaccel" info >/dev/null 2>"$err"
  code=$?
  [ $code = 1 ] || fail "$name: exit code $code: $(cat "$err")"
  grep -qE "nonsense|threw" "$err" || fail "$name: no reason: $(cat "$err")"
  grep -q "$name" "$err" || fail "$name: the file is not named: $(cat "$err")"
done
# Named on the command line, and no library at all: one line, and nothing is waited for.
refused() {  # file, text
  timeout 100 "$anyaccel" conformance --plugin "$1" >/dev/null 2>"$err"
  code=$?
  [ $code = 1 ] || fail "$1: exit code $code: $(cat "$err")"
  [ "$(wc -l <"$err")" = 1 ] || fail "$1: more than a line: $(cat "$err")"
  grep -qF "plugin \"$1\": " "$err" || fail "$1: the file is not named: $(cat "$err")"
  grep -qF "$2" "$err" || fail "$1: expected '$2' in: $(cat "$err")"
}
mkfifo "$dir/pipe"
cp "$build/tests/plugins/minimal.so" "$dir/whole.so"
chmod 755 "$dir/whole.so"
head -c 3000 "$dir/whole.so" >"$dir/part.so"
cp "$dir/whole.so" "$dir/open.so"
chmod 777 "$dir/open.so"
refused "$dir/pipe" "is a named pipe, not a file"
refused /dev/zero "is a device, not a file"
refused "$dir" "is a folder, not a file"
refused "$dir/part.so" "it is cut off"
refused "$dir/open.so" "can be written by everybody (mode 777), so that another user could put code there. Cure: chmod go-w"
refused "$build/tests/plugins/data_entry.so" "is data, not a function"
refused "$build/tests/plugins/untyped_entry.so" "is data, not a function"
cd "$dir" || exit 1
"$anyaccel" conformance --plugin whole.so --filter memory >/dev/null 2>"$err" || fail "a bare name: $(cat "$err")"
ANYACCEL_PLUGIN_PATH=whole.so "$anyaccel" info >"$err" 2>&1
grep -qF "accelerator: xpu.external (minimal device" "$err" || fail "a bare name in the variable: $(cat "$err")"
echo "bad plugins: ok"
