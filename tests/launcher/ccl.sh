# Jobs whose ranks communicate through oneCCL, which tools/install_python_packages has put into the folder $3: sums, a model
# over two ranks, a rank that is killed, and libraries that cannot be used.
anyaccel=$1 ranks=$2 packages=$3
model=$(dirname "$0")/../../models/stories
[ -e "$packages/lib/libccl.so.2" ] || { echo "skipped: $packages/lib has no libccl.so.2"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $1"; cat "$dir/out" "$dir/err"; exit 1; }
unset CCL_PLUGIN CCL_ROOT
export DS_ACCELERATOR=cpu
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0:alloc_dealloc_mismatch=0"  # Intel's libraries
without=$LD_LIBRARY_PATH
with=$packages/lib${without:+:$without}
# "job LIBRARIES COMMAND...": two ranks.
job() {
  libraries=$1
  shift
  LD_LIBRARY_PATH=$libraries timeout -k 5 120 "$anyaccel" launch --num_accelerators 2 "$@" >"$dir/out" 2>"$dir/err"
}

job "$with" "$ranks" ccl || fail "sums by oneCCL"
grep -q "^2 ranks over ccl on" "$dir/out" || fail "another backend than ccl"

# The same text as one process writes.
text="--dtype fp32 --greedy --ignore-eos --max-new-tokens 25 --prompt Once"
"$anyaccel" generate --model "$model" $text >"$dir/one" 2>"$dir/err" || fail "generate in one process"
export ANYACCEL_COMM_BACKEND=ccl
job "$with" "$anyaccel" generate --model "$model" $text || fail "generate over oneCCL"
cmp -s "$dir/one" "$dir/out" || fail "two ranks write another text over oneCCL"
job "$with" "$ranks" "" || fail "the backend of the environment"
grep -q "^2 ranks over ccl on" "$dir/out" || fail "ANYACCEL_COMM_BACKEND=ccl chose another backend"
unset ANYACCEL_COMM_BACKEND

# Rank 1 is killed while both reduce: rank 0 says so and ends.
cat >"$dir/rank" <<'RANK'
echo $$ >"$1/pid.$RANK"
exec "$2" ccl forever
RANK
job "$with" sh "$dir/rank" "$dir" "$ranks" &
waiting=$!
until grep -q "over ccl" "$dir/out" 2>/dev/null; do
  kill -0 $waiting 2>/dev/null || fail "the job ended before its rank was killed"
  sleep 0.1
done
sleep 0.3
kill -KILL "$(cat "$dir/pid.1")"
wait $waiting
code=$?
[ $code -eq 137 ] || fail "after the death of rank 1 the job ended with $code"
grep -q "rank 1 on .* was killed by signal 9 (SIGKILL); the job is ended" "$dir/err" || fail "the death of rank 1 is not told"

# Libraries that cannot be used are told by both ranks' jobs at once.
refused() {
  job "$1" "$ranks" ccl && fail "no error: $2"
  grep -q "the backend ccl cannot be used" "$dir/err" && grep -q "$2" "$dir/err" || fail "not told: $2"
}
mkdir "$dir/alone" "$dir/other"
ln -s "$packages/lib/libccl.so.2" "$dir/alone/libccl.so.2"
refused "$dir/alone${without:+:$without}" "oneCCL does not load its plugin ONECCL_LEGACY_CPU"
ln -s "$packages/lib/libtcm.so.1" "$dir/other/libccl.so.2"
refused "$dir/other${without:+:$without}" "libccl.so.2 lacks onecclGetVersion, "
LD_LIBRARY_PATH=$without ldconfig -p 2>/dev/null | grep -q libccl.so.2 ||
  refused "$without" "install oneCCL 2022 or later"
CCL_PLUGIN=ONECCL_NULL refused "$with" "CCL_PLUGIN=ONECCL_NULL is set"
echo "ccl: ok"
