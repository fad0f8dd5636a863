# Runs a test program or command on another accelerator: sh on_accelerator.sh ANYACCEL PROGRAM [ARGUMENTS...], with
# DS_ACCELERATOR and what the accelerator needs in the environment. A machine that lacks it skips (exit code 77), unless
# ANYACCEL_TEST_REQUIRED is set: then it must be there, and the test fails. With ANYACCEL_TEST_SPIRV kernels are given to PoCL as bitcode.
anyaccel=$1
shift
reason=$("$anyaccel" info 2>&1) || {
  [ -z "$ANYACCEL_TEST_REQUIRED" ] || { echo "FAILED: $reason"; exit 1; }
  echo "skipped: $reason"
  exit 77
}
pocl=$(echo "$reason" | sed -n 's/^kernel compiler Portable Computing Language, .* driver \([0-9]*\)\..*/\1/p')
if [ "${pocl:-0}" -ge 6 ]; then
  [ -z "$ANYACCEL_TEST_SPIRV" ] || { echo "skipped: PoCL takes LLVM's bitcode before version 6, and this is $pocl"; exit 77; }
  unset POCL_EXTRA_BUILD_FLAGS  # Kernels that it did not optimize end the process with SIGSEGV.
fi
exec "$@"
