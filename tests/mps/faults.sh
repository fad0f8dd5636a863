# Sourced by tests/simulated/faults.sh: what is Metal's own.

# Metal that cannot be used, and why.
SIM_DEVICES=0 run
check_error "no device" 'Metal shows no device; an Apple silicon machine' $?
SIM_METAL_FAMILY=1006 run
check_error "an old device" 'Metal has no device that can be used: .* is older than the family Apple7' $?
mkdir "$folder/none"
ANYACCEL_MPS_LIBRARY_PATH=$folder/none run
check_error "no library" "Metal cannot be opened: $folder/none/libobjc.A.dylib cannot be opened" $?
ln -s "$libraries/libobjc.A.dylib" "$folder/none/"
ANYACCEL_MPS_LIBRARY_PATH=$folder/none run
check_error "no framework" "Metal cannot be opened: $folder/none/Metal cannot be opened" $?
for symbol in MTLCopyAllDevices objc_autoreleasePoolPush; do expect_unstarted "hide:$symbol" "lacks the function $symbol"; done
rm -f "$report"
(unset ANYACCEL_MPS_LIBRARY_PATH; run; exit $?)
check_error "not macOS" 'Metal is a part of macOS, and this is Linux' $?

expect_error 'oom:call=1' 'Metal gave no buffer on Simulated Apple GPU'
# A request that Metal may refuse once is repeated, or reported with its arguments.
expect_either 'fail:commandBuffer,call=5' 'Metal gave no command buffer'
expect_either 'fail:computeCommandEncoder,call=1' 'Metal gave no command encoder'
# An image from the cache that does not load is compiled again; a source that does not compile is an error with Metal's
# message.
expect_story 'fail:newLibraryWithSource:options:error:,call=1'
ANYACCEL_CACHE_DIR=$folder/fresh SIM_FAULT='fail:newLibraryWithSource:options:error:,call=1' run
check_error "a source that does not compile" 'could not be built: the metal compiler of accelerator "mps" says' $?
check_report "a source that does not compile"
expect_error 'fail:newComputePipelineStateWithFunction:error:,call=1' 'Metal makes no pipeline of the kernel'
expect_error 'fail:dispatchThreadgroups:threadsPerThreadgroup:,call=20' 'work on the stream failed: .*(code 1)'
# All memory is in the residency set of the queues, and none is left in it; systems before macOS 15 have no such sets.
counted() { grep -oE "\"$1\": [0-9]+" "$report" | grep -oE '[0-9]+$'; }
expect_story no_peer
[ "$(counted addAllocation:)" -gt 0 ] && [ "$(counted addAllocation:)" = "$(counted removeAllocation:)" ] ||
  fail "$(counted addAllocation:) buffers were added to the residency set, $(counted removeAllocation:) removed"
SIM_MACOS_VERSION=14.0 run || fail "macOS 14: $(cat "$folder/err")"
[ "$whole" = "$(cat "$folder/out")" ] || fail "macOS 14: another text: $(cat "$folder/out")"
check_report "macOS 14"
[ "$(counted addAllocation:)" = 0 ] || fail "macOS 14 has no residency sets"

# Weights stay in their file, and Metal is asked once more for a buffer of its pages.
no_copy='newBufferWithBytesNoCopy:length:options:deallocator:'
options=
run || fail "weights in their file: $(cat "$folder/err")"
grep -q 'used from the file' "$folder/err" || fail "weights were copied: $(cat "$folder/err")"
expect_story "fail:$no_copy,call=1"
