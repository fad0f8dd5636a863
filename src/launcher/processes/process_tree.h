// The processes below one, found through /proc.
#pragma once

#include <vector>

namespace anyaccel::launcher {

// Every living process that descends from `root`, without `root` itself; children before their own children. What was
// orphaned belongs to the nearest ancestor that adopts orphans (PR_SET_CHILD_SUBREAPER).
std::vector<int> descendants(int root);

// Sends a signal to all of them. Returns how many there were. Those that are stopped are woken.
int signal_descendants(int root, int signal);

// Ends all descendants of this process with SIGKILL and reaps them, those that are started meanwhile too. False when some
// are still there after `limit_ms`: the kernel does not let them go, or they are another person's.
bool kill_descendants(int limit_ms);

}  // namespace anyaccel::launcher
