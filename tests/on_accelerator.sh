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
if [ -n "$ANYACCEL_TEST_SPIRV" ]; then
  version=$(echo "$reason" | sed -n 's/^kernel compiler .* driver \([0-9]*\)\..*/\1/p')
  [ "${version:-0}" -lt 6 ] || { echo "skipped: PoCL takes LLVM's bitcode before version 6, and this is $version"; exit 77; }
fi
exec "$@"
