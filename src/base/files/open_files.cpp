// Raises the limit on open files when a group needs more descriptors.
#include "base/files/open_files.h"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

namespace anyaccel {
namespace {

// Returns the number of descriptors that this process has open. If the kernel does not provide it: `limit` if no
// descriptor is left to query it, else 0.
size_t count_open_files(const rlimit& limit) {
  DIR* const folder = opendir("/proc/self/fd");
  if (!folder) return errno == EMFILE ? limit.rlim_cur : 0;
  size_t count = 0;
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.';
  closedir(folder);
  return count - 1;  // the folder's own
}

// "this process has 1010 files open of at most 1024 (ulimit -n; the hard limit is 4096)"
std::string state_text(size_t open, const rlimit& limit) {
  return "this process has " + std::to_string(open) + " files open of at most " + std::to_string(limit.rlim_cur) +
         " (ulimit -n; the hard limit is " +
         (limit.rlim_max == RLIM_INFINITY ? std::string("none") : std::to_string(limit.rlim_max)) + ")";
}

}  // namespace

std::string make_room_for_files(size_t count) {
  static std::mutex mutex;  // otherwise two threads might raise the limit only once
  const std::lock_guard lock(mutex);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  const size_t open = count_open_files(limit);
  if (open + count <= limit.rlim_cur) return {};
  // The limit is raised by `count`, so that the program has as many descriptors left as before.
  rlimit raised = limit;
  raised.rlim_cur = std::min<rlim_t>(limit.rlim_cur + count, limit.rlim_max);
  if (raised.rlim_cur > limit.rlim_cur && setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  if (open + count <= limit.rlim_cur) return {};
  return state_text(open, limit) + ", and needs " + std::to_string(count) + " more: raise the limit on open files to " +
         std::to_string(open + count) + " or more before it starts";
}

std::string system_error_text(int error) {
  std::string text = std::strerror(error);
  rlimit limit{};
  if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    text += ": " + state_text(count_open_files(limit), limit) + "; raise the limit on open files before it starts";
  }
  return text;
}

}  // namespace anyaccel
