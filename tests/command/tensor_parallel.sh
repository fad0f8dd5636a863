# One model over several ranks: `anyaccel launch ... anyaccel generate` writes the text of one process, byte for byte, and says
# what is wrong once.
anyaccel=$1
model=$2/models/stories
fail() { echo "FAILED: $1"; exit 1; }
out=$(mktemp); err=$(mktemp); one=$(mktemp)
trap 'rm -f "$out" "$out".[1-6] "$err" "$err".[1-6] "$one"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_SIZE MASTER_ADDR MASTER_PORT
# "generate ARGUMENTS..." and "launch RANKS ARGUMENTS...": the text is in $out, messages in $err.
generate() { "$anyaccel" generate --model "$model" "$@" >"$out" 2>"$err"; }
launch() {
  ranks=$1
  shift
  timeout 120 "$anyaccel" launch --num_accelerators "$ranks" "$anyaccel" generate --model "$model" "$@" >"$out" 2>"$err"
}

greedy="--dtype fp32 --greedy --ignore-eos --max-new-tokens 120"
generate --prompt "Once upon a time" $greedy || fail "$(cat "$err")"
cp "$out" "$one"
for ranks in 1 2 3 4; do
  launch $ranks --prompt "Once upon a time" $greedy || fail "$ranks ranks: $(cat "$err")"
  cmp -s "$one" "$out" || fail "$ranks ranks write another text: $(cat "$out")"
done
grep -q "on rank 0 of 4" "$err" || fail "the share of a rank is not told: $(cat "$err")"

# Jobs that start at the same time do not meet each other.
jobs=
for job in 1 2 3 4 5 6; do
  timeout 120 "$anyaccel" launch --num_accelerators 2 "$anyaccel" generate --model "$model" --prompt "Once upon a time" $greedy \
    >"$out.$job" 2>"$err.$job" &
  jobs="$jobs $!"
done
for job in $jobs; do wait "$job" || fail "one of several jobs at once: $(cat "$err".[1-6])"; done
for job in 1 2 3 4 5 6; do cmp -s "$one" "$out.$job" || fail "job $job of several at once writes another text"; done

# Several prompts, one of them from standard input, with a penalty: rank 0 reads and draws for all.
several="--prompt-file - --prompt Then --dtype fp32 --greedy --repetition-penalty 1.2 --max-new-tokens 30 --quiet"
echo "The dog" | generate $several || fail "$(cat "$err")"
cp "$out" "$one"
echo "The dog" | launch 2 $several || fail "$(cat "$err")"
cmp -s "$one" "$out" || fail "two prompts on two ranks write another text: $(cat "$out")"

# A failure that all ranks find, and one that rank 0 alone finds, are told once and end the job.
for wrong in "--prompt x --context 1" "--prompt-file /nonexistent/prompt"; do
  launch 3 $wrong && fail "no error for $wrong"
  count=$(grep -c "no room for an answer\|cannot read '/nonexistent/prompt'" "$err")
  [ "$count" -eq 1 ] || fail "told $count times: $(cat "$err")"
done

# The same on another kind of accelerator, each rank with a device of its own process.
export DS_ACCELERATOR=xpu ANYACCEL_XPU_RUNTIME=opencl ANYACCEL_OPENCL_DEVICE_TYPE=cpu
if "$anyaccel" info >/dev/null 2>&1; then
  generate --prompt "Once upon a time" $greedy || fail "xpu: $(cat "$err")"
  cp "$out" "$one"
  launch 2 --prompt "Once upon a time" $greedy || fail "xpu: $(cat "$err")"
  cmp -s "$one" "$out" || fail "xpu: 2 ranks write another text: $(cat "$out")"
  # ccl, the library that DeepSpeed names for it, is used on request only.
  grep -q "ccl" "$err" && fail "xpu: ccl: $(cat "$err")"
else
  echo "skipped: xpu over OpenCL: $("$anyaccel" info 2>&1 | tail -1)"
fi
echo "tensor_parallel: ok"
