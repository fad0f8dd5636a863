# Sourced by tests/simulated/common.sh: hpu on the simulated Synapse of build/*/simulators/habana.
libraries=$3/simulators/habana
[ -e "$libraries/libSynapse.so" ] || { echo "skipped: $libraries/libSynapse.so was not built"; exit 77; }
export ANYACCEL_HPU_LIBRARY_PATH=$libraries
unset HABANA_VISIBLE_MODULES HLS_MODULE_ID LOCAL_RANK
# Without a cache folder every process compiles its recipes.
unset ANYACCEL_CACHE_DIR XDG_CACHE_HOME HOME
in_one_process=yes
tokens=3
survived_allocations="1"
lost_commands="1 30 60"
communicator=hccl
all_reduce=hcclAllReduce
any_error='26'
lost_error='lost'
sticky_error='status [0-9]'
bound=$(sed -n '/define ANYACCEL_HPU_FUNCTIONS/,/^struct Api/p' "$2/src/accelerators/hpu/hpu_api.h" | grep -oE 'X\(syn[A-Za-z_0-9]+' |
  cut -c3-)
# In the probe's child process, whose calls are in no report; in hpu_recipes_test.
untouched="synDeviceGetCount synDeviceSynchronize"
more_runs() {
  ANYACCEL_CACHE_DIR=$folder/cache run || fail "a story with recipes in files: $(cat "$folder/err")"
  ANYACCEL_CACHE_DIR=$folder/cache run || fail "a story with recipes from files: $(cat "$folder/err")"
  cp "$report" "$folder/recipes.json"
}
# A process has one module, which is its device 0. Here all processes share the modules of one machine, so that two of them cannot
# have the same.
second=0
export SIM_HABANA_MACHINE=$folder
