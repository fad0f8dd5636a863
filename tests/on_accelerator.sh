# Runs a test program or command on another accelerator: sh on_accelerator.sh ANYACCEL PROGRAM [ARGUMENTS...], with
# DS_ACCELERATOR and what the accelerator needs in the environment. A machine that lacks it skips (exit code 77), unless
# ANYACCEL_TEST_REQUIRED is set: then it must be there, and the test fails.
anyaccel=$1
shift
reason=$("$anyaccel" info 2>&1) || {
  [ -z "$ANYACCEL_TEST_REQUIRED" ] || { echo "FAILED: $reason"; exit 1; }
  echo "skipped: $reason"
  exit 77
}
exec "$@"
