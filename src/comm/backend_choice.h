// Chooses the backend of a process group: a requested backend is used, or an error lists the available ones.
#pragma once

#include <string>

namespace anyaccel {
class Accelerator;
}

namespace anyaccel::comm {

struct BackendChoice {
  // True if the group may try the accelerator's own collectives library.
  bool device_library = false;
  // A warning to log once if no backend was requested and the library that the accelerator names is missing. Else
  // empty.
  std::string notice;
};

// asked: InitOptions::backend. InvalidArgument for an unknown name, UnavailableError for the accelerator's own library
// if that cannot be used. Opens the library and, unless a host backend is requested, the current device.
BackendChoice choose_backend(const std::string& asked, Accelerator& accelerator);

// The transport for host memory: "shm", "gloo", "mpi" or "ccl".
bool is_host_backend(const std::string& name);

// Returns the backend that a group uses: `asked`, else the one that ANYACCEL_COMM_BACKEND names, else "".
std::string backend_or_default(const std::string& asked);

}  // namespace anyaccel::comm
