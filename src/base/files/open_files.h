// Makes room for file descriptors: a group of many processes may need more than the limit on open files (ulimit -n)
// allows.
#pragma once

#include <cstddef>
#include <string>

namespace anyaccel {

// Makes sure that `count` more descriptors can be opened. If the soft limit is too low it is raised by `count`, as far
// as the hard limit allows. Returns an empty text on success; otherwise the problem and what to do: "this process has
// 1010 files open of at most 1024 ...". Nothing is reserved: no other thread may open many files meanwhile.
std::string make_room_for_files(size_t count);

// Returns strerror(error); if the error is the limit on open files, adds that limit and what to do.
std::string system_error_text(int error);

}  // namespace anyaccel
