# Plugins that are broken in every way: one clear error that names the file, exit code 1, and never a crash.
anyaccel=$1
build=$3
fail() { echo "FAILED: $1"; exit 1; }
err=$(mktemp)
trap 'rm -f "$err"' EXIT

expect() {  # plugin, text
  plugin=$(find "$build/tests/plugins" -name "*$1*.so" | head -1)
  [ -n "$plugin" ] || fail "there is no plugin $1"
  ANYACCEL_PLUGIN_PATH=$plugin DS_ACCELERATOR=xpu.external "$anyaccel" info >/dev/null 2>"$err"
  code=$?
  [ $code = 1 ] || fail "$1: exit code $code, expected 1: $(cat "$err")"
  grep -qiE "$2" "$err" || fail "$1: expected '$2' in: $(cat "$err")"
  grep -q "$1" "$err" || fail "$1: the file is not named: $(cat "$err")"
  # Detection goes on without it.
  ANYACCEL_PLUGIN_PATH=$plugin "$anyaccel" info >/dev/null 2>"$err" || fail "$1: detection failed: $(cat "$err")"
}
expect not_a_library "cannot be opened as a shared library"
expect no_entry "anyaccel_driver_query"
expect wrong_major "version"
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
echo "bad plugins: ok"
