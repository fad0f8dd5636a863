// Room for file descriptors: what a group of many processes needs and a limit on open files (ulimit -n) may not leave.
#pragma once

#include <cstddef>
#include <string>

namespace anyaccel {

// Sees that `count` more descriptors can be opened. Where the soft limit leaves no room it is raised by `count`, as far as the
// hard limit allows. Empty when there is room; otherwise what was found and what to do: "this process has 1010 files open of at
// most 1024 ...". Nothing is set aside: it is for a moment in which nobody else opens many.
std::string make_room_for_files(size_t count);

// strerror(error), and with it, where the limit on open files is what was met, that limit and what to do.
std::string system_error_text(int error);

}  // namespace anyaccel
