# Environment variables that are mistyped are found out before anything is done: a value that cannot be is an error that quotes
# it and says what is possible, a name that is nearly right is a warning.
anyaccel=$1
model=$2/models/stories
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run() {
  env "$1" "$anyaccel" generate --model "$model" --prompt Once --max-new-tokens 2 >"$work/out" 2>"$work/err"
  code=$?
}
refused() {  # NAME=value, text
  run "$1"
  [ $code = 1 ] || fail "$1: exit code $code: $(cat "$work/err")"
  grep -qF -- "$2" "$work/err" || fail "$1 did not say '$2': $(cat "$work/err")"
  [ "$(grep -c "error" "$work/err")" = 1 ] || fail "$1: more than one error: $(cat "$work/err")"
  [ -s "$work/out" ] && fail "$1: something was generated"
}
warned() {
  run "$1"
  [ $code = 0 ] || fail "$1: exit code $code: $(cat "$work/err")"
  grep -qF -- "anyaccel: warning: $2" "$work/err" || fail "$1 did not warn '$2': $(cat "$work/err")"
}
refused ANYACCEL_FALLBACK=foo 'ANYACCEL_FALLBACK must be cpu (the default) or error, not "foo"'
refused ANYACCEL_AIO=foo 'ANYACCEL_AIO is "foo"; expected auto, uring or threads'
refused ANYACCEL_CPU_ISA=mmx 'ANYACCEL_CPU_ISA=mmx is not known; expected baseline, avx2, avx512 or amx'
refused ANYACCEL_CPU_MATMUL=foo 'ANYACCEL_CPU_MATMUL=foo is not known; expected auto, own or onednn'
refused ANYACCEL_COMMS_LOG=foo 'ANYACCEL_COMMS_LOG=foo: 1 prints'
refused ANYACCEL_LAYERS=magic 'there is no layer "magic"; known are validate and trace'
refused ANYACCEL_KERNEL_TUNING=group=3 'ANYACCEL_KERNEL_TUNING has "group=3"'
refused ANYACCEL_XPU_RUNTIME=openci "ANYACCEL_XPU_RUNTIME is \"openci\"; expected level_zero or opencl; did you mean 'opencl'?"
refused ANYACCEL_OPENCL_DEVICE_TYPE=foo 'ANYACCEL_OPENCL_DEVICE_TYPE is "foo"; expected gpu or cpu'
refused ANYACCEL_WEIGHT_PAGES=huge 'ANYACCEL_WEIGHT_PAGES is "huge"; expected file or large'
refused DS_ALLOW_DEPRECATED_FP16=yes 'DS_ALLOW_DEPRECATED_FP16 is "yes"; expected 0 or 1'
refused MAX_JOBS=many 'MAX_JOBS=many: expected a number'
warned ANYACCEL_LOG=loud 'ANYACCEL_LOG=loud is not one of debug, info, warning, error, off'
warned ANYACCEL_FALBACK=error 'there is no variable ANYACCEL_FALBACK; did you mean ANYACCEL_FALLBACK?'
warned ANYACCEL_CUDA_DEVICES=many 'ANYACCEL_CUDA_DEVICES is "many", which is not a whole number of at least 1'
warned OMP_NUM_THREADS=all 'OMP_NUM_THREADS is "all", which is not a whole number of at least 1; one thread'
# Variables that are right, and those of other programs, cause no message.
for right in OMP_NUM_THREADS=2,1 ANYACCEL_FALLBACK= ANYACCEL_MY_PLUGINS_OWN=1 ANYACCEL_LOG=warning MAX_JOBS=2; do
  run $right
  [ $code = 0 ] || fail "$right: $(cat "$work/err")"
  grep "warning" "$work/err" | grep -v "Setting accelerator" && fail "$right warns"
done

# Traces: a file that cannot be written is known at the start, and one that fails later is a failure of the command.
for variable in ANYACCEL_TRACE ANYACCEL_TRACE_CALLS; do
  refused $variable="$work/none/trace" "$variable: \"$work/none/trace\" cannot be written (the folder $work/none: No such file"
  refused $variable="$work" "$variable: \"$work\" cannot be written (Is a directory)"
done
run ANYACCEL_TRACE=/dev/full
[ $code = 1 ] || fail "a trace that could not be written: exit code $code"
grep -q 'ANYACCEL_TRACE: "/dev/full" cannot be written: No space left' "$work/err" || fail "$(cat "$work/err")"
export ANYACCEL_LAYERS=trace
run ANYACCEL_TRACE_CALLS=/dev/full
[ $code = 1 ] || fail "a trace of calls that could not be written: exit code $code"
grep -q 'ANYACCEL_TRACE_CALLS: "/dev/full" cannot be written any more: No space left' "$work/err" || fail "$(cat "$work/err")"
[ "$(grep -c "TRACE_CALLS" "$work/err")" = 1 ] || fail "said more than once: $(cat "$work/err")"
run ANYACCEL_TRACE_CALLS="$work/calls"
[ $code = 0 ] && grep -q "cpu.mem_alloc" "$work/calls" || fail "no calls: $(cat "$work/err")"
unset ANYACCEL_LAYERS
# A file that is there is kept when the new one cannot be written as a whole.
run ANYACCEL_TRACE="$work/trace"
[ $code = 0 ] && python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))' "$work/trace" || fail "the trace: $(cat "$work/err")"
cp "$work/trace" "$work/kept"
(ulimit -f 1; run ANYACCEL_TRACE="$work/trace"; exit $code)
[ $? = 1 ] || fail "a trace past the limit on files"
cmp "$work/trace" "$work/kept" || fail "the trace was cut off"
[ "$(ls "$work" | grep -c tmp)" = 0 ] || fail "a temporary file was left: $(ls "$work")"
echo "variables: ok"
