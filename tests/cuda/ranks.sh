# Two ranks as processes on a simulated machine with two devices: each takes its own. The simulated NCCL joins threads of one
# process only, so it is left out, and sums go through the host.
anyaccel=$1
model=$2/models/stories
libraries=$3/simulators/cuda
fail() { echo "FAILED: $1"; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/libraries"
ln -s "$libraries"/* "$folder/libraries/"
rm "$folder/libraries/libnccl.so.2"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_SIZE MASTER_ADDR MASTER_PORT
export DS_ACCELERATOR=cuda ANYACCEL_CUDA_LIBRARY_PATH="$folder/libraries" SIM_DEVICES=2 SIM_STRICT=abort SIM_HANG_SECONDS=300
export ANYACCEL_CACHE_DIR="$3/simulators/cache"
export ANYACCEL_KERNEL_TUNING=group_size=32,lanes=8,subgroup_size=8,items=32,local_memory=16384
generate="$anyaccel generate --model $model --prompt Once --dtype fp32 --greedy --ignore-eos --max-new-tokens 6"
$generate >"$folder/one" 2>"$folder/err" || fail "one process: $(cat "$folder/err")"
ANYACCEL_LOG=debug timeout 600 "$anyaccel" launch --num_accelerators 2 $generate >"$folder/two" 2>"$folder/err" ||
  fail "two ranks: $(cat "$folder/err")"
grep -q "LOCAL_RANK 1 uses cuda:1" "$folder/err" || fail "rank 1 is not on cuda:1: $(cat "$folder/err")"
cmp -s "$folder/one" "$folder/two" || fail "two ranks write another text: $(cat "$folder/one" "$folder/two")"
echo "ranks: ok"
