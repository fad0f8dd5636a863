# The built-in accelerators pass the suite that any accelerator must pass, with and without layers in between, and the
# reports hold what they should.
anyaccel=$1
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The run that reports on the cpu, below, has no layers.
for run in "null:" "null:validate,trace" "cpu:validate,trace"; do
  out=$(ANYACCEL_LAYERS=${run#*:} ANYACCEL_TRACE_CALLS=/dev/null "$anyaccel" conformance --accelerator "${run%:*}" 2>&1) ||
    fail "$run: $(echo "$out" | grep -A1 ' fail ' | head -20)"
done

# Plugins that were compiled against the headers of version 1 are rejected with an error that names both versions, and
# detection continues.
if [ "$(uname -m)" = x86_64 ]; then
  for plugin in "$2"/tests/data/plugins/*-x86_64.so; do
    out=$("$anyaccel" conformance --plugin "$plugin" 2>&1) && fail "$plugin was accepted"
    echo "$out" | grep -q "it speaks version 1\.[0-9] of the plugin interface; this program speaks 2\.0" ||
      fail "$plugin: no word of versions: $out"
    ANYACCEL_PLUGIN_PATH=$plugin "$anyaccel" info 2>/dev/null | grep -q "^accelerator: " ||
      fail "$plugin stops detection"
  done
fi

# Every op is measured, against a limit that the report states, and every function of the core table is called.
"$anyaccel" conformance --accelerator cpu --json --junit "$work/junit.xml" >"$work/report.json" 2>"$work/err" ||
  fail "cpu: $(cat "$work/err")"
python3 - "$work" <<'PYTHON' || fail "the reports of the cpu"
import json, sys, xml.etree.ElementTree as tree
report = json.load(open(sys.argv[1] + "/report.json"))
cases = report["cases"]
assert report["totals"]["fail"] == 0 and report["totals"]["pass"] > 100, report["totals"]
assert sum(report["totals"].values()) == len(cases)
ops = """embedding rms_norm layer_norm linear linear_multi gated_linear rope_table rope cache_write attention activation
gated_activation softmax add copy increment argmax repetition_penalty sample random
frequency_penalty""".split()
for op in ops:
    measured = [c for c in cases if c["group"] == "op." + op and c["outcome"] == "pass" and "by driver" in c["message"]]
    assert measured, "nothing was measured of " + op
calls = {(c["table"], c["function"]): c["calls"] for c in report["coverage"]}
assert len([f for t, f in calls if t == "driver"]) == 33
without = [f for (t, f), n in calls.items() if t in ("driver", "graph", "ops", "host_memory", "host_code") and n == 0]
# The CPU has no kernels, and packs no weights.
assert sorted(without) == ["kernel_get", "kernel_launch", "module_unload", "pack", "packed_destroy", "unpack"], without
suite = tree.parse(sys.argv[1] + "/junit.xml").getroot()
assert int(suite.get("tests")) == len(cases) == len(suite.findall("testcase"))
assert int(suite.get("skipped")) == report["totals"]["unsupported"] + report["totals"]["unavailable"]
PYTHON
"$anyaccel" conformance --accelerator null --coverage --filter copies 2>/dev/null | grep -q "^driver *copy_async *[1-9]" ||
  fail "--coverage prints no table"
"$anyaccel" conformance --accelerator null --filter copies --junit "$work/none/junit.xml" >/dev/null 2>&1 &&
  fail "a report that cannot be written is no error"
"$anyaccel" conformance --accelerator nonsense >/dev/null 2>&1 && fail "an unknown accelerator passes"

# A driver that is broken in one place fails: the plugin that others start from, with mistakes made in a copy of it.
repository=$2
source=$repository/tests/plugins/minimal/minimal.c
broken() {  # the case that must notice it, and a sed script that makes the mistake
  sed "$2" "$source" >"$work/broken.c"
  cmp -s "$source" "$work/broken.c" && fail "the mistake '$2' changes nothing in $source"
  cc -std=c11 -shared -fPIC -I "$repository/include" -o "$work/broken.so" "$work/broken.c" 2>"$work/err" ||
    fail "compiling the mistake '$2': $(cat "$work/err")"
  "$anyaccel" conformance --plugin "$work/broken.so" --failures >"$work/log" 2>/dev/null && fail "the mistake '$2' passes"
  grep -q "fail  *$1" "$work/log" || fail "the mistake '$2' is not noticed by $1: $(cat "$work/log")"
}
broken there_and_back 's/i < what->size; ++i) to/i + 1 < what->size; ++i) to/'
broken within_the_device 's/memcpy(to, from, what->size);/memcpy(to, from, what->size - 1);/'
broken unknown_kind_is_refused 's/AA_UNIMPLEMENTED, "there is only device memory"/AA_INTERNAL, "there is only device memory"/'
broken refuses_bad_index 's/"there is only device 0"/""/'
broken alloc_is_aligned_and_apart 's/\.alignment = alignment,/.alignment = 1 << 20,/'
broken closes_without_error '/device_close(void/,/^}/s/return NULL/return fail(AA_INTERNAL, "stays open")/'
# What the host does not use of a plugin is said once, not for every case.
sed 's|^static const aa_driver driver = {|static const aa_op_builder misnamed = {.struct_size = sizeof(aa_op_builder), .name = "nonsense"};\
static const aa_op_builder* const builders[] = {\&misnamed, NULL};\
&\
    .op_builders = builders,|' "$source" >"$work/builders.c"
cc -std=c11 -shared -fPIC -I "$repository/include" -o "$work/builders.so" "$work/builders.c" 2>"$work/err" ||
  fail "compiling a plugin with a builder: $(cat "$work/err")"
"$anyaccel" conformance --plugin "$work/builders.so" --filter op. >/dev/null 2>"$work/err" ||
  fail "a plugin with a misnamed builder fails: $(cat "$work/err")"
[ "$(grep -c 'op builder 0 of .* is not used' "$work/err")" = 1 ] || fail "not one warning: $(cat "$work/err")"
echo "conformance: ok"
