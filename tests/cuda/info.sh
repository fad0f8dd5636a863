# Tests what `anyaccel info` reports of the cuda accelerator with and without a working driver: sh info.sh ANYACCEL
# SOURCE BUILD. Each answer says what is the matter and what to do. Drivers are the simulated one and the CUDA toolkit's stub.
anyaccel=$1
libraries=$3/simulators/cuda
for library in libcuda.so.1 libnvidia-ml.so.1 libnvrtc.so.13; do
  [ -e "$libraries/$library" ] || { echo "skipped: $libraries/$library was not built"; exit 77; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $1"; exit 1; }
unset DS_ACCELERATOR CUDA_VISIBLE_DEVICES ANYACCEL_CUDA_DEVICES SIM_FAULT SIM_DEVICES ANYACCEL_LAYERS
export ANYACCEL_CUDA_LIBRARY_PATH=$libraries ANYACCEL_CACHE_DIR=$folder/cache SIM_MEMORY=256m
# A real driver would be found where a case wants none.
real_driver() { ls /dev/nvidia* /dev/dxg /dev/kfd >/dev/null 2>&1; }

# $1: case; $2: an extended expression for the line of cuda among the candidates; the rest: variables.
expect() {
  name=$1
  pattern=$2
  shift 2
  env "$@" "$anyaccel" info >"$folder/out" 2>"$folder/err" || fail "$name: $(cat "$folder/out" "$folder/err")"
  line=$(grep -E '^  cuda  ' "$folder/out") || fail "$name: no line of cuda: $(cat "$folder/out")"
  echo "$line" | grep -qE "^  cuda +$pattern" || fail "$name: expected '$pattern' in: $line"
}
# $1: case; $2: an extended expression for the whole answer to the last case.
also() { grep -qE "$2" "$folder/out" || fail "$1: expected '$2' in: $(cat "$folder/out")"; }

expect 'good driver' 'usable .*2 device\(s\), NVIDIA driver .* for CUDA 13\.0$' A=
also 'good driver' '^  cuda:1 .*sm_90, 4 compute units'
also 'good driver' '^kernel compiler nvrtc 13\.[0-9]+ .*sm_90$'
also 'good driver' '^collectives +nccl 2\.28\.9$'
expect 'direct files' 'usable' CUFILE_USE_PCIP2PDMA=true
also 'direct files' '^files +directly to and from the device, by cuFile 1\.14\.0 \('
expect 'no cuFile' 'usable' CUFILE_USE_PCIP2PDMA=true SIM_FAULT=hide:cuFileRead
also 'no cuFile' '^files +through host memory: .*libcufile\.so\.0 cannot be used: it lacks cuFileRead$'
# NVIDIA's own library, which misses functions in the simulated driver. It writes a log into the working directory.
real=$(ls -d "$2"/build/python_packages/lib/python3*/site-packages/nvidia/cufile/lib 2>/dev/null)
if [ -n "$real" ]; then
  cd "$folder" || exit 1
  expect 'the real cuFile' 'usable' CUFILE_USE_PCIP2PDMA=true "ANYACCEL_CUDA_LIBRARY_PATH=$real:$libraries"
  also 'the real cuFile' '^files +through host memory: .*cuFile 1\.14\.[01] .* cannot be started: cuFileDriverOpen gave CU_FILE_[A-Z_]+ \(50[0-9]+\)'
else
  echo "skipped: the real cuFile (tools/install_python_packages has not installed it)"
fi
expect 'no collectives' 'usable' SIM_FAULT=hide:ncclAllReduce
also 'no collectives' '^ +.*libnccl\.so\.2 cannot be used: nccl lacks ncclAllReduce$'
expect 'other architecture' 'usable' SIM_CUDA_ARCH=80
also 'other architecture' '^  cuda:0 .*sm_80'

if real_driver; then
  echo "skipped: what is said without a driver (this machine has a GPU's device node)"
else
  expect 'no device node' 'absent +no NVIDIA GPU \(looked for /dev/nvidiactl, .*no AMD GPU' ANYACCEL_CUDA_LIBRARY_PATH=
  expect 'no driver' "(absent|unusable) .*looked for libcuda\.so\.1 in $folder/empty \(ANYACCEL_CUDA_LIBRARY_PATH\)" \
    "ANYACCEL_CUDA_LIBRARY_PATH=$folder/empty"
  # A folder of stubs is never searched, however it is named.
  mkdir -p "$folder/stubs" "$folder/copied"
  cp "$libraries/libcuda.so.1" "$folder/stubs/libcuda.so.1"
  expect 'folder of stubs' '(absent|unusable) .*/stubs/libcuda\.so\.1 was passed over: it is the CUDA toolkit.s stub' \
    "ANYACCEL_CUDA_LIBRARY_PATH=$folder/stubs"
  expect 'folder of stubs in LD_LIBRARY_PATH' '(absent|unusable) .*/stubs/libcuda\.so\.1 was passed over' \
    "ANYACCEL_CUDA_LIBRARY_PATH=$folder/empty" "LD_LIBRARY_PATH=$folder/stubs"
  if [ -e /usr/local/cuda/lib64/stubs/libcuda.so ]; then
    cp /usr/local/cuda/lib64/stubs/libcuda.so "$folder/copied/libcuda.so.1"
    expect "the toolkit's stub" 'unusable .*stub library.*install the NVIDIA driver' \
      "ANYACCEL_CUDA_LIBRARY_PATH=$folder/copied"
  fi
  # Without NVML a child process counts.
  mkdir "$folder/no_nvml"
  ln -s "$libraries/libcuda.so.1" "$libraries/libnvrtc.so.13" "$folder/no_nvml/"
  expect 'no NVML' 'usable .*2 device\(s\), NVIDIA driver for CUDA 13\.0$' "ANYACCEL_CUDA_LIBRARY_PATH=$folder/no_nvml"
  expect 'no NVML, one device hidden' 'usable .*1 device\(s\)' "ANYACCEL_CUDA_LIBRARY_PATH=$folder/no_nvml" \
    CUDA_VISIBLE_DEVICES=1
  expect 'no NVML, no device' 'unusable .*shows no device' "ANYACCEL_CUDA_LIBRARY_PATH=$folder/no_nvml" SIM_DEVICES=0
fi

expect 'stub library' 'unusable .*stub library.*install the NVIDIA driver' SIM_FAULT=stub
expect 'old driver' 'unusable .*supports CUDA 10\.2; anyaccel needs 11\.4 or newer: update the NVIDIA driver' \
  SIM_CUDA_VERSION=10020
expect 'driver without a device' 'unusable .*lists no GPU.*nvidia-smi' SIM_DEVICES=0
expect 'missing function' 'unusable .*lacks the function cuMemAlloc.*update or reinstall' SIM_FAULT=hide:cuMemAlloc

expect 'empty list' 'unusable .*CUDA_VISIBLE_DEVICES is set and empty.*unset it' CUDA_VISIBLE_DEVICES=
expect 'wrong ordinal' 'unusable .*stopped at "9", but the driver lists 2 GPUs, 0 to 1' CUDA_VISIBLE_DEVICES=9
expect 'no ordinal' 'unusable .*"first".* neither a number nor' CUDA_VISIBLE_DEVICES=first
expect 'twice' 'unusable .*"1" names a device for the second time' CUDA_VISIBLE_DEVICES=1,1
expect 'wrong UUID' 'unusable .*"GPU-dead", with which no device.s UUID begins' CUDA_VISIBLE_DEVICES=GPU-dead
# The advice works.
advice=$(grep -oE 'CUDA_VISIBLE_DEVICES=GPU-[0-9a-f-]+' "$folder/out") || fail "no UUID in: $(cat "$folder/out")"
expect 'right UUID' 'usable .*1 device\(s\)' "$advice"
grep -q '^  cuda:1 ' "$folder/out" && fail "right UUID: there is a second device"
expect 'stops early' 'usable .*1 device\(s\).*reading stopped at "7"' CUDA_VISIBLE_DEVICES=1,7,0

expect 'virtual devices' 'usable .*5 device\(s\).*5 virtual ones on 2' ANYACCEL_CUDA_DEVICES=5
also 'virtual devices' '^  cuda:4 '
expect 'no number of devices' 'unusable .*ANYACCEL_CUDA_DEVICES="some" is not a number of devices' ANYACCEL_CUDA_DEVICES=some

# NVRTC's names lead nowhere, and there is no nvcc.
mkdir "$folder/no_nvrtc" "$folder/useless"
ln -s "$libraries/libcuda.so.1" "$libraries/libnvidia-ml.so.1" "$folder/no_nvrtc/"
for version in 13 12 11.2; do echo 'no library' >"$folder/useless/libnvrtc.so.$version"; done
expect 'no NVRTC' 'usable' "ANYACCEL_CUDA_LIBRARY_PATH=$folder/no_nvrtc" "LD_LIBRARY_PATH=$folder/useless" \
  "CUDA_HOME=$folder/empty"
also 'no NVRTC' '^kernel compiler .*no NVRTC \(looked for libnvrtc\.so\.13, .*no nvcc .*install NVRTC'

# Selected by name it is an error, with the same message.
for fault in SIM_FAULT=stub SIM_CUDA_VERSION=10020 CUDA_VISIBLE_DEVICES= SIM_DEVICES=0; do
  env DS_ACCELERATOR=cuda "$fault" "$anyaccel" info >"$folder/out" 2>&1 && fail "DS_ACCELERATOR=cuda $fault: no error"
  grep -qE '^anyaccel: error: CUDA_Accelerator requires .*: DS_ACCELERATOR asks for "cuda", which is unusable on this machine: .*(driver|GPU)' "$folder/out" ||
    fail "DS_ACCELERATOR=cuda $fault: $(cat "$folder/out")"
done
env SIM_FAULT=init "$anyaccel" info >"$folder/out" 2>&1 && fail "SIM_FAULT=init: no error"
grep -qE 'anyaccel: error: .*cannot be started \(cuInit gives CUDA_ERROR_UNKNOWN \(999\).*nvidia_uvm' "$folder/out" ||
  fail "SIM_FAULT=init: $(cat "$folder/out")"
echo "info: ok"
