// Finds how many threads this process can compute with: the processors of its affinity mask, the cores that these belong to, and
// the time that its control groups allow.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anyaccel {

// The processors (hardware threads) that this thread may run on, ascending; all that are online if the kernel does
// not tell.
std::vector<int> allowed_processors();
// The numbers in a list of the kernel, such as "0,2-3", which are ascending; none if the text is no such list.
std::vector<int> parse_processor_list(std::string_view text);
// Returns whether the kernel tells; a filter of system calls may refuse it.
bool knows_allowed_processors();

// The number of cores that `processors` belong to. `folder` is that of the processors in /sys, or one of a test. Processors of
// which it says nothing are cores of their own.
int count_cores(const std::vector<int>& processors, const std::string& folder = "/sys/devices/system/cpu");

// The processors' worth of time that the control groups of this process allow it ("docker run --cpus=2", a limit of Kubernetes): the
// least quota divided by its period, of all groups that have one. 0: no limit. The text of a group's file or files:
// cpu.max ("200000 100000") of version 2, cpu.cfs_quota_us and cpu.cfs_period_us of version 1.
double processor_quota();
double parse_quota(std::string_view quota, std::string_view period);
double parse_cpu_max(std::string_view text);

// The threads to compute with: one for each core, since two hardware threads share what computes and its caches, and no more than
// whole processors of the quota (0: none), since a thread that uses up the time makes all others wait for the next period. At least 1.
int threads_within(int cores, double quota);

}  // namespace anyaccel
