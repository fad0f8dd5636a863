# Sourced by tests/simulated/common.sh: cuda on the simulated libraries of build/*/simulators/cuda. Compiled kernels are kept in
# a folder of the test's own: those of the simulated compiler run on no device.
libraries=$3/simulators/cuda
[ -e "$libraries/libcuda.so.1" ] || { echo "skipped: $libraries/libcuda.so.1 was not built"; exit 77; }
export ANYACCEL_CUDA_LIBRARY_PATH=$libraries ANYACCEL_CACHE_DIR=$folder/cache \
  ANYACCEL_KERNEL_TUNING=group_size=32,lanes=8,subgroup_size=8,items=32,local_memory=16384
unset CUDA_VISIBLE_DEVICES ANYACCEL_CUDA_DEVICES
tokens=3
survived_allocations="1 2"
lost_commands="1 30 60"
any_error='CUDA_ERROR_UNKNOWN.*999'
lost_error='lost|CUDA_ERROR'
sticky_error='CUDA_ERROR_ILLEGAL_ADDRESS.*700'
bound=$(sed -n '/define ANYACCEL_GPU_FUNCTIONS/,/^$/p' "$2/src/accelerators/cuda/platform/gpu_api.h" | grep -oE '"cu[A-Z][A-Za-z0-9]+"' |
  tr -d '"')
untouched=cuFuncSetAttribute # kernels with more than 48 KiB of shared memory: heads of 128 in the tests of attention
# The driver's own count of free memory is used if NVML is missing.
more_runs() {
  SIM_FAULT=hide:nvmlInit_v2 "$anyaccel" info >"$folder/out" 2>&1 || fail "info without NVML: $(cat "$folder/out")"
}
communicator=nccl
all_reduce=ncclAllReduce
