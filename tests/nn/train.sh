# examples/train on another accelerator follows the CPU's losses, of a decoder and of an encoder with dropout, alone and
# over two ranks; it goes on from the CPU's checkpoint, and the CPU from its.
command=$1
train="$2/bin/anyaccel_train"
other=$DS_ACCELERATOR
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
size="--hidden 48 --layers 2 --heads 4 --kv-heads 2 --intermediate 96 --steps 60 --batch 8 --length 64 --warmup 5 --rate 0.01"
launch=
# on ACCELERATOR FOLDER OPTIONS...: trains with the options, by way of $launch; $loss and $held_out are those of the last line.
on() {
  export DS_ACCELERATOR=$1
  folder=$2
  shift 2
  $launch "$train" "$work/$folder" $size "$@" >"$work/out" 2>"$work/err" || fail "$folder on $DS_ACCELERATOR: $(cat "$work/err")"
  grep -q " on $DS_ACCELERATOR[:,]" "$work/err" || fail "$folder ran elsewhere: $(cat "$work/err")"
  loss=$(sed -n 's/^step [0-9]*: loss \([0-9.]*\), held-out loss [0-9.]*$/\1/p' "$work/out")
  held_out=$(sed -n 's/^step [0-9]*: .* held-out loss \([0-9.]*\)$/\1/p' "$work/out")
  [ -n "$loss" ] && [ -n "$held_out" ] || fail "$folder on $DS_ACCELERATOR printed '$(cat "$work/out")'"
}
# near WHAT VALUE EXPECTED TOLERANCE
near() {
  awk "BEGIN { d = $2 - $3; exit !(d <= $4 && -d <= $4) }" </dev/null || fail "$1: $2 on $other, $3 on the CPU"
}

# The first steps differ by rounding alone, and it grows from step to step.
for model in decoder encoder; do
  on cpu "cpu-$model" --model $model --until 5
  of_cpu=$loss held_of_cpu=$held_out
  on "$other" "other-$model" --model $model --until 5
  near "loss of the $model after 5 steps" "$loss" "$of_cpu" 0.001
  near "held-out loss of the $model after 5 steps" "$held_out" "$held_of_cpu" 0.001
done

on cpu cpu-decoder --resume
of_cpu=$held_out
awk "BEGIN { exit !($of_cpu < 2.6) }" </dev/null || fail "the loss did not fall on the CPU: $of_cpu"
on "$other" other-decoder --resume
near "held-out loss after 60 steps" "$held_out" "$of_cpu" 0.03

# From the one to the other, and back.
on cpu both --until 20
on "$other" both --resume --until 40
on cpu both --resume
near "held-out loss of a run on both" "$held_out" "$of_cpu" 0.03

launch="$command launch -q --num_accelerators 2"
on "$other" ranks
near "held-out loss of two ranks" "$held_out" "$of_cpu" 0.03

"$command" generate --model "$work/other-decoder/checkpoint-60" --prompt "The old fox" --temperature 0 --max-new-tokens 20 \
  >"$work/text" 2>"$work/err" || fail "the checkpoint does not run: $(cat "$work/err")"
[ "$(wc -c <"$work/text")" -gt 25 ] || fail "no text: $(cat "$work/text")"
echo "train: ok"
