# Where /sys is empty, as in some sandboxes: the commands work, and hwloc, which reads the processors there, prints nothing.
anyaccel=$1
source=$2
fail() { echo "FAILED: $1"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DS_ACCELERATOR=cpu
without_sys() { unshare -m sh -c 'mount -t tmpfs tmpfs /sys && exec "$@"' sh "$@" >"$work/out" 2>"$work/err"; }
if ! without_sys true; then
  echo "skipped: /sys cannot be hidden here"
  exit 77
fi
without_sys "$anyaccel" info || fail "info: $(cat "$work/err")"
[ -s "$work/err" ] && fail "info prints $(cat "$work/err")"
without_sys "$anyaccel" launch --num_accelerators 2 --bind_cores_to_rank "$anyaccel" generate --model "$source/models/stories" \
  --prompt Once --max-new-tokens 8 || fail "launch: $(cat "$work/err")"
grep hwloc "$work/err" && fail "launch prints lines of hwloc"
echo "without /sys: ok"
