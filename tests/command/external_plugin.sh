# An accelerator of its own project, built outside the source tree from the installed headers only, that can do nothing
# but allocate and copy: chosen by DS_ACCELERATOR=xpu.external, it generates the same greedy text as the CPU in fp32.
anyaccel=$1
source=$2
build=$3
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
export HOME="$work/home"
trap 'rm -rf "$work"' EXIT

sh "$source/tools/install_build" "$build" "$work/prefix" >"$work/log" 2>&1 || fail "install: $(cat "$work/log")"
cp -r "$source/tests/plugins/minimal" "$work/minimal"
cmake -S "$work/minimal" -B "$work/build" -DANYACCEL_INCLUDE_DIR="$work/prefix/include" >"$work/log" 2>&1 &&
  cmake --build "$work/build" >>"$work/log" 2>&1 || fail "building the plugin: $(cat "$work/log")"
plugin=$(find "$work/build" -name '*.so' | head -1)
[ -n "$plugin" ] || fail "no plugin was built"

story() { "$anyaccel" generate --model "$source/models/stories" --dtype fp32 --greedy --prompt "The little fox" \
  --max-new-tokens 24 2>"$work/err"; }
cpu=$(DS_ACCELERATOR=cpu story) || fail "cpu: $(cat "$work/err")"
export ANYACCEL_PLUGIN_PATH="$plugin"
external=$(DS_ACCELERATOR=xpu.external story) || fail "plugin: $(cat "$work/err")"
grep -q "xpu.external" "$work/err" || fail "the plugin was not chosen: $(cat "$work/err")"
grep -q "ANYACCEL_FALLBACK" "$work/err" || fail "falling back to the CPU was not said: $(cat "$work/err")"
[ -n "$cpu" ] && [ "$cpu" = "$external" ] || fail "the texts differ: '$cpu' and '$external'"

# Two ranks, which exchange tensors through the host, since this plugin has no communicator.
two=$(DS_ACCELERATOR=xpu.external timeout 300 "$anyaccel" launch --num_accelerators 2 "$anyaccel" generate --model \
  "$source/models/stories" --dtype fp32 --greedy --prompt "The little fox" --max-new-tokens 24 2>"$work/err") ||
  fail "two ranks: $(cat "$work/err")"
[ "$cpu" = "$two" ] || fail "two ranks write another text: '$cpu' and '$two'"
grep -q "accelerator: xpu.external" "$work/err" || fail "two ranks on another accelerator: $(cat "$work/err")"

# Without being forced it is the first in the order.
"$anyaccel" info 2>/dev/null | grep -q "^accelerator: xpu.external" || fail "the plugin is not found by detection"
"$anyaccel" info >"$work/log" 2>/dev/null
grep -q "xpu.external *usable.*(plugin $plugin, priority 100)" "$work/log" || fail "info does not name the file: $(cat "$work/log")"
grep -q "NAME.external is a plugin that calls itself NAME" "$work/log" || fail "info does not explain the name: $(cat "$work/log")"
grep -q "Plugins are looked for in ANYACCEL_PLUGIN_PATH (\"$plugin\"), $HOME/.local/lib/anyaccel/plugins (" "$work/log" ||
  fail "info does not say where plugins are looked for: $(cat "$work/log")"
# An op it lacks is an error when falling back is forbidden.
ANYACCEL_FALLBACK=error DS_ACCELERATOR=xpu.external story && fail "fell back although that was forbidden"
grep -q "has no op" "$work/err" || fail "no reason: $(cat "$work/err")"
# The suite that any accelerator must pass.
"$anyaccel" conformance --plugin "$plugin" >"$work/log" 2>&1 || fail "conformance: $(cat "$work/log")"
# The layers stand between without changing anything.
layered=$(ANYACCEL_LAYERS=validate DS_ACCELERATOR=xpu.external story) || fail "validate: $(cat "$work/err")"
[ "$cpu" = "$layered" ] || fail "the text differs under the validate layer"
# The installed command finds a plugin in the install's own folder.
unset ANYACCEL_PLUGIN_PATH
cp "$plugin" "$work/prefix/lib/anyaccel/plugins/" 2>/dev/null ||
  cp "$plugin" "$(find "$work/prefix" -type d -name plugins | head -1)/"
"$work/prefix/bin/anyaccel" info 2>/dev/null | grep -q "^accelerator: xpu.external" || fail "not found in the install's folder"
echo "external plugin: ok"
