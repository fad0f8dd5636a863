# The number of compilers that the Makefile starts at once: as many as there are cores, or as fit into the memory of the machine or
# of its container.
source=$2
fail() { echo "FAILED: $1"; exit 1; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/proc" "$root/sys/fs/cgroup/memory" "$root/bin"
printf '#!/bin/sh\necho 16\n' >"$root/bin/nproc"
chmod +x "$root/bin/nproc"
expect() { # JOBS MEMINFO-LINE MEMORY.MAX
  echo "$2" >"$root/proc/meminfo"
  echo "$3" >"$root/sys/fs/cgroup/memory.max"
  jobs=$(PATH=$root/bin:$PATH "$source/tools/build_jobs" "$root") || fail "tools/build_jobs: $?"
  [ "$jobs" = "$1" ] || fail "$jobs instead of $1 jobs with '$2' and a limit of $3"
}
expect 16 "MemAvailable:   64000000 kB" max
expect 6 "MemAvailable:    8000000 kB" max
expect 1 "MemAvailable:     500000 kB" max
expect 1 "MemAvailable:   64000000 kB" 2147483648
expect 3 "MemAvailable:   64000000 kB" 4294967296
expect 16 "" max
rm "$root/sys/fs/cgroup/memory.max"
echo 9223372036854771712 >"$root/sys/fs/cgroup/memory/memory.limit_in_bytes"
[ "$(PATH=$root/bin:$PATH "$source/tools/build_jobs" "$root")" = 16 ] || fail "no limit is taken for one"
grep -q 'JOBS *?= .*tools/build_jobs' "$source/Makefile" || fail "the Makefile does not ask tools/build_jobs"
echo "build jobs: ok"
