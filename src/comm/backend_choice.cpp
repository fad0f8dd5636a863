// Chooses the backend of a process group.
#include "comm/backend_choice.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "anyaccel/abi/table_calls.hpp"
#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "comm/ccl/ccl_library.h"
#include "comm/host_communicator.h"
#include "comm/mpi/mpi_library.h"
#include "runtime/driver/host_services.h"

namespace anyaccel::comm {
namespace {

// Describes the accelerator's collectives library.
struct OwnLibrary {
  std::vector<std::string> names;  // names by which it may be requested: the accelerator's and the library's own
  bool there = false;              // the accelerator's driver supports it
  std::string problem;             // why it cannot be used; empty: it can, or does not exist
};

OwnLibrary own_library(Accelerator& accelerator) {
  OwnLibrary own;
  const std::string name = accelerator.communication_backend_name();
  const CollectivesAccess access = accelerator.collectives(accelerator.current_device());
  if (!name.empty() && !is_host_backend(name)) own.names.push_back(name);
  own.there = access.table != nullptr;
  if (!own.there) {
    own.problem = "the driver of " + accelerator.name() + " has no collectives of its own in this build";
    return own;
  }
  const char* library = nullptr;
  const char* version = nullptr;
  const StatusRef status(access.table->library(access.instance, &library, &version));
  if (!status.ok()) {
    own.problem = status.message();
  } else if (library && *library && !std::count(own.names.begin(), own.names.end(), library)) {
    own.names.push_back(library);
  }
  return own;
}

std::string what_could_run(const OwnLibrary& own) {
  std::string text = "shm (inside one host)";
  if (gloo_is_built()) text += ", gloo";
  try {
    mpi_compiler(mpi_launcher());
    text += ", mpi";
  } catch (const UnavailableError&) {  // no MPI on this machine
  }
  if (ccl_problem().empty()) text += ", ccl";
  if (own.problem.empty() && !own.names.empty()) text += ", " + own.names.front();
  return text;
}

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

}  // namespace

bool is_host_backend(const std::string& name) {
  return name == "shm" || name == "gloo" || name == "mpi" || name == "ccl";
}

std::string backend_or_default(const std::string& asked) {
  const char* value = std::getenv("ANYACCEL_COMM_BACKEND");
  return asked.empty() && value ? value : asked;
}

BackendChoice choose_backend(const std::string& asked, Accelerator& accelerator) {
  if (is_host_backend(asked)) return {};
  const OwnLibrary own = own_library(accelerator);
  if (asked.empty()) {
    BackendChoice choice{own.there, ""};
    if (!own.there && !own.names.empty()) {  // failures of an existing library are reported when the devices are joined
      choice.notice = "the library of collectives of " + accelerator.name() + ", " + own.names.front() +
                      ", cannot be used, and process groups carry its tensors through host memory: " + own.problem;
    }
    return choice;
  }
  const auto is_own = [&](const std::string& name) { return std::count(own.names.begin(), own.names.end(), name) > 0; };
  if (is_own(asked)) {
    if (own.problem.empty()) return {true, ""};
    throw UnavailableError("the backend \"" + asked + "\" was requested and cannot be used: " + own.problem +
                           ". What could run: " + what_could_run(own) + "; or ask for none");
  }
  const std::string lower = lower_case(asked);
  const bool spelled = lower != asked && (is_host_backend(lower) || is_own(lower));
  throw InvalidArgument("there is no backend \"" + asked + "\" for process groups of " + accelerator.name() +
                        (spelled ? "; it is written \"" + lower + "\"" : "") +
                        ". What could run: " + what_could_run(own) + "; or ask for none");
}

}  // namespace anyaccel::comm
