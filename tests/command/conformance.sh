# The built-in accelerators pass the suite that any accelerator must pass, with and without layers in between.
anyaccel=$1
fail() { echo "FAILED: $1"; exit 1; }
for name in cpu null; do
  for layers in "" validate validate,trace; do
    out=$(ANYACCEL_LAYERS=$layers ANYACCEL_TRACE_CALLS=/dev/null "$anyaccel" conformance --accelerator $name 2>&1) ||
      fail "$name with layers '$layers': $(echo "$out" | grep -i fail | head -20)"
  done
done
# Plugins that were compiled against older headers.
if [ "$(uname -m)" = x86_64 ]; then
  for plugin in "$2"/tests/data/plugins/*-x86_64.so; do
    out=$("$anyaccel" conformance --plugin "$plugin" 2>&1) || fail "$plugin: $(echo "$out" | grep -i fail | head -20)"
    ANYACCEL_PLUGIN_PATH=$plugin "$anyaccel" info 2>/dev/null | grep -q "^accelerator: xpu.external" ||
      fail "$plugin does not take part in detection"
  done
fi
"$anyaccel" conformance --accelerator nonsense >/dev/null 2>&1 && fail "an unknown accelerator passes"
echo "conformance: ok"
