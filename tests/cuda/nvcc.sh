# Without NVRTC, nvcc compiles the kernels of a story, where the machine has it.
. "$2/tests/simulated/common.sh"
"${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" --version >/dev/null 2>&1 || { [ -z "${CUDA_HOME:-}" ] && nvcc --version >/dev/null 2>&1; } ||
  { echo "skipped: there is no nvcc"; exit 77; }
run || fail "with NVRTC: $(cat "$folder/err")"
whole=$(cat "$folder/out")
ANYACCEL_CACHE_DIR=$folder/nvcc SIM_FAULT=hide:nvrtcCreateProgram run || fail "with nvcc: $(cat "$folder/err")"
check_report "with nvcc"
[ "$whole" = "$(cat "$folder/out")" ] || fail "another text with nvcc: $(cat "$folder/out")"
[ -n "$(find "$folder/nvcc" -name '*.image' -size +0)" ] || fail "nvcc compiled nothing"
echo "nvcc: ok"
