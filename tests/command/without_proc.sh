# Where /proc is not mounted: text is generated, programs find the package beside them, and the launcher, which cannot find the
# processes of a job there, says what it needs.
anyaccel=$1
source=$2
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
without_proc() { unshare -m sh -c 'mount -t tmpfs tmpfs /proc && exec "$@"' sh "$@" >"$work/out" 2>"$work/err"; }
if ! without_proc true; then
  echo "skipped: /proc cannot be hidden here"
  exit 77
fi
without_proc "$anyaccel" generate --model "$source/models/stories" --prompt Once --max-new-tokens 8 || fail "$(cat "$work/err")"
cp "$work/out" "$work/text"
"$anyaccel" generate --model "$source/models/stories" --prompt Once --max-new-tokens 8 2>/dev/null | cmp - "$work/text" \
  || fail "another text: $(cat "$work/text")"
without_proc "$anyaccel" bench --help || fail "the program beside the command is not found: $(cat "$work/err")"
without_proc "$anyaccel" launch --num_accelerators 2 true && fail "launched"
grep -q "finds the processes of a job in /proc, which is not mounted here" "$work/err" || fail "launch: $(cat "$work/err")"
echo "without /proc: ok"
