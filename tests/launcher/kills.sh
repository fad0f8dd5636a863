# Whatever is killed at whatever moment, the job ends, says why, and leaves no process. ANYACCEL_TEST_KILLS: how often (20).
anyaccel=$1
kills=${ANYACCEL_TEST_KILLS:-20}
ranks=3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: round $round, $target: $1"; cat "$dir/err"; exit 1; }
random() { echo $(($(od -An -N4 -tu4 /dev/urandom) % $1)); }
marked() { grep -lsz "^LAUNCH_TEST_MARK=$1\$" /proc/[0-9]*/environ; }
now_ms() { echo $(($(date +%s%N) / 1000000)); }

# Each rank leaves a process in a session of its own and an orphan; in every fourth round rank 0 ignores SIGTERM.
cat >"$dir/rank" <<'RANK'
[ "$STUBBORN$RANK" = 10 ] && trap "" TERM
echo $$ >"$DIR/new.$RANK" && mv "$DIR/new.$RANK" "$DIR/rank.$RANK"
setsid sleep 1000 &
(sleep 1000 &)
while :; do sleep 1000; done
RANK
slowest=0
round=0
while [ $round -lt "$kills" ]; do
  round=$((round + 1))
  rm -f "$dir"/rank.*
  mark="kill$$-$round"
  STUBBORN=$((round % 4 == 0)) DIR=$dir LAUNCH_TEST_MARK=$mark "$anyaccel" launch --num_accelerators $ranks sh "$dir/rank" 2>"$dir/err" &
  launcher=$!
  target=$(random 5)
  if [ "$target" -lt $ranks ]; then
    # a rank, some time after its start
    while [ ! -f "$dir/rank.$target" ]; do
      kill -0 $launcher 2>/dev/null || fail "the job ended before anything was killed"
      sleep 0.01
    done
    sleep "0.0$(random 100)"
    victim=$(cat "$dir/rank.$target")
    target="rank $target"
  else
    # the launcher or the process that it started, at any moment
    sleep "0.$(printf %03d "$(random 400)")"
    victim=$launcher
    if [ "$target" = 3 ]; then
      child=$(cat /proc/$launcher/task/$launcher/children 2>/dev/null)
      [ -n "$child" ] && victim=${child%% *}
    fi
    target="the launcher's process $((target - 2))"
  fi
  begin=$(now_ms)
  kill -KILL "$victim" || fail "$victim is gone already"
  wait $launcher 2>/dev/null
  got=$?
  while [ -n "$(marked "$mark")" ]; do
    [ $(($(now_ms) - begin)) -lt 10000 ] || fail "left: $(for f in $(marked "$mark"); do tr '\0' ' ' <"${f%environ}cmdline"; echo "(${f%/environ})"; done)"
    sleep 0.02
  done
  took=$(($(now_ms) - begin))
  [ $took -le $slowest ] || slowest=$took
  [ $got = 137 ] || fail "exit code $got"
  case $target in
    rank*) grep -q "$target on .* (process $victim) was killed by signal 9 (SIGKILL)" "$dir/err" || fail "not named" ;;
  esac
done
echo "kills: ok, $kills rounds, the slowest ended in $slowest ms"
