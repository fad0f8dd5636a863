# Sourced by tests/simulated/faults.sh: what is CUDA's own.

# A driver that does not start, and why.
expect_error stub 'stub'
expect_error busy 'CUDA_ERROR_DEVICE_UNAVAILABLE.*46'
SIM_DEVICES=0 run
check_error "no device" 'no .*device|no GPU' $?
SIM_CUDA_VERSION=10000 run
check_error "a driver that is too old" '10\.0.*1[0-9]\.[0-9]|1[1-9]\.[0-9].*10\.0' $?
for symbol in cuMemcpyAsync cuLaunchKernel; do expect_error "hide:$symbol" "$symbol"; done

# Devices that another process has: they are listed with the reason, and so is the rest.
SIM_FAULT=busy "$anyaccel" info >"$folder/out" 2>"$folder/err" ||
  fail "info with a device that does not open: $(cat "$folder/err")"
grep -q 'cuda:0 .*cannot be used: .*CUDA_ERROR_DEVICE_UNAVAILABLE' "$folder/out" &&
  grep -q '^ops of InferenceBuilder' "$folder/out" || fail "info with a device that does not open: $(cat "$folder/out")"

# Memory that ops need for themselves is requested only once.
for call in 3 5 7; do expect_either "oom:call=$call" 'memory left.*cuMem'; done

# Errors of the device that stay until the process ends are told once, as what they are.
for command in 1 60; do
  expect_error "launch_failed:command=$command" 'CUDA_ERROR_LAUNCH_FAILED.*719'
  expect_error "ecc:command=$command" 'CUDA_ERROR_ECC_UNCORRECTABLE.*214'
done

# Functions that an older driver lacks.
expect_story hide:cuMemCreate
expect_story hide:cuStreamBeginCapture
expect_story hide:cuLaunchKernelEx
SIM_CUDA_VERSION=12000 run || fail "CUDA 12.0: $(cat "$folder/err")"
[ "$whole" = "$(cat "$folder/out")" ] || fail "CUDA 12.0: another text: $(cat "$folder/out")"

# Compiled kernels: kept for another device, spoilt on disk.
SIM_CUDA_ARCH=80 expect_story 'no_peer'
expect_story 'no_peer'
find "$ANYACCEL_CACHE_DIR" -type f -size +0 | while read -r file; do echo spoilt >"$file"; done
expect_story 'no_peer'

# No compiler: what was compiled before still serves; without that, there is one error that says what was looked for.
# (cuda/nvcc has the kernels compiled by nvcc.)
toolkit=${CUDA_HOME-}
CUDA_HOME=$folder/no_toolkit
export CUDA_HOME
expect_story 'hide:nvrtcCreateProgram'
kept=$ANYACCEL_CACHE_DIR
ANYACCEL_CACHE_DIR=$folder/empty
export ANYACCEL_CACHE_DIR
expect_error 'hide:nvrtcCreateProgram' 'no NVRTC .* and no nvcc'
unset CUDA_HOME
[ -z "$toolkit" ] || export CUDA_HOME="$toolkit"
expect_error 'fail:nvrtcCompileProgram,call=1' 'nvrtc'
ANYACCEL_CACHE_DIR=$kept

# Two versions of cuBLASLt, in either order, and one that does not work.
for path in "$libraries:${libraries}12" "${libraries}12:$libraries"; do
  ANYACCEL_CUDA_LIBRARY_PATH=$path run || fail "two versions of cuBLASLt: $(cat "$folder/err")"
  [ "$whole" = "$(cat "$folder/out")" ] || fail "two versions of cuBLASLt: another text: $(cat "$folder/out")"
  check_report "two versions of cuBLASLt"
done
expect_story 'fail:cublasLtCreate,call=1'
expect_story 'hide:cublasLtMatmul'
