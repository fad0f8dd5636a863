// Implements library.h: finds Metal and its devices.
#include "accelerators/mps/library.h"

#include <dlfcn.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "accelerators/mps/metal.h"
#include "accelerators/queue_runtime/process.h"
#include "base/process/child_count.h"

namespace anyaccel::mps {
namespace {

constexpr const char* path_variable = "ANYACCEL_MPS_LIBRARY_PATH";
constexpr const char* cure = "an Apple silicon machine (M1 or later) with macOS is needed";
constexpr std::chrono::seconds child_limit{30};

struct LibraryFile {
  const char* name;    // in the folder that the variable names
  const char* system;  // on macOS, where the loader's cache contains it; it does not exist as a separate file
};
constexpr LibraryFile objc_file{"libobjc.A.dylib", "/usr/lib/libobjc.A.dylib"};
constexpr LibraryFile metal_file{"Metal", "/System/Library/Frameworks/Metal.framework/Metal"};

// Opens the library; returns null and sets `problem` if that fails.
void* open(const LibraryFile& file, std::string& problem) {
  std::string tried;
  const auto try_path = [&](const std::string& path) {
    dlerror();
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    const char* why = handle ? nullptr : dlerror();
    if (!handle)
      tried += (tried.empty() ? "" : "; ") + path + " cannot be opened" + (why ? std::string(" (") + why + ")" : "");
    return handle;
  };
  if (const char* folder = std::getenv(path_variable); folder && *folder) {
    if (void* handle = try_path(std::string(folder) + "/" + file.name)) return handle;
  }
  if (void* handle = try_path(file.system)) return handle;
  problem = tried;
  return nullptr;
}

// Binds all functions; returns "" or a description of what is missing.
std::string bind() {
  std::string problem;
  void* const objc = open(objc_file, problem);
  void* const metal = objc ? open(metal_file, problem) : nullptr;
  if (!metal) return problem;
  const auto find = [&](auto& function, void* library, const char* library_name, const char* name) {
    void* const symbol = dlsym(library, name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
    if (!symbol && problem.empty()) problem = std::string(library_name) + " lacks the function " + name;
  };
  find(api.objc_getClass, objc, objc_file.name, "objc_getClass");
  find(api.sel_registerName, objc, objc_file.name, "sel_registerName");
  find(api.objc_msgSend, objc, objc_file.name, "objc_msgSend");
  find(api.objc_autoreleasePoolPush, objc, objc_file.name, "objc_autoreleasePoolPush");
  find(api.objc_autoreleasePoolPop, objc, objc_file.name, "objc_autoreleasePoolPop");
  find(api._NSConcreteStackBlock, objc, objc_file.name, "_NSConcreteStackBlock");
  find(api.MTLCopyAllDevices, metal, metal_file.name, "MTLCopyAllDevices");
  if (!problem.empty()) return problem + "; a later macOS is needed";
#define ANYACCEL_SELECTOR(member, text) sel.member = api.sel_registerName(text);
  ANYACCEL_METAL_SELECTORS(ANYACCEL_SELECTOR)
#undef ANYACCEL_SELECTOR
  return {};
}

const std::string& binding_problem() {
  static const std::string problem = bind();
  return problem;
}

bool flag(Id object, Selector selector) { return send<signed char>(object, selector) != 0; }

// Returns "" for a device that is not Apple's, or is older than the M1.
std::string family_of(Id device) {
  std::string family;
  for (int64_t number = family_apple7; number <= family_apple_newest; ++number) {
    if (send<signed char>(device, sel.supportsFamily, number)) family = "apple" + std::to_string(number - 1000);
  }
  return family;
}

struct Devices {
  std::vector<DeviceFacts> usable;
  std::string passed_over;  // the devices that are not usable, and why
};

Devices read_devices() {
  Devices found;
  const Pool pool;
  const Owned all = Owned::given(api.MTLCopyAllDevices());
  const uint64_t count = all ? send<uint64_t>(all.get(), sel.count) : 0;
  for (uint64_t i = 0; i < count; ++i) {
    const Id device = send<Id>(all.get(), sel.objectAtIndex, i);
    DeviceFacts facts;
    facts.name = text_of(send<Id>(device, sel.name));
    facts.family = family_of(device);
    const bool unified = flag(device, sel.hasUnifiedMemory);
    if (facts.family.empty() || !unified) {
      found.passed_over += (found.passed_over.empty() ? "" : ", ") + facts.name +
                           (facts.family.empty() ? " is older than the family Apple7" : " has memory of its own");
      continue;
    }
    facts.device = Owned::retained(device);
    facts.memory = static_cast<int64_t>(send<uint64_t>(device, sel.recommendedMaxWorkingSetSize));
    facts.max_buffer = static_cast<int64_t>(send<uint64_t>(device, sel.maxBufferLength));
    facts.threadgroup_memory = static_cast<int64_t>(send<uint64_t>(device, sel.maxThreadgroupMemoryLength));
    facts.registry_id = send<uint64_t>(device, sel.registryID);
    found.usable.push_back(std::move(facts));
  }
  return found;
}

std::string none_usable(const Devices& devices) {
  return devices.passed_over.empty() ? std::string("Metal shows no device; ") + cure
                                     : "Metal has no device that can be used: " + devices.passed_over + "; " + cure;
}

// Records the process in which Metal was started.
std::mutex started_mutex;
std::optional<queue_runtime::StartedProcess> started;

void check_not_forked() {
  const std::lock_guard lock(started_mutex);
  if (!started || !started->is_forked_child()) return;
  throw abi::Failure(
      AA_FAILED_PRECONDITION,
      "Metal was started before this process was forked from its parent, and does not survive that; start "
      "children with exec, or fork before the accelerator is first used");
}

bool is_started() {
  const std::lock_guard lock(started_mutex);
  return started.has_value();
}

void answer(aa_probe& probe, aa_probe_state state, int32_t count, const std::string& reason) {
  probe.state = state;
  probe.device_count = count;
  abi::copy_text(probe.reason, reason);
}

// Returns "" if Metal could be on this machine; otherwise the reason why not, and then no library is opened.
std::string not_macos() {
#ifdef __APPLE__
  return {};
#else
  if (const char* folder = std::getenv(path_variable); folder && *folder) return {};
  utsname system{};
  uname(&system);
  return std::string("Metal is a part of macOS, and this is ") + system.sysname + " on " + system.machine + "; " + cure;
#endif
}

// The probe's child process answers with the number of devices, or with one of these signs and the reason why there is
// none.
constexpr const char* told_absent = "-";
constexpr const char* told_unusable = "!";
std::string tell_devices() {
  if (const std::string& problem = binding_problem(); !problem.empty()) {
    return std::string(told_absent) + "Metal cannot be opened: " + problem + "; " + cure;
  }
  const Devices devices = read_devices();
  if (devices.usable.empty()) return told_unusable + none_usable(devices);
  return std::to_string(devices.usable.size());
}

}  // namespace

void probe(aa_probe& probe) {
  try {
    check_not_forked();
  } catch (const abi::Failure& failure) {
    return answer(probe, AA_PROBE_UNUSABLE, 0, failure.what());
  }
  if (const std::string reason = not_macos(); !reason.empty()) return answer(probe, AA_PROBE_ABSENT, 0, reason);
  // The child opens the libraries too: they change what a process may do after fork().
  const ChildAnswer asked = is_started() ? ChildAnswer{"", tell_devices()} : ask_child(tell_devices, child_limit);
  if (!asked.problem.empty()) {
    return answer(probe, AA_PROBE_UNUSABLE, 0, "asking Metal for its devices: " + asked.problem);
  }
  const char told = asked.text.empty() ? '0' : asked.text[0];
  if (told == told_absent[0]) return answer(probe, AA_PROBE_ABSENT, 0, asked.text.substr(1));
  if (told == told_unusable[0]) return answer(probe, AA_PROBE_UNUSABLE, 0, asked.text.substr(1));
  answer(probe, AA_PROBE_USABLE, std::atoi(asked.text.c_str()), asked.text + " device(s) of Metal");
}

std::vector<DeviceFacts> start() {
  check_not_forked();
  if (const std::string reason = not_macos(); !reason.empty()) throw abi::Failure(AA_UNAVAILABLE, reason);
  if (const std::string& problem = binding_problem(); !problem.empty()) {
    throw abi::Failure(AA_UNAVAILABLE, "Metal cannot be opened: " + problem + "; " + cure);
  }
  {
    const std::lock_guard lock(started_mutex);
    if (!started) started.emplace();
  }
  Devices devices = read_devices();
  if (devices.usable.empty()) throw abi::Failure(AA_UNAVAILABLE, none_usable(devices));
  return std::move(devices.usable);
}

}  // namespace anyaccel::mps
