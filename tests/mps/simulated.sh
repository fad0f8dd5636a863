# Sourced by tests/simulated/common.sh: mps on the simulated Metal of build/*/simulators/apple. The portable kernels run there as
# they were compiled for the host, in groups of 32.
libraries=$3/simulators/apple
[ -e "$libraries/Metal" ] || { echo "skipped: $libraries/Metal was not built"; exit 77; }
export ANYACCEL_MPS_LIBRARY_PATH=$libraries ANYACCEL_CACHE_DIR=$folder/cache \
  ANYACCEL_KERNEL_TUNING=group_size=32,lanes=8,subgroup_size=8,items=32,local_memory=16384
tokens=3
options=--no-mmap # weights that stay in their file need no device memory
survived_allocations="2 3" # the first is a part of opening the device
lost_commands="1 30 60"
communicator=gloo # Metal has none
any_error='Metal|metal compiler|no kernel|work on the stream failed'
lost_error='lost'
sticky_error='work on the stream failed'
bound=$(sed -n '/define ANYACCEL_METAL_SELECTORS/,/^struct/p' "$2/src/accelerators/mps/objc.h" | grep -oE '"[A-Za-z:0-9]+"' | tr -d '"')
untouched="code error" # after a failure: tests/mps/faults.sh
# Metal runs what it compiled; the simulator has the portable kernels only.
left_out='!kernels.compiles_loads,!kernels.unknown_flags,!kernels.arguments,!kernels.grids,!kernels.modules_are,!kernels.launches'
more_runs() { :; }
