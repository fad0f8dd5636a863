# As the first process of a container, for which the kernel takes no default action of a signal: SIGTERM and SIGHUP end the command
# and leave no unfinished file.
anyaccel=$1
source=$2
fail() { echo "FAILED: $1"; exit 1; }
if ! unshare -p -f --mount-proc true 2>/dev/null; then
  echo "skipped: no namespace of processes can be made here"
  exit 77
fi
if [ ! -e /proc/$$/task/$$/children ]; then
  echo "skipped: this kernel lists no children of a process (CONFIG_PROC_CHILDREN)"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for signal in 15 1; do  # SIGTERM, SIGHUP
  for command in "generate --model $source/models/stories --prompt Once --max-new-tokens 100000 --ignore-eos --context 100000" \
    "make-model --shape llama-8b --out $work/model" "launch --num_accelerators 2 sleep 100"; do
    unshare -p -f --mount-proc "$anyaccel" $command >"$work/out" 2>"$work/err" &
    outer=$!
    sleep 0.4
    first=$(cat /proc/$outer/task/$outer/children)
    [ -n "$first" ] || fail "$command ended by itself: $(cat "$work/err")"
    left=100
    while [ -n "$(cat /proc/$outer/task/$outer/children 2>/dev/null)" ] && [ $left -gt 0 ]; do
      # Again each second: the kernel drops a signal that comes before a slow command has its handlers.
      [ $((left % 10)) != 0 ] || kill -$signal $first 2>/dev/null
      left=$((left - 1))
      sleep 0.1
    done
    [ $left -gt 0 ] || { kill -KILL $first; fail "$command goes on after signal $signal"; }
    wait $outer
    code=$?
    [ $code = $((128 + signal)) ] || fail "$command ended with $code after signal $signal: $(cat "$work/err")"
    [ ! -e "$work/model" ] || fail "signal $signal left $(ls -A "$work/model")"
  done
done
echo "first process: ok"
