# Sourced by tests/simulated/faults.sh: what is this runtime's own.

# A runtime that cannot be used, and why.
expect_error busy 'mlu:0 .*cnrtSetDevice gave cnrtErrorNoDevice .100004.'
SIM_DEVICES=0 run
check_error "no device" 'shows no device' $?
MLU_VISIBLE_DEVICES= run
check_error "no visible device" 'shows no device.*MLU_VISIBLE_DEVICES is ""' $?
for symbol in cnrtMalloc cnrtGetDeviceCount; do expect_unstarted "hide:$symbol" "lacks the function $symbol"; done
mkdir "$folder/none"
ANYACCEL_MLU_LIBRARY_PATH=$folder/none run
check_error "no library" "looked for libcnrt.so in $folder/none, " $?

# A wait that fails leaves work under way on its stream: memory is freed only when that has ended.
for call in 2 4; do expect_error "fail:cnrtQueueSync,call=$call" 'cnrtQueueSync gave'; done

# Functions that some releases lack.
for symbol in cnrtMemcpyAsync cnrtMemcpyAsync_V2 cnrtQueueCreateWithPriority cnrtInvokeHostFunc cnrtGetErrorName cnrtGetErrorStr; do
  expect_story "hide:$symbol"
done
expect_unstarted hide:cnrtMemcpyAsync,cnrtMemcpyAsync_V2 'lacks the function cnrtMemcpyAsync;'
