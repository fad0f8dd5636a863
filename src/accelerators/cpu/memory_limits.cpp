// Implements memory_limits.h: how much memory the process can have.
#include "accelerators/cpu/memory_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "base/process/kernel_text.h"

namespace anyaccel::cpu {
namespace {

// "max", and the number that version 1 reports without a limit (the largest number of pages), mean no limit.
constexpr int64_t unlimited = int64_t{1} << 60;

int64_t total_of(const MemoryGroupTexts& texts) {
  return std::min(leading_number(texts.max).value_or(unlimited), leading_number(texts.high).value_or(unlimited));
}

MemoryGroupTexts texts_of(const ControlGroup& group) {
  const std::string memory = group.folder + "/memory.";
  MemoryGroupTexts texts;
  texts.max = kernel_file(memory + (group.version == 2 ? "max" : "limit_in_bytes"));
  if (texts.max.empty()) return texts;  // version 2: the controller is not enabled there
  if (group.version == 2) texts.high = kernel_file(memory + "high");
  if (total_of(texts) >= unlimited) return texts;  // the other files cost the kernel ten times as much
  texts.current = kernel_file(memory + (group.version == 2 ? "current" : "usage_in_bytes"));
  texts.stat = kernel_file(memory + "stat");
  return texts;
}

std::optional<MemoryLimit> address_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  const auto total = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(unlimited)));
  const int64_t mapped = leading_number(kernel_file("/proc/self/statm")).value_or(0) * sysconf(_SC_PAGESIZE);
  return MemoryLimit{total, std::max<int64_t>(0, total - mapped), "the limit on addresses of this process (ulimit -v)",
                     true};
}

}  // namespace

std::optional<MemoryLimit> parse_meminfo(std::string_view text) {
  constexpr int64_t kib = 1024;
  const auto total = number_of(text, "MemTotal:");
  auto available = number_of(text, "MemAvailable:");
  if (!available) available = number_of(text, "MemFree:");
  if (!total || !available) return {};
  return MemoryLimit{*total * kib, *available * kib, "this machine"};
}

std::optional<MemoryLimit> parse_group(const ControlGroup& group, const MemoryGroupTexts& texts) {
  const int64_t total = total_of(texts);
  const auto used = leading_number(texts.current);
  if (total >= unlimited || !used) return {};
  // Sums over the groups below, which version 1 has beside the group's own.
  const std::string_view prefix = group.version == 1 && number_of(texts.stat, "total_inactive_file") ? "total_" : "";
  int64_t cache = 0;
  for (const char* list : {"inactive_file", "active_file"}) {
    cache += number_of(texts.stat, std::string(prefix) + list).value_or(0);
  }
  const int64_t available = total - std::max<int64_t>(0, *used - cache);
  return MemoryLimit{total, std::clamp<int64_t>(available, 0, total), "the control group " + group.folder};
}

std::vector<MemoryLimit> read_memory_limits() {
  // Mounts do not change while a program runs; the group of a process may. Never destroyed: memory is still asked for when
  // static objects are.
  static const auto& mounts =
      *new std::vector<GroupMount>(parse_group_mounts(kernel_file("/proc/self/mountinfo"), "memory"));
  std::vector<MemoryLimit> limits;
  if (auto machine = parse_meminfo(kernel_file("/proc/meminfo"))) limits.push_back(std::move(*machine));
  for (const ControlGroup& group : parse_groups(kernel_file("/proc/self/cgroup"), mounts, "memory")) {
    if (auto limit = parse_group(group, texts_of(group))) limits.push_back(std::move(*limit));
  }
  if (auto limit = address_limit()) limits.push_back(std::move(*limit));
  return limits;
}

int64_t margin_of(const MemoryLimit& limit) {
  if (limit.of_addresses) return 0;
  constexpr int64_t mib = int64_t{1} << 20;
  return std::clamp(limit.total / 32, 16 * mib, 512 * mib);
}

}  // namespace anyaccel::cpu
