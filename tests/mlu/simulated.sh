# Sourced by tests/simulated/common.sh: mlu on the simulated runtime of build/*/simulators/neuware.
libraries=$3/simulators/neuware
[ -e "$libraries/libcnrt.so" ] || { echo "skipped: $libraries/libcnrt.so was not built"; exit 77; }
export ANYACCEL_MLU_LIBRARY_PATH=$libraries
unset MLU_VISIBLE_DEVICES NEUWARE_HOME SDAA_ROOT
in_one_process=yes
tokens=3
survived_allocations="1 2"
lost_commands="1 30 100"
communicator=cncl
all_reduce=cnclAllReduce
any_error='999'
lost_error='632015' # the runtime has no error of its own for that
sticky_error='cnrtErrorKernelTrap'
bound=$(sed -n '/define ANYACCEL_MLU_FUNCTIONS/,/^struct Api/p' "$2/src/accelerators/mlu/mlu_api.h" | grep -oE 'X\(cnrt[A-Za-z_0-9]+' |
  cut -c3-)
bound="$bound
$(sed -n '/define ANYACCEL_CNNL_FUNCTIONS/,/^struct CnnlApi/p' "$2/src/accelerators/mlu/cnnl_api.h" | grep -oE 'X\(cnnl[A-Za-z_0-9]+' | cut -c3-)"
# The first is called in the probe's child process, whose calls are in no report; the second where there is no other copy (faults).
untouched="cnrtGetDeviceCount cnrtMemcpyAsync"
# A process has one member of a communicator of CNCL. The suite says so, but in one process the other member would wait for ever.
left_out="!collectives.two_devices_in_one_process"
more_runs() { :; }
