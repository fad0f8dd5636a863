# Sourced by tests/simulated/faults.sh: what is CANN's own.

# A runtime that cannot be used, and why.
expect_unstarted stub 'for linking'
expect_error busy 'npu:0 .*aclrtSetDevice gave ACL_ERROR_RT_NO_DEVICE .207004.'
SIM_DEVICES=0 run
check_error "no device" 'shows no device' $?
ASCEND_RT_VISIBLE_DEVICES=7 run
check_error "no visible device" 'shows no device.*ASCEND_RT_VISIBLE_DEVICES is "7"' $?
for symbol in aclrtMemcpyAsync aclrtCreateEventExWithFlag; do expect_unstarted "hide:$symbol" "lacks the function $symbol"; done
mkdir "$folder/none"
ANYACCEL_NPU_LIBRARY_PATH=$folder/none run
check_error "no library" "looked for libascendcl.so in $folder/none, .*set_env.sh" $?

# Functions that older runtimes lack.
for symbol in aclGetRecentErrMsg aclrtGetDeviceInfo aclGetCannAttribute aclrtLaunchHostFunc; do
  expect_story "hide:$symbol"
done

# The version is told, and the second device is the first where it alone is visible.
mkdir "$folder/cann"
echo 'version=8.1.RC1' >"$folder/cann/ascend_toolkit_install.info"
ASCEND_HOME_PATH=$folder/cann "$anyaccel" info >"$folder/out" 2>&1
grep -q 'npu .*usable .*2 device(s), CANN 8.1.RC1' "$folder/out" || fail "the version: $(cat "$folder/out")"
ASCEND_RT_VISIBLE_DEVICES=1 "$anyaccel" info >"$folder/out" 2>&1
grep -q 'npu .*usable .*1 device(s)' "$folder/out" || fail "one visible device: $(cat "$folder/out")"

# Operators are there, with the processor's name or without it.
"$anyaccel" info >"$folder/out" 2>&1
for op in embedding rms_norm linear linear_multi gated_linear rope cache_write attention activation add increment; do
  grep -qE "^  $op +npu$" "$folder/out" || fail "npu has no $op: $(cat "$folder/out")"
done
expect_story hide:aclrtGetSocName
# Without their library, or with one that lacks an operator, ops run on the CPU; one that fails is told with its name (npu/calls fails
# each of them).
mkdir "$folder/runtime"
ln -s "$libraries/libascendcl.so" "$folder/runtime/"
ANYACCEL_NPU_LIBRARY_PATH=$folder/runtime run || fail "no operators: $(cat "$folder/err")"
[ "$whole" = "$(cat "$folder/out")" ] || fail "no operators: another text: $(cat "$folder/out")"
check_report "no operators"
[ "$(echo "$operators" | wc -l)" -gt 20 ] || fail "no list of operators"
# Each is looked up in the same way: a build with a sanitizer hides every fourth.
hidden=$operators
[ -z "$sanitizer" ] || hidden=$(echo "$operators" | sed -n 'n;n;n;p')
for symbol in $hidden; do expect_story "hide:$symbol"; done
expect_error 'fail:aclnnMatmulGetWorkspaceSize,call=1' 'aclnnMatmulGetWorkspaceSize gave'
# The vendor's documents do not say if a second phase that failed has consumed its executor, so it may be left over.
SIM_FAULT=fail:aclnnMatmul,call=1 run
check_error "fail:aclnnMatmul" "aclnnMatmul gave" $?

# Weights of 16 bits are packed into blocks, which changes no bit of the text; they stay in rows where an operator for that is missing.
run --dtype bf16 || fail "packed weights: $(cat "$folder/err")"
check_report "packed weights"
packed=$(cat "$folder/out")
grep -q '"aclnnNpuFormatCast": [1-9]' "$report" && grep -q '"aclnnMatmulWeightNz": [1-9]' "$report" || fail "no weight was packed"
! grep -q 'their ordinary form is made' "$folder/err" || fail "packed weights were unpacked: $(cat "$folder/err")"
for symbol in aclnnNpuFormatCast aclnnMatmulWeightNz; do
  SIM_FAULT=hide:$symbol run --dtype bf16 || fail "without $symbol: $(cat "$folder/err")"
  [ "$packed" = "$(cat "$folder/out")" ] || fail "without $symbol: another text: $(cat "$folder/out")"
  check_report "without $symbol"
  ! grep -q '"aclnnMatmulWeightNz": [1-9]' "$report" || fail "weights were packed without $symbol"
done
whole=$packed
for symbol in aclnnNpuFormatCastGetWorkspaceSize aclnnMatmulWeightNzGetWorkspaceSize; do
  SIM_FAULT=fail:$symbol,call=1 run --dtype bf16
  check_error "fail:$symbol" "$symbol gave" $?
  check_report "fail:$symbol"
done
