# Without an accelerator's device node no vendor's library is opened, though OpenCL and Level Zero are installed; and the
# command says for each accelerator what it looked for.
anyaccel=$1
fail() { echo "FAILED: $1"; exit 1; }
if ls /dev/dri/renderD* /dev/accel/* /dev/mali* /dev/kgsl* /dev/nvidia* /dev/dxg /dev/kfd >/dev/null 2>&1; then
  echo "skipped: this machine has an accelerator's device node"
  exit 77
fi
unset ANYACCEL_CUDA_LIBRARY_PATH ANYACCEL_XPU_RUNTIME ANYACCEL_OPENCL_DEVICE_TYPE ZE_ENABLE_ALT_DRIVERS DS_ACCELERATOR
out=$(LD_DEBUG=files "$anyaccel" info 2>&1) || fail "info fails: $out"
loaded=$(echo "$out" | grep -oE 'lib(OpenCL|ze_|pocl|cuda|nvidia|amdhip|ascendcl|Synapse|cnrt|sdaart)[^ ;]*' | sort -u)
[ -z "$loaded" ] || fail "opened: $loaded"
for words in 'xpu .*level_zero: .*/dev/dri.*opencl: ' 'cuda .*absent .*/dev/nvidiactl.*/dev/kfd' 'cpu .*usable'; do
  "$anyaccel" info 2>/dev/null | grep -qE "$words" || fail "no line like '$words' in: $("$anyaccel" info 2>&1)"
done
echo "nothing_loaded: ok"
