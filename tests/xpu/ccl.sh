# Two ranks of xpu exchange tensors through oneCCL, which tools/install_python_packages has put into the folder $4, and write the
# CPU's greedy text: over PoCL, Intel's OpenCL, simulated Level Zero, and a plugin (xpu.external). `info` says how the library is
# used, or why it cannot be. What a machine lacks is reported as skipped, by name; without oneCCL the test is skipped.
anyaccel=$1 source=$2 build=$3 packages=$4 plugin=$5
[ -e "$packages/lib/libccl.so.2" ] || { echo "skipped: $packages/lib has no libccl.so.2"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $1"; cat "$folder/out" "$folder/err"; exit 1; }
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_SIZE MASTER_ADDR MASTER_PORT CCL_PLUGIN CCL_ROOT ANYACCEL_COMM_BACKEND
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0:alloc_dealloc_mismatch=0" # Intel's libraries
without=$LD_LIBRARY_PATH
with=$packages/lib${without:+:$without}
generate="$anyaccel generate --model $source/models/stories --prompt Once --dtype fp32 --greedy --ignore-eos --max-new-tokens 5"
DS_ACCELERATOR=cpu $generate >"$folder/cpu" 2>"$folder/err" || fail "on the CPU"
[ -s "$folder/cpu" ] || fail "the CPU writes nothing"

# "two_ranks NAME VARIABLES...": on xpu with these variables.
two_ranks() {
  name=$1
  shift
  env "$@" "$anyaccel" info >"$folder/out" 2>"$folder/err" || {
    echo "skipped: $name: $(tail -1 "$folder/err")"
    return 0
  }
  env "$@" ANYACCEL_COMM_BACKEND=ccl ANYACCEL_LOG=info LD_LIBRARY_PATH="$with" timeout -k 5 300 "$anyaccel" launch \
    --num_accelerators 2 $generate >"$folder/out" 2>"$folder/err" || fail "$name: two ranks"
  [ "$(grep -c "collectives on host memory by oneCCL" "$folder/err")" = 2 ] || fail "$name: not both ranks have opened oneCCL"
  cmp -s "$folder/cpu" "$folder/out" || fail "$name: two ranks write another text"
  tested="$tested $name"
}
tested=
opencl="DS_ACCELERATOR=xpu ANYACCEL_XPU_RUNTIME=opencl ANYACCEL_OPENCL_DEVICE_TYPE=cpu"
echo "$packages/lib/libintelocl.so" >"$folder/intel.icd"
two_ranks PoCL $opencl
two_ranks "Intel's OpenCL" $opencl "OCL_ICD_VENDORS=$folder/intel.icd"
if [ -e "$build/simulators/libze_sim.so" ]; then
  two_ranks "Level Zero" DS_ACCELERATOR=xpu ANYACCEL_XPU_RUNTIME=level_zero ZE_ENABLE_ALT_DRIVERS="$build/simulators/libze_sim.so" \
    ZE_ENABLE_VALIDATION_LAYER=1 ZE_ENABLE_PARAMETER_VALIDATION=1 SIM_STRICT=abort SIM_DEVICES=2 SIM_DELAY_US=20 SIM_SEED=1
fi
two_ranks xpu.external DS_ACCELERATOR=xpu.external ANYACCEL_PLUGIN_PATH="$plugin"
case "$tested" in *xpu.external*) ;; *) fail "nothing was tested" ;; esac

# `info` on the library: on request where it is found, else why it cannot be used. A request without it is an error.
DS_ACCELERATOR=xpu
export DS_ACCELERATOR ${opencl#* }
if "$anyaccel" info >/dev/null 2>&1; then
  LD_LIBRARY_PATH=$with "$anyaccel" info >"$folder/out" 2>"$folder/err"
  grep -A1 '^collectives  *ccl' "$folder/out" | grep -q 'on request (ANYACCEL_COMM_BACKEND=ccl)' || fail "info with oneCCL"
  if ! LD_LIBRARY_PATH=$without ldconfig -p 2>/dev/null | grep -q libccl.so.2; then
    "$anyaccel" info >"$folder/out" 2>"$folder/err"
    grep -A1 '^collectives  *ccl' "$folder/out" | grep -q 'cannot be used: CCLCommBuilder needs oneCCL' || fail "info without oneCCL"
    ANYACCEL_COMM_BACKEND=ccl "$anyaccel" launch --num_accelerators 2 $generate >"$folder/out" 2>"$folder/err" &&
      fail "no error without oneCCL"
    grep -q "the backend ccl cannot be used" "$folder/err" || fail "not told: oneCCL is missing"
  fi
fi
echo "ccl on$tested: ok"
