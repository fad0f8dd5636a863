# Sourced by the tests that run the command on the simulated Level Zero driver: sets $anyaccel, $model, $report and the
# environment, and defines fail, run and check_report. Skips where there is no loader.
anyaccel=$1
model=$2/models/stories
simulator=$3/simulators/libze_sim.so
fail() { echo "FAILED: $1"; exit 1; }
[ -e "$simulator" ] || { echo "skipped: $simulator was not built (Debian package libze-dev is missing)"; exit 77; }
ldconfig -p | grep -q libze_loader.so.1 || { echo "skipped: libze_loader.so.1 is not installed (Debian package libze1)"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
report=$folder/report.json
export DS_ACCELERATOR=xpu ANYACCEL_XPU_RUNTIME=level_zero ZE_ENABLE_ALT_DRIVERS=$simulator ZE_ENABLE_VALIDATION_LAYER=1 \
  ZE_ENABLE_PARAMETER_VALIDATION=1 ZE_ENABLE_HANDLE_LIFETIME=1 SIM_REPORT=$report SIM_MEMORY=256m

# Some words of a story to $folder/out, messages to $folder/err. Gives the command's exit code.
run() {
  rm -f "$report"
  "$anyaccel" generate --model "$model" --prompt "Once upon a time" --max-new-tokens 6 --seed 1 "$@" \
    >"$folder/out" 2>"$folder/err"
}

# $1: what was done. No violation and no leak.
check_report() {
  [ -s "$report" ] || fail "$1: the simulator wrote no report: $(cat "$folder/err")"
  tr -d ' \n' <"$report" | grep -q '"violations":\[\],"leaks":\[\]' || fail "$1: $(grep -v '^ *"ze' "$report" | head -30)"
}
