// Finds the control groups that limit this process, of version 1 and 2, its own and those above it. The functions take the
// texts of files, so that tests can pass those of other machines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anyaccel {

// The mount point of a hierarchy of control groups.
struct GroupMount {
  int version = 2;     // of the interface
  std::string root;    // the group that the mount point shows
  std::string folder;  // the mount point
};
// The mounts of version 2, and those of version 1 that have `controller` ("memory", "cpu"), from /proc/self/mountinfo.
std::vector<GroupMount> parse_group_mounts(std::string_view mountinfo, std::string_view controller);

struct ControlGroup {
  int version = 2;
  std::string folder;
};
// The process's own group of `controller` and those above it, as far as they are mounted, the own one first; from
// /proc/self/cgroup.
std::vector<ControlGroup> parse_groups(std::string_view self_cgroup, const std::vector<GroupMount>& mounts,
                                       std::string_view controller);

// The groups of this process now. Reads two small files.
std::vector<ControlGroup> find_control_groups(std::string_view controller);

}  // namespace anyaccel
