// Finds the descendants of a process through /proc.
#pragma once

#include <vector>

namespace anyaccel::launcher {

// Returns every living process that descends from `root`, without `root` itself; children before their own children.
// Orphans belong to the nearest ancestor that adopts them (PR_SET_CHILD_SUBREAPER).
std::vector<int> descendants(int root);

// Returns whether /proc is there and is that of this process's PID namespace, as all functions here need.
bool processes_are_listed();

// Sends a signal to all of them and wakes stopped ones. Returns their number.
int signal_descendants(int root, int signal);

// Ends all descendants of this process with SIGKILL and reaps them, including those started meanwhile. Returns false if
// some are left after `limit_ms`: they are blocked in the kernel, or belong to another user.
bool kill_descendants(int limit_ms);

}  // namespace anyaccel::launcher
