// Whether a process group can have the backend that it is asked for, by name: what is named runs, or is an error that lists
// what could.
#pragma once

#include <string>

namespace anyaccel {
class Accelerator;
}

namespace anyaccel::comm {

struct BackendChoice {
  // Whether the group may try the accelerator's own library of collectives.
  bool device_library = false;
  // To be said once where nothing was asked for: the accelerator names a library that is not there. Else empty.
  std::string notice;
};

// asked: InitOptions::backend. InvalidArgument for a name that is nobody's, UnavailableError for the accelerator's own library
// where that cannot be used. Opens the library and, unless a backend of the host is asked for, the current device.
BackendChoice choose_backend(const std::string& asked, Accelerator& accelerator);

// "shm", "gloo" or "mpi": what carries host memory.
bool is_host_backend(const std::string& name);

}  // namespace anyaccel::comm
