# Sourced by tests/simulated/faults.sh: what is this runtime's own.

# A runtime that cannot be used, and why.
expect_unstarted stub 'synInitialize gives status 26; see hl-smi'
expect_error busy 'no Gaudi module can be acquired: module 0: .*status 8 .*another process has it'
SIM_DEVICES=0 run
check_error "no device" 'shows no device' $?
HABANA_VISIBLE_MODULES=70 run
check_error "no visible module" 'shows no device.*HABANA_VISIBLE_MODULES is "70"' $?
HLS_MODULE_ID=70 run
check_error "a module that is not there" 'shows no device.*HLS_MODULE_ID is "70"' $?
HABANA_VISIBLE_MODULES=0 LOCAL_RANK=1 run
check_error "a rank without a module" 'shows no device.*HABANA_VISIBLE_MODULES is "0".*LOCAL_RANK is "1"' $?
HABANA_VISIBLE_MODULES=0,x run
check_error "no list of modules" 'HABANA_VISIBLE_MODULES is "0,x"; expected numbers of modules' $?
for symbol in synDeviceMalloc synDeviceGetCount; do expect_unstarted "hide:$symbol" "lacks the function $symbol"; done
mkdir "$folder/none"
ANYACCEL_HPU_LIBRARY_PATH=$folder/none run
check_error "no library" "looked for libSynapse.so in $folder/none, " $?

# Functions that a release may lack.
expect_story hide:synStatusGetBriefDescription

# Ops by graphs are there; without the functions of graphs, they run on the CPU (hpu/calls fails each function).
"$anyaccel" info >"$folder/out" 2>&1
for op in linear linear_multi gated_linear activation gated_activation add embedding rope cache_write attention; do
  grep -qE "^  $op +hpu$" "$folder/out" || fail "hpu has no $op: $(cat "$folder/out")"
done
for symbol in synGraphCompile synLaunchExt; do expect_story "hide:$symbol"; done
