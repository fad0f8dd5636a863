# A file that grows past `ulimit -f`, or a disk that is full: an error that names the file and the limit, exit code 1, and no
# file left behind, neither the unfinished one nor the others of a model that is not complete.
anyaccel=$1
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(ulimit -f 20; "$anyaccel" make-model --shape stories --out "$work/model" 2>"$work/err")
code=$?
[ $code = 1 ] || fail "make-model past the limit gave exit code $code: $(cat "$work/err")"
grep -q "$work/model/model.safetensors: cannot be written: File too large: the limit on the size of files of this process is [0-9]* bytes" \
  "$work/err" || fail "make-model: $(cat "$work/err")"
[ -e "$work/model" ] && fail "make-model left $(ls -A "$work/model")"
# The folder of somebody else's is left as it was.
mkdir "$work/model"
echo notes >"$work/model/notes"
(ulimit -f 20; "$anyaccel" make-model --shape stories --out "$work/model" 2>"$work/err") && fail "make-model past the limit"
[ "$(ls -A "$work/model")" = notes ] || fail "make-model left $(ls -A "$work/model")"

# Standard output as a file that may not grow.
(ulimit -f 1; "$anyaccel" info --json >"$work/out" 2>"$work/err")
code=$?
[ $code = 1 ] || fail "info past the limit gave exit code $code"
grep -q "writing to standard output failed: File too large" "$work/err" || fail "info: $(cat "$work/err")"

# Processes that are launched receive the signal as usual.
(ulimit -f 1; "$anyaccel" launch --num_accelerators 1 -q sh -c 'head -c 100000 /dev/zero >"$0"; echo "went on with $?"' "$work/zeros" \
  >"$work/out" 2>&1)
grep -q "went on with 153" "$work/out" || fail "the launched program's signal is ignored: $(cat "$work/out")"  # 128 + SIGXFSZ

# What the launcher writes for its ranks.
"$anyaccel" launch --prefix_output --num_accelerators 1 -q echo text >/dev/full 2>"$work/err"
code=$?
[ $code = 1 ] || fail "launch --prefix_output to a full disk gave exit code $code"
grep -q "writing to standard output failed: No space left on device" "$work/err" || fail "launch: $(cat "$work/err")"
"$anyaccel" launch --prefix_output --num_accelerators 1 -q sh -c "echo lost >&2; sleep 0.3; echo lost >&2; echo text" >"$work/out" 2>/dev/full \
  || fail "a full disk of messages ended a job"
[ "$(cat "$work/out")" = "[rank 0] text" ] || fail "launch wrote $(cat "$work/out")"

# A disk that is full, as a small file system in a mount namespace of our own.
mkdir "$work/disk"
if unshare -m true 2>/dev/null && unshare -m mount -t tmpfs -o size=1m tmpfs "$work/disk" 2>/dev/null; then
  unshare -m sh -c 'mount -t tmpfs -o size=1m tmpfs "$2/disk" && "$1" make-model --shape stories --out "$2/disk/model" 2>"$2/err"
    echo $? >"$2/code"; ls -A "$2/disk" >"$2/left"' sh "$anyaccel" "$work"
  [ "$(cat "$work/code")" = 1 ] || fail "make-model on a full disk gave $(cat "$work/code"): $(cat "$work/err")"
  grep -q "model.safetensors: cannot be written: No space left on device" "$work/err" || fail "$(cat "$work/err")"
  [ -s "$work/left" ] && fail "make-model left $(cat "$work/left") on a full disk"
else
  echo "skipped: a full disk: no file system can be mounted here"
fi
echo "full disk: ok"
