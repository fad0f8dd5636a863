# The asynchronous reference driver as a plugin: models generate the CPU's text on it, also while it holds work back;
# reports are written whatever becomes of it; and detection continues if it cannot be opened.
anyaccel=$1
model=$2/models/stories
plugin=$3/tests/plugins/reference_async.so
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ANYACCEL_PLUGIN_PATH="$plugin"

story() {  # accelerator
  DS_ACCELERATOR=$1 "$anyaccel" generate --model "$model" --prompt "Once upon a time" --temperature 0 --max-new-tokens 16 \
    2>"$work/err" || fail "$1: $(cat "$work/err")"
}
story cpu >"$work/cpu"
story reference.async >"$work/reference"
ANYACCEL_REFERENCE_ASYNC_OPTIONS=lazy=1 story reference.async >"$work/lazy"
# One that can only allocate, copy and synchronize: ops run on the CPU, and the rest is the host's answer.
ANYACCEL_REFERENCE_ASYNC_OPTIONS=leaves_out=all story reference.async >"$work/copies"
cmp "$work/cpu" "$work/copies" || fail "another text than the CPU's on a driver that only copies: $(cat "$work/copies")"
cmp "$work/cpu" "$work/reference" || fail "another text than the CPU's: $(cat "$work/reference")"
cmp "$work/cpu" "$work/lazy" || fail "another text than the CPU's while work is held back: $(cat "$work/lazy")"

# Found by detection, and then tested in a process that has not opened it.
"$anyaccel" conformance --filter copies. >"$work/out" 2>&1 || fail "conformance of the detected plugin: $(cat "$work/out")"
grep -q "^reference.async" "$work/out" || fail "the plugin was not detected: $(cat "$work/out")"

# Its second kind of memory is listed.
DS_ACCELERATOR=reference.async "$anyaccel" info >"$work/out" 2>&1 || fail "info: $(cat "$work/out")"
grep -q 'memory "spare": .* of .* free, for ops and copies$' "$work/out" || fail "no kinds of memory: $(cat "$work/out")"
# So are its settings.
grep -q '^settings, in ANYACCEL_REFERENCE_ASYNC_OPTIONS=' "$work/out" || fail "no settings: $(cat "$work/out")"
grep -q '^  lazy  *1: hold work back until it is released (default: 0)$' "$work/out" || fail "no setting: $(cat "$work/out")"

# Reports are written when nothing could be run.
REFERENCE_ASYNC_MUTATION=initialize_crashes "$anyaccel" conformance --plugin "$plugin" --json --junit "$work/junit.xml" \
  >"$work/out" 2>/dev/null && fail "a driver that crashes when it is opened passes"
grep -q '"life"' "$work/out" || fail "no JSON: $(cat "$work/out")"
grep -q 'name="opens".*died of signal 6' "$work/junit.xml" || fail "no report: $(cat "$work/junit.xml")"

# Usable, says the probe, and cannot be opened: the next accelerator is taken, and info says why.
REFERENCE_ASYNC_MUTATION=initialize_finds_nothing "$anyaccel" info >"$work/out" 2>"$work/err" ||
  fail "info with a plugin that cannot be opened: $(cat "$work/err")"
grep -q "^accelerator: reference" "$work/out" && fail "a plugin that cannot be opened was taken: $(cat "$work/out")"
tr -s ' \n' ' ' <"$work/out" | grep -q "cannot be opened: .*no device after all" || fail "info does not say why: $(cat "$work/out")"
grep -q "is passed over: .*no device after all" "$work/err" || fail "no warning: $(cat "$work/err")"
echo "reference driver: ok"
