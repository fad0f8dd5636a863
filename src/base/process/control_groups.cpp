// Implements control_groups.h.
#include "base/process/control_groups.h"

#include <algorithm>
#include <charconv>

#include "base/process/kernel_text.h"

namespace anyaccel {
namespace {

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

}  // namespace

std::vector<GroupMount> parse_group_mounts(std::string_view mountinfo, std::string_view controller) {
  std::vector<GroupMount> mounts;
  for_lines(mountinfo, [&](std::string_view line) {
    // 31 23 0:26 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) return;
    const auto before = split_line(line.substr(0, dash));
    const auto after = split_line(line.substr(dash + 3));
    if (before.size() < 5 || after.size() < 3) return;
    const bool first = after[0] == "cgroup" && lists(after[2], controller);
    if (!first && after[0] != "cgroup2") return;
    mounts.push_back({first ? 1 : 2, unescaped(before[3]), unescaped(before[4])});
  });
  return mounts;
}

std::vector<ControlGroup> parse_groups(std::string_view self_cgroup, const std::vector<GroupMount>& mounts,
                                       std::string_view controller) {
  std::vector<ControlGroup> groups;
  for_lines(self_cgroup, [&](std::string_view line) {
    // "4:memory:/a/b" of version 1, "0::/a/b" of version 2
    const size_t first = line.find(':');
    const size_t second = line.find(':', first == std::string_view::npos ? first : first + 1);
    if (second == std::string_view::npos) return;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const int version = controllers.empty() ? 2 : 1;
    if (version == 1 && !lists(controllers, controller)) return;
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

std::vector<ControlGroup> find_control_groups(std::string_view controller) {
  return parse_groups(kernel_file("/proc/self/cgroup"),
                      parse_group_mounts(kernel_file("/proc/self/mountinfo"), controller), controller);
}

}  // namespace anyaccel
