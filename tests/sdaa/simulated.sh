# Sourced by tests/simulated/common.sh: sdaa on the simulated runtime of build/*/simulators/tecorigin.
libraries=$3/simulators/tecorigin
[ -e "$libraries/libsdaart.so" ] || { echo "skipped: $libraries/libsdaart.so was not built"; exit 77; }
export ANYACCEL_SDAA_LIBRARY_PATH=$libraries
unset SDAA_VISIBLE_DEVICES NEUWARE_HOME SDAA_ROOT
in_one_process=yes
tokens=3
survived_allocations="1 2"
lost_commands="1 30 100"
communicator=tccl
all_reduce=tcclAllReduce
any_error='999'
lost_error='lost'
sticky_error='700'
bound=$(sed -n '/define ANYACCEL_SDAA_FUNCTIONS/,/^struct Api/p' "$2/src/accelerators/sdaa/sdaa_api.h" | grep -oE 'X\(sdaa[A-Za-z_0-9]+' |
  cut -c3-)
untouched=sdaaGetDeviceCount # in the probe's child process, whose calls are in no report
more_runs() { :; }
