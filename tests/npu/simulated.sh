# Sourced by tests/simulated/common.sh: npu on the simulated CANN of build/*/simulators/ascend.
libraries=$3/simulators/ascend
[ -e "$libraries/libascendcl.so" ] || { echo "skipped: $libraries/libascendcl.so was not built"; exit 77; }
export ANYACCEL_NPU_LIBRARY_PATH=$libraries
unset ASCEND_RT_VISIBLE_DEVICES ASCEND_HOME_PATH ASCEND_TOOLKIT_HOME
in_one_process=yes
tokens=3
survived_allocations="1 2"
lost_commands="1 30 100"
communicator=hccl
all_reduce=HcclAllReduce
any_error='507000'
lost_error='lost.*507010'
sticky_error='AICORE_EXCEPTION.*507015'
bound=$(sed -n '/define ANYACCEL_NPU_FUNCTIONS/,/^struct Api/p' "$2/src/accelerators/npu/npu_api.h" | grep -oE 'X\(acl[A-Za-z]+' | cut -c3-)
# Operators, in two calls each, and what they are called with.
operators=$(grep -oE '\{"aclnn[A-Za-z0-9]+"\}|^ +"aclnn[A-Za-z0-9]+"\}' "$2/src/accelerators/npu/aclnn.h" | grep -oE 'aclnn[A-Za-z0-9]+')
bound="$bound
$(grep -oE '"acl(Create|Destroy)[A-Za-z]+"' "$2/src/accelerators/npu/aclnn.cpp" | tr -d '"' | sort -u)
$operators
$(echo "$operators" | sed 's/$/GetWorkspaceSize/')"
# In the probe's child process, whose calls are in no report; in npu_simulated/fused_adam.
untouched="aclrtGetDeviceCount aclnnApplyAdamWV2 aclnnApplyAdamWV2GetWorkspaceSize"
# Weights of 16 bits are packed.
more_runs() {
  run --dtype bf16 || fail "a story in bf16: $(cat "$folder/err")"
  cp "$report" "$folder/packed.json"
}
