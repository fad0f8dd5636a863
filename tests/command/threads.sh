# The threads that ops on the CPU use: those that control groups, affinity masks and OMP_NUM_THREADS allow. A control group that limits
# the time of processors takes root, and a hierarchy with that controller.
anyaccel=$1
fail() { echo "FAILED: $1"; exit 1; }
export DS_ACCELERATOR=cpu
units() {  # VARIABLE=value...
  env "$@" "$anyaccel" info 2>/dev/null | sed -n 's/.* \([0-9]*\) compute units.*/\1/p'
}
processors=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
[ "$(units OMP_NUM_THREADS=1)" = 1 ] || fail "OMP_NUM_THREADS=1"
[ "$(units OMP_NUM_THREADS=100000)" = "$processors" ] || fail "OMP_NUM_THREADS=100000 on $processors processors"
cores=$(units -u OMP_NUM_THREADS)
[ "$cores" -ge 1 ] && [ "$cores" -le "$processors" ] || fail "$cores threads on $processors processors"
first=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')
[ "$(units -u OMP_NUM_THREADS taskset -c "$first")" = 1 ] || fail "a mask of one processor"

# A group of version 1 or 2.
group=
for root in /sys/fs/cgroup/cpu /sys/fs/cgroup/cpu,cpuacct /sys/fs/cgroup; do
  [ -z "$group" ] && grep -q " $root cgroup" /proc/mounts || continue
  echo +cpu 2>/dev/null >"$root/cgroup.subtree_control"
  mkdir "$root/anyaccel-test-$$" 2>/dev/null || continue
  group=$root/anyaccel-test-$$
  trap 'rmdir "$group"' EXIT
  if [ -w "$group/cpu.cfs_quota_us" ]; then
    limit() { echo 100000 >"$group/cpu.cfs_period_us" && echo "$1" >"$group/cpu.cfs_quota_us"; }
  elif [ -w "$group/cpu.max" ]; then
    limit() { echo "$1 100000" >"$group/cpu.max"; }
  else
    rmdir "$group"
    trap - EXIT
    group=
  fi
done
[ -n "$group" ] || { echo "SKIPPED: no control group that limits the time of processors can be made here"; exit 77; }

within() {  # quota, VARIABLE=value...
  limit "$1" || fail "the quota $1 cannot be set"
  shift
  sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" env "$@" "$anyaccel" info 2>/dev/null |
    sed -n 's/.* \([0-9]*\) compute units.*/\1/p'
}
[ "$(within 100000 -u OMP_NUM_THREADS)" = 1 ] || fail "a quota of one processor"
[ "$(within 30000 -u OMP_NUM_THREADS)" = 1 ] || fail "a quota below one processor"
[ "$(within 10000000 -u OMP_NUM_THREADS)" = "$cores" ] || fail "a quota of a hundred processors"
[ "$(within 100000 OMP_NUM_THREADS=$processors)" = "$processors" ] || fail "OMP_NUM_THREADS against a quota"
echo "threads: $cores of $processors processors, 1 within a quota of one"
