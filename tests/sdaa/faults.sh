# Sourced by tests/simulated/faults.sh: what is this runtime's own.

# A runtime that cannot be used, and why.
expect_unstarted stub 'sdaaErrorInsufficientDriver .35.*the driver is too old'
expect_error busy 'sdaa:0 .*sdaaSetDevice gave sdaaErrorNoDevice .100.'
SIM_DEVICES=0 run
check_error "no device" 'shows no device' $?
SDAA_VISIBLE_DEVICES= run
check_error "no visible device" 'shows no device.*SDAA_VISIBLE_DEVICES is ""' $?
for symbol in sdaaMalloc sdaaGetDeviceCount; do expect_unstarted "hide:$symbol" "lacks the function $symbol"; done
mkdir "$folder/none"
ANYACCEL_SDAA_LIBRARY_PATH=$folder/none run
check_error "no library" "looked for libsdaart.so in $folder/none, " $?

# Functions that some releases lack.
for symbol in sdaaLaunchHostFunc sdaaGetErrorName sdaaGetErrorString; do expect_story "hide:$symbol"; done
