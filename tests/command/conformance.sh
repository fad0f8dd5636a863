# The built-in accelerators pass the suite that any accelerator must pass, with and without layers in between.
anyaccel=$1
fail() { echo "FAILED: $1"; exit 1; }
for name in cpu null; do
  for layers in "" validate validate,trace; do
    out=$(ANYACCEL_LAYERS=$layers ANYACCEL_TRACE_CALLS=/dev/null "$anyaccel" conformance --accelerator $name 2>&1) ||
      fail "$name with layers '$layers': $(echo "$out" | grep -i fail | head -20)"
  done
done
"$anyaccel" conformance --accelerator nonsense >/dev/null 2>&1 && fail "an unknown accelerator passes"
echo "conformance: ok"
