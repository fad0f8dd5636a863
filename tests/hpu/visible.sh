# Sourced by tests/simulated/visible.sh: modules in any order, of which a process has one. Synapse reads no variable: the driver does, and
# refuses what is no list. An empty list is none.
variable=HABANA_VISIBLE_MODULES
shows_all '' 1
shows_all 0,1,2 1
shows_all 2,0 1
shows_all 7,1 1
shows_none 7 "$variable is \"7\""
shows_none 0,x "$variable is \"0,x\"; expected numbers of modules, each once"
shows_none 0, "$variable is \"0,\"; expected numbers of modules, each once"
shows_none '0, 1' "$variable is \"0, 1\"; expected numbers of modules, each once"
shows_none -1 "$variable is \"-1\"; expected numbers of modules, each once"
shows_none 1,1 "$variable is \"1,1\"; expected numbers of modules, each once"

# The list is in its own order: of two ranks the first has module 2 and the second module 0, and a third rank has none.
ranks() { timeout 300 "$anyaccel" launch --num_accelerators "$1" "$anyaccel" generate --model "$model" --prompt Once --greedy --max-new-tokens 1; }
HABANA_VISIBLE_MODULES=2,0 ranks 2 >"$folder/out" 2>"$folder/err" || fail "two ranks: $(cat "$folder/err")"
for module in 0 2; do [ -e "$SIM_HABANA_MACHINE/module-$module" ] || fail "module $module was not used"; done
if HABANA_VISIBLE_MODULES=2,0 ranks 3 >"$folder/out" 2>"$folder/err"; then fail "three ranks on two modules"; fi
grep -q 'HABANA_VISIBLE_MODULES is "2,0".*LOCAL_RANK is "2"' "$folder/err" || fail "three ranks on two modules: $(cat "$folder/err")"

# A module belongs to one process: if two want the same one, the second gets an error that says so, and the job ends.
rm -f "$SIM_HABANA_MACHINE"/module-*
if HLS_MODULE_ID=1 ranks 2 >"$folder/out" 2>"$folder/err"; then fail "two processes had one module"; fi
grep -q 'no Gaudi module can be acquired: module 1: synDeviceAcquireByModuleId gave status 8 .*: another process has it. See hl-smi' \
  "$folder/err" || fail "two processes with one module: $(cat "$folder/err")"
# Once it has ended the module is free, for the first of the list.
HLS_MODULE_ID=1 ranks 1 >"$folder/out" 2>"$folder/err" || fail "the module is not free again: $(cat "$folder/err")"
