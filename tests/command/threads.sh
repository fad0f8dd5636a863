# The threads that ops on the CPU use: those that control groups, affinity masks and OMP_NUM_THREADS allow. A control group that limits
# the time of processors takes root, and a hierarchy with that controller.
anyaccel=$1
fail() { echo "FAILED: $1"; exit 1; }
export DS_ACCELERATOR=cpu LOCAL_SIZE=1
units() {  # VARIABLE=value...
  env "$@" "$anyaccel" info 2>/dev/null | sed -n 's/.* \([0-9]*\) compute units.*/\1/p'
}
# The processors of the affinity mask, and the cores that they belong to.
mask=$(taskset -cp $$ | sed 's/.*: //; s/,/ /g; s/\([0-9]*\)-\([0-9]*\)/$(seq \1 \2)/g; s/^/echo /' | sh)
processors=$(echo "$mask" | wc -w)
cores=$(for cpu in $mask; do
  cat "/sys/devices/system/cpu/cpu$cpu/topology/thread_siblings_list" 2>/dev/null || echo "$cpu"
done | sort -u | grep -c .)
[ "$(units OMP_NUM_THREADS=1)" = 1 ] || fail "OMP_NUM_THREADS=1"
[ "$(units OMP_NUM_THREADS=100000)" = "$processors" ] || fail "OMP_NUM_THREADS=100000 on $processors processors"
threads=$(units -u OMP_NUM_THREADS)
[ "$threads" -ge 1 ] && [ "$threads" -le "$cores" ] || fail "$threads threads on $cores cores"
[ "$(units -u OMP_NUM_THREADS taskset -c "${mask%% *}")" = 1 ] || fail "a mask of one processor"

# A group of version 1 or 2.
group=
for root in /sys/fs/cgroup/cpu /sys/fs/cgroup/cpu,cpuacct /sys/fs/cgroup; do
  [ -z "$group" ] && grep -q " $root cgroup" /proc/mounts || continue
  if [ -e "$root/cgroup.subtree_control" ] && ! grep -qw cpu "$root/cgroup.subtree_control"; then continue; fi
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

limit 100000 2>/dev/null || { echo "SKIPPED: a group above has less than one processor"; exit 77; }
within() {  # quota, VARIABLE=value...
  limit "$1" || exit 1
  shift
  sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" env "$@" "$anyaccel" info 2>/dev/null |
    sed -n 's/.* \([0-9]*\) compute units.*/\1/p'
}
[ "$(within 100000 -u OMP_NUM_THREADS)" = 1 ] || fail "a quota of one processor"
[ "$(within 30000 -u OMP_NUM_THREADS)" = 1 ] || fail "a quota below one processor"
# The group may lie beside the one that limits this script, so that every core can be used in it.
if limit $((processors * 100000)) 2>/dev/null; then  # no group above has less
  [ "$(within $((processors * 100000)) -u OMP_NUM_THREADS)" = "$cores" ] || fail "a quota of all processors"
fi
[ "$(within 100000 OMP_NUM_THREADS=$processors)" = "$processors" ] || fail "OMP_NUM_THREADS against a quota"
echo "threads: $threads of $processors processors ($cores cores), 1 within a quota of one"
