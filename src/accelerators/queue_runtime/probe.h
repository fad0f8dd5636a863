// Finds a vendor's runtime: its device nodes, its library, and the number of devices that it shows.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "accelerators/queue_runtime/library.h"
#include "accelerators/queue_runtime/process.h"
#include "anyaccel/abi/driver.h"

namespace anyaccel::queue_runtime {

// Device nodes below /dev: those whose name is `prefix` and a number.
struct NodePattern {
  const char* prefix;                // "davinci"; with a folder: "accel/accel"
  const char* pci_vendor = nullptr;  // "0x1da3", if nodes of one class belong to several vendors; else null
};

// The vendor's names and numbers for that.
struct ProbeTable {
  const char* device;    // "Ascend NPU"
  const char* software;  // "CANN"
  std::span<const NodePattern> nodes;
  const LibrarySearch& search;
  const char* library;                             // "libascendcl.so"
  const char* install_advice;                      // "install CANN and source its set_env.sh"
  const char* old_advice;                          // "install CANN 8.0 or later"
  const char* permission_advice;                   // "add it to the group of these files (usually HwHiAiUser)"
  const char* tool_advice;                         // "see npu-smi info"
  std::span<const char* const> visible_variables;  // variables that select devices: "ASCEND_RT_VISIBLE_DEVICES"
  // The form that the runtime expects in the first of them: "numbers of devices, ..."; null: the driver parses it.
  const char* visible_rule = nullptr;
  const char* start_call;             // "aclInit"; null: the first call starts the runtime
  const char* count_call;             // "aclrtGetDeviceCount"
  int no_device;                      // result of the count
  int stub_library = 0;               // result code of a stub library for linking; 0: there is none
  std::string (*version)();           // of the installation: "8.0.RC2"; empty if unknown
  std::string (*bind)(void* handle);  // binds the functions; gives the name of one that is missing, or nothing
  int (*start)();                     // null as start_call
  int (*count)(int& count);
  std::string (*text)(int result);  // as Vendor::text
};

struct Discovery {
  aa_probe_state state;
  std::string reason;
  int device_count = 0;
};

// One per vendor and process; never destroyed. Thread-safe.
class Probe {
 public:
  explicit Probe(const ProbeTable& table) : table_(table) {}

  // Looks for a device node, then the library, then devices, and stops at the first that is missing. Runtimes report
  // their devices only once they are started, and a process with a started runtime cannot fork: so a child process
  // counts them.
  Discovery discover();
  void discover(aa_probe& probe);
  // Throws AA_UNAVAILABLE with discover()'s reason if there are no devices; else starts the runtime in this process, if
  // necessary, and returns their number.
  int start();
  // The library's handle; null before discover() found it.
  void* library() const { return opened_.handle; }

 private:
  Discovery ask(const std::string& software);
  Discovery unusable(std::string reason) const { return {AA_PROBE_UNUSABLE, std::move(reason)}; }
  std::string visible_text() const;
  // The message for a runtime that shows fewer devices than its variable lists; else empty.
  std::string shortened_list(int count) const;

  const ProbeTable& table_;
  std::mutex mutex_;  // guards all that follows
  std::once_flag opened_once_;
  OpenedLibrary opened_;
  std::string missing_;
  std::optional<StartedProcess> started_;
  std::optional<Discovery> usable_;  // a child cannot query a started runtime, so the result stays fixed
};

}  // namespace anyaccel::queue_runtime
