// Reads how often the kernel's OOM killer killed a process of our control group.
#include "launcher/processes/memory_kills.h"

#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

namespace anyaccel::launcher {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool lists(std::string_view commas, std::string_view name) {
  for (size_t begin = 0; begin <= commas.size();) {
    const size_t end = std::min(commas.find(',', begin), commas.size());
    if (commas.substr(begin, end - begin) == name) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

int64_t parse_memory_kills(std::string_view text) {
  constexpr std::string_view key = "oom_kill ";
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (line.substr(0, key.size()) == key) {
      int64_t count = 0;
      std::from_chars(line.data() + key.size(), line.data() + line.size(), count);
      return count;
    }
    begin = end + 1;
  }
  return 0;
}

std::string memory_group_folder(std::string_view cgroup, std::string_view mounts) {
  // "4:memory:/path" is version 1, "0::/path" version 2, if "memory" is not a version 1 controller.
  std::string path;
  bool version1 = false;
  std::istringstream groups{std::string(cgroup)};
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (lists(controllers, "memory")) {
      path = line.substr(second + 1);
      version1 = true;
      break;
    }
    if (controllers.empty()) path = line.substr(second + 1);
  }
  if (path.empty()) return {};
  // "25 20 0:22 ROOT MOUNTPOINT options ... - TYPE source super-options"
  std::istringstream lines{std::string(mounts)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    const std::vector<std::string> words{std::istream_iterator<std::string>(fields), {}};
    size_t dash = 6;
    while (dash < words.size() && words[dash] != "-") ++dash;
    if (dash + 3 >= words.size() || words[dash + 1] != (version1 ? "cgroup" : "cgroup2")) continue;
    if (version1 && !lists(words[dash + 3], "memory")) continue;
    std::string below = path;
    const std::string& root = words[3];
    if (root != "/" && below.compare(0, root.size(), root) == 0) below.erase(0, root.size());
    return words[4] + (below == "/" ? "" : below);
  }
  return {};
}

int64_t count_memory_kills() {
  const std::string folder = memory_group_folder(read_text("/proc/self/cgroup"), read_text("/proc/self/mountinfo"));
  if (folder.empty()) return 0;
  const std::string events = read_text(folder + "/memory.events");
  return parse_memory_kills(events.empty() ? read_text(folder + "/memory.oom_control") : events);
}

}  // namespace anyaccel::launcher
