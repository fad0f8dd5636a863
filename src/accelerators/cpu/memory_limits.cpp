// Implements memory_limits.h: how much memory the process can have.
#include "accelerators/cpu/memory_limits.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

namespace anyaccel::cpu {
namespace {

// "max", and the number that version 1 reports without a limit (the largest number of pages), mean no limit.
constexpr int64_t unlimited = int64_t{1} << 60;

// Calls `each` with every line.
template <class Each>
void for_lines(std::string_view text, Each&& each) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    each(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> found;
  for (size_t begin = 0; (begin = line.find_first_not_of(" \t", begin)) != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(" \t", begin), line.size());
    found.push_back(line.substr(begin, end - begin));
    begin = end;
  }
  return found;
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return {};
  return value;
}

// The number behind a key at the beginning of a line.
std::optional<int64_t> field(std::string_view text, std::string_view key) {
  std::optional<int64_t> found;
  for_lines(text, [&](std::string_view line) {
    const auto parts = words(line);
    if (!found && parts.size() > 1 && parts[0] == key) found = number(parts[1]);
  });
  return found;
}

bool lists(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == word) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

// A path of mountinfo, which writes blanks and the like as \040.
std::string unescaped(std::string_view text) {
  std::string path;
  for (size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '\\' && i + 3 < text.size() && std::from_chars(digits, digits + 3, code, 8).ptr == digits + 3) {
      path += static_cast<char>(code);
      i += 3;
    } else {
      path += text[i];
    }
  }
  return path;
}

// Returns the contents of a file; empty if it cannot be read.
std::string contents(const std::string& path) {
  std::string text;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  char buffer[8192];
  for (ssize_t got = 0; (got = ::read(file, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(got));
  ::close(file);
  return text;
}

int64_t total_of(const MemoryGroupTexts& texts) {
  return std::min(number(texts.max).value_or(unlimited), number(texts.high).value_or(unlimited));
}

MemoryGroupTexts texts_of(const MemoryGroup& group) {
  const std::string memory = group.folder + "/memory.";
  MemoryGroupTexts texts;
  texts.max = contents(memory + (group.version == 2 ? "max" : "limit_in_bytes"));
  if (texts.max.empty()) return texts;  // version 2: the controller is not enabled there
  if (group.version == 2) texts.high = contents(memory + "high");
  if (total_of(texts) >= unlimited) return texts;  // the other files cost the kernel ten times as much
  texts.current = contents(memory + (group.version == 2 ? "current" : "usage_in_bytes"));
  texts.stat = contents(memory + "stat");
  return texts;
}

std::optional<MemoryLimit> address_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  const auto total = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(unlimited)));
  const int64_t mapped = number(contents("/proc/self/statm")).value_or(0) * sysconf(_SC_PAGESIZE);
  return MemoryLimit{total, std::max<int64_t>(0, total - mapped), "the limit on addresses of this process (ulimit -v)",
                     true};
}

}  // namespace

std::optional<MemoryLimit> parse_meminfo(std::string_view text) {
  constexpr int64_t kib = 1024;
  const auto total = field(text, "MemTotal:");
  auto available = field(text, "MemAvailable:");
  if (!available) available = field(text, "MemFree:");
  if (!total || !available) return {};
  return MemoryLimit{*total * kib, *available * kib, "this machine"};
}

std::vector<MemoryMount> parse_mounts(std::string_view mountinfo) {
  std::vector<MemoryMount> mounts;
  for_lines(mountinfo, [&](std::string_view line) {
    // 31 23 0:26 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) return;
    const auto before = words(line.substr(0, dash));
    const auto after = words(line.substr(dash + 3));
    if (before.size() < 5 || after.size() < 3) return;
    const bool first = after[0] == "cgroup" && lists(after[2], "memory");
    if (!first && after[0] != "cgroup2") return;
    mounts.push_back({first ? 1 : 2, unescaped(before[3]), unescaped(before[4])});
  });
  return mounts;
}

std::vector<MemoryGroup> parse_groups(std::string_view self_cgroup, const std::vector<MemoryMount>& mounts) {
  std::vector<MemoryGroup> groups;
  for_lines(self_cgroup, [&](std::string_view line) {
    // "4:memory:/a/b" of version 1, "0::/a/b" of version 2
    const size_t first = line.find(':');
    const size_t second = line.find(':', first == std::string_view::npos ? first : first + 1);
    if (second == std::string_view::npos) return;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const int version = controllers.empty() ? 2 : 1;
    if (version == 1 && !lists(controllers, "memory")) return;
    std::string_view path = line.substr(second + 1);
    const auto mount = std::find_if(mounts.begin(), mounts.end(), [&](const auto& m) { return m.version == version; });
    if (mount == mounts.end()) return;
    // A container sees its own group as the mount's root, whatever the path says.
    const std::string_view root = mount->root == "/" ? "" : std::string_view(mount->root);
    const bool below = path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/') &&
                       path.find("/..") == std::string_view::npos;
    path = below ? path.substr(root.size()) : "";
    while (path.ends_with('/')) path.remove_suffix(1);
    for (;;) {
      groups.push_back({version, mount->folder + std::string(path)});
      if (path.empty()) break;
      path = path.substr(0, path.rfind('/'));
    }
  });
  return groups;
}

std::optional<MemoryLimit> parse_group(const MemoryGroup& group, const MemoryGroupTexts& texts) {
  const int64_t total = total_of(texts);
  const auto used = number(texts.current);
  if (total >= unlimited || !used) return {};
  // Sums over the groups below, which version 1 has beside the group's own.
  const std::string_view prefix = group.version == 1 && field(texts.stat, "total_inactive_file") ? "total_" : "";
  int64_t cache = 0;
  for (const char* list : {"inactive_file", "active_file"}) {
    cache += field(texts.stat, std::string(prefix) + list).value_or(0);
  }
  const int64_t available = total - std::max<int64_t>(0, *used - cache);
  return MemoryLimit{total, std::clamp<int64_t>(available, 0, total), "the control group " + group.folder};
}

std::vector<MemoryLimit> read_memory_limits() {
  // Mounts do not change while a program runs; the group of a process may. Never destroyed: memory is still asked for when
  // static objects are.
  static const auto& mounts = *new std::vector<MemoryMount>(parse_mounts(contents("/proc/self/mountinfo")));
  std::vector<MemoryLimit> limits;
  if (auto machine = parse_meminfo(contents("/proc/meminfo"))) limits.push_back(std::move(*machine));
  for (const MemoryGroup& group : parse_groups(contents("/proc/self/cgroup"), mounts)) {
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
