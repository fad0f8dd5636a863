// Implements processors.h.
#include "base/process/processors.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/process/control_groups.h"
#include "base/process/kernel_text.h"

namespace anyaccel {

std::vector<int> allowed_processors() {
  std::vector<int> found;
  // The mask of a machine with more than 1024 processors does not fit a cpu_set_t.
  for (int processors = 1024; processors <= 1 << 20; processors *= 4) {
    cpu_set_t* set = CPU_ALLOC(processors);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(processors);
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    const int error = errno;
    for (int i = 0; ok && i < processors; ++i) {
      if (CPU_ISSET_S(i, bytes, set)) found.push_back(i);
    }
    CPU_FREE(set);
    if (ok || error != EINVAL) break;
  }
  if (found.empty()) found = parse_processor_list(kernel_file("/sys/devices/system/cpu/online"));
  if (!found.empty()) return found;
  const long all = std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L);
  for (long i = 0; i < all; ++i) found.push_back(static_cast<int>(i));
  return found;
}

std::vector<int> parse_processor_list(std::string_view text) {
  constexpr int64_t most = 1 << 20;
  std::vector<int> found;
  const auto take_number = [&text] {
    const auto number = leading_number(text);
    text.remove_prefix(std::min(text.find_first_not_of("0123456789"), text.size()));
    return number;
  };
  const auto take = [&text](char wanted) {
    const bool is_there = text.starts_with(wanted);
    if (is_there) text.remove_prefix(1);
    return is_there;
  };
  do {
    const auto first = take_number();
    const auto last = take('-') ? take_number() : first;
    if (!first || !last || *last < *first || *last >= most || (!found.empty() && *first <= found.back())) return {};
    for (int64_t i = *first; i <= *last; ++i) found.push_back(static_cast<int>(i));
  } while (take(','));
  return text.empty() || text == "\n" ? found : std::vector<int>();
}

bool knows_allowed_processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 || errno == EINVAL;  // of more than 1024
}

int count_cores(const std::vector<int>& processors, const std::string& folder) {
  const int count = static_cast<int>(processors.size());
  // Each file takes some ten microseconds, and most machines with many processors have such a summary.
  if (count == 1 || kernel_file(folder + "/smt/active").starts_with('0')) return count;
  int alone = 0;
  std::set<std::string> cores;
  for (const int processor : processors) {
    const std::string siblings =
        kernel_file(folder + "/cpu" + std::to_string(processor) + "/topology/thread_siblings_list");
    if (siblings.empty()) {
      ++alone;
    } else {
      cores.insert(siblings);
    }
  }
  return alone + static_cast<int>(cores.size());
}

double parse_quota(std::string_view quota, std::string_view period) {
  const auto time = leading_number(quota), of = leading_number(period);  // a quota of -1 is none
  return time && of && *time > 0 && *of > 0 ? static_cast<double>(*time) / static_cast<double>(*of) : 0;
}

double parse_cpu_max(std::string_view text) {
  const auto words = split_line(text);
  return words.size() == 2 ? parse_quota(words[0], words[1]) : 0;  // "max 100000": none
}

double processor_quota() {
  double least = 0;
  for (const ControlGroup& group : find_control_groups("cpu")) {
    const std::string cpu = group.folder + "/cpu.";
    const double quota = group.version == 2
                             ? parse_cpu_max(kernel_file(cpu + "max"))
                             : parse_quota(kernel_file(cpu + "cfs_quota_us"), kernel_file(cpu + "cfs_period_us"));
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
  }
  return least;
}

int threads_within(int cores, double quota) {
  const double most = quota > 0 ? std::min<double>(cores, quota) : cores;
  return std::max(static_cast<int>(most), 1);
}

}  // namespace anyaccel
