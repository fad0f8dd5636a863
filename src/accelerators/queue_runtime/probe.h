// Finding a vendor's runtime: its device nodes, its library, and how many devices it shows.
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
  const char* pci_vendor = nullptr;  // "0x1da3", where nodes of one class belong to several vendors; null: they do not
};

// What is the vendor's own about that.
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
  std::span<const char* const> visible_variables;  // those that choose among the devices: "ASCEND_RT_VISIBLE_DEVICES"
  // What the runtime takes for a list in the first of them: "numbers of devices, ..."; null: the driver reads it itself.
  const char* visible_rule = nullptr;
  const char* start_call;             // "aclInit"; null: the first call starts the runtime
  const char* count_call;             // "aclrtGetDeviceCount"
  int no_device;                      // result of the count
  int stub_library = 0;               // result of a library that is for linking; 0: there is none
  std::string (*version)();           // of the installation: "8.0.RC2"; empty when it is not told
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

// One a vendor and process; never destroyed. Thread-safe.
class Probe {
 public:
  explicit Probe(const ProbeTable& table) : table_(table) {}

  // Looks for a device node, then the library, then devices, and stops at the first that is missing. Runtimes tell their devices
  // only once they are started, which a process does not survive that forks afterwards: so a child process asks.
  Discovery discover();
  void discover(aa_probe& probe);
  // Throws AA_UNAVAILABLE with discover()'s reason unless there are devices; else starts the runtime in this process, if it was
  // not, and gives their number.
  int start();
  // The library's handle; null before discover() found it.
  void* library() const { return opened_.handle; }

 private:
  Discovery ask(const std::string& software);
  Discovery unusable(std::string reason) const { return {AA_PROBE_UNUSABLE, std::move(reason)}; }
  std::string visible_text() const;
  // What is to be said where the runtime shows fewer devices than its variable lists; else nothing.
  std::string shortened_list(int count) const;

  const ProbeTable& table_;
  std::mutex mutex_;  // guards all that follows
  std::once_flag opened_once_;
  OpenedLibrary opened_;
  std::string missing_;
  std::optional<StartedProcess> started_;
  std::optional<Discovery> usable_;  // a started runtime cannot be asked by a child, and the answer stays
};

}  // namespace anyaccel::queue_runtime
