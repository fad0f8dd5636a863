# Sourced by tests/simulated/common.sh: xpu on the simulated Level Zero driver. Skips where there is no loader.
simulator=$3/simulators/libze_sim.so
[ -e "$simulator" ] || { echo "skipped: $simulator was not built (Debian package libze-dev is missing)"; exit 77; }
PATH=$PATH:/usr/sbin:/sbin ldconfig -p | grep -q libze_loader.so.1 || { echo "skipped: libze_loader.so.1 is not installed (Debian package libze1)"; exit 77; }
export ANYACCEL_XPU_RUNTIME=level_zero ZE_ENABLE_ALT_DRIVERS=$simulator ZE_ENABLE_VALIDATION_LAYER=1 \
  ZE_ENABLE_PARAMETER_VALIDATION=1
tokens=6
survived_allocations="1 2 5"
lost_commands="1 30 100"
lost_error=lost
sticky_error=xpu
# The probe's own words for what finds no driver or device, and the unknown error.
any_error='none lists a GPU|0x7ffffffe'
bound=$(sed -n '/define ANYACCEL_LEVEL_ZERO_FUNCTIONS/,/OPTIONAL_FUNCTIONS/p' "$2/src/accelerators/xpu/level_zero/level_zero_api.h" |
  grep -oE 'X\(ze[A-Za-z]+' | cut -c3-)
untouched=
more_runs() { :; }
