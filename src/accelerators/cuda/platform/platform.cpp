// Implements platform.h: finds the vendor's runtime, and its devices without opening them. Their properties are read in
// device_facts.cpp.
#include "accelerators/cuda/platform/platform.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>

#include "accelerators/cuda/libraries/loading.h"
#include "accelerators/cuda/libraries/nvml.h"
#include "accelerators/cuda/platform/device_facts.h"
#include "base/process/child_count.h"

namespace anyaccel::cuda {
namespace {

constexpr int most_shown_devices = 1024;
constexpr std::chrono::seconds child_limit{30};  // waking eight GPUs without persistence mode takes about ten

std::atomic<bool> forked_after_start{false};
// The last usable result of discover(), so that starting need not search again; after the driver was started the result
// stays fixed, since a child process cannot query a started driver.
std::mutex found_mutex;
std::optional<Discovery> last_usable;  // guarded by found_mutex
std::atomic<bool> started_once{false};

std::optional<Discovery> remembered() {
  const std::scoped_lock lock(found_mutex);
  return last_usable;
}

const char* set_variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

bool exists(const char* path) { return access(path, F_OK) == 0; }

// Empty, or what keeps this user from a device whose node is there.
std::string forbidden(const char* node, const char* advice) {
  if (access(node, R_OK | W_OK) == 0) return {};
  return std::string("this user may not open ") + node + "; " + advice;
}

// Null when this machine has no NVIDIA GPU.
const char* nvidia_node() {
  static constexpr const char* nodes[] = {"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2",
                                          "/dev/nvidia3",   "/dev/nvidia4", "/dev/nvidia5", "/dev/nvidia6",
                                          "/dev/nvidia7",   "/dev/dxg"};
  for (const char* node : nodes) {
    if (exists(node)) return node;
  }
  return nullptr;
}

constexpr const char* amd_node = "/dev/kfd";

constexpr const char* fork_text =
    "this process was made by fork() after its parent had started the GPU driver, which does not survive that; start "
    "children with exec (Python: the \"spawn\" start method), or fork before the accelerator is first used";

// Reads the number of devices in ANYACCEL_CUDA_DEVICES; 0: it is not set. Returns false if it is not a number.
bool asked_count(int& count, std::string& problem) {
  count = 0;
  const char* text = set_variable(device_count_variable);
  if (!text) return true;
  const std::string value = text;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
  if (error == std::errc() && end == value.data() + value.size() && count >= 1 && count <= most_shown_devices)
    return true;
  problem = std::string(device_count_variable) + "=\"" + value + "\" is not a number of devices; expected 1 to " +
            std::to_string(most_shown_devices) + ", or nothing to show the devices as they are";
  return false;
}

Discovery unusable(Runtime runtime, std::string reason) { return {AA_PROBE_UNUSABLE, std::move(reason), 0, runtime}; }
Discovery absent(Runtime runtime, std::string reason) { return {AA_PROBE_ABSENT, std::move(reason), 0, runtime}; }

Discovery usable(Runtime runtime, int physical, const std::string& driver, const std::string& remark) {
  int shown = 0;
  std::string problem;
  if (!asked_count(shown, problem)) return unusable(runtime, problem);
  std::string text = std::to_string(shown ? shown : physical) + " device(s), " + driver;
  if (shown) {
    text += "; " + std::to_string(shown) + " virtual ones on " + std::to_string(physical) + " (" +
            device_count_variable + ")";
  }
  if (!remark.empty()) text += "; " + remark;
  const Discovery found{AA_PROBE_USABLE, text, shown ? shown : physical, runtime};
  const std::scoped_lock lock(found_mutex);
  last_usable = found;
  return found;
}

std::string visible_variable_text() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible ? std::string("; CUDA_VISIBLE_DEVICES is \"") + visible + "\"" : std::string();
}

// Explains the driver's error at its start, and what to do about it.
std::string init_text(const GpuLibrary& library, Result result) {
  const bool hip = library.api.runtime == Runtime::hip;
  const std::string said = std::string(hip ? "hipInit" : "cuInit") + " gives " + result_text(library.api, result);
  if (hip) {
    return "ROCm is there (" + library.path + "), but no AMD GPU that it can use: " + said +
           (exists("/dev/kfd") ? "; see that this user may open /dev/kfd and /dev/dri/renderD* (groups render, video)"
                               : "; there is no /dev/kfd, so the amdgpu kernel driver sees none");
  }
  switch (result) {
    case error_stub_library: return stub_text(library.path);
    case error_no_device:
      return "the NVIDIA driver is there but shows no device (" + said + ")" + visible_variable_text() +
             "; see what nvidia-smi lists; a container must be given the GPU";
    case error_system_driver_mismatch:
      return "the NVIDIA driver's libraries and its loaded kernel module are of different versions (" + said +
             "); after an update of the driver reboot, in a container use the host's libraries";
    case error_compat_not_supported_on_device:
      return library.path + " is a forward-compatibility library that this GPU does not take (" + said +
             "); take cuda-compat out of LD_LIBRARY_PATH";
    case error_system_not_ready:
      return "the NVIDIA driver is not ready (" + said + "); start nvidia-fabricmanager and see nvidia-smi";
    case error_not_initialized:
      return said + "; another library had started CUDA before this process was made by fork(), perhaps";
    case error_unknown:
      return "the NVIDIA driver cannot be started (" + said +
             "); load the module nvidia_uvm (modprobe nvidia_uvm), see that /dev/nvidia-uvm can be opened, and dmesg";
    default: return "the NVIDIA driver cannot be started: " + said + "; see nvidia-smi and dmesg";
  }
}

std::string no_device_text(const std::string& driver) {
  return driver +
         " is loaded but lists no GPU: see what nvidia-smi -L and lspci show; a container must be given the GPU";
}

// Used if NVML gives no answer.
Discovery count_by_child(const GpuLibrary& library, const std::string& driver, const std::string& why) {
  const Runtime runtime = library.api.runtime;
  const auto ask = [&](ChildCount& told) {
    told.init = library.api.init(0);
    if (told.init == success) told.counted = library.api.device_count(&told.count);
  };
  const ChildCount answer = count_in_child(ask, child_limit);
  if (!answer.problem.empty()) return unusable(runtime, driver + ": " + answer.problem + why);
  if (answer.init != success) return unusable(runtime, init_text(library, answer.init));
  if (answer.counted != success) return unusable(runtime, init_text(library, answer.counted));
  if (answer.count == 0) return unusable(runtime, init_text(library, error_no_device));
  return usable(runtime, answer.count, driver, {});
}

Discovery discover_cuda(const char* node, bool asked_for) {
  constexpr Runtime runtime = Runtime::cuda;
  if (!node && !asked_for) {
    return absent(runtime, std::string("no NVIDIA GPU (looked for /dev/nvidiactl, /dev/nvidia0 to 7 and /dev/dxg; ") +
                               library_path_variable + " is not set)");
  }
  if (node && !asked_for) {
    const std::string problem = forbidden(node, "see who may open these files, and in a container pass the devices on");
    if (!problem.empty()) return unusable(runtime, problem);
  }
  const GpuLibrary& library = cuda_library();
  if (!library.is_there) {
    // WSL has its node whatever the GPU is.
    if (!node || std::string_view(node) == "/dev/dxg") return absent(runtime, library.problem);
    return unusable(runtime, std::string(node) + " is there, but " + library.problem +
                                 "; install the NVIDIA driver (in a container: start it with the GPU)");
  }
  if (!library.problem.empty()) return unusable(runtime, library.problem);
  const NvmlAnswer nvml = ask_nvml();
  if (nvml.is_final) return unusable(runtime, nvml.problem);
  const int version = library.version ? library.version : nvml.cuda_version;
  if (version != 0 && version < oldest_cuda_version) return unusable(runtime, too_old_text(version));
  const std::string driver = "NVIDIA driver" + (nvml.driver_version.empty() ? "" : " " + nvml.driver_version) +
                             (version ? " for CUDA " + cuda_version_text(version) : std::string());
  if (!nvml.answered) return count_by_child(library, driver, "; NVML gave no answer either: " + nvml.problem);
  if (nvml.gpus.empty()) return unusable(runtime, "the " + no_device_text(driver));
  const VisibleDevices visible = visible_devices(std::getenv("CUDA_VISIBLE_DEVICES"), nvml.gpus);
  if (visible.count == 0) return unusable(runtime, visible.remark);
  return usable(runtime, visible.count, driver, visible.remark);
}

Discovery discover_hip(bool asked_for) {
  constexpr Runtime runtime = Runtime::hip;
  const bool node = exists(amd_node);
  if (!node && !asked_for) return absent(runtime, "no AMD GPU (looked for /dev/kfd)");
  const GpuLibrary& library = hip_library();
  if (!library.is_there) {
    if (!node) return absent(runtime, library.problem);
    return absent(runtime, "/dev/kfd is there, but " + library.problem + "; install ROCm (Debian: libamdhip64-5)");
  }
  if (!library.problem.empty()) return unusable(runtime, library.problem);
  if (node && !asked_for) {
    const std::string problem = forbidden(amd_node, "add it to the group of this file (usually render)");
    if (!problem.empty()) return unusable(runtime, problem);
  }
  return count_by_child(
      library,
      "ROCm " + std::to_string(library.version / 10000000) + "." + std::to_string(library.version / 100000 % 100), {});
}

// Throws unless the driver is started.
Platform start(Runtime runtime) {
  const GpuLibrary& library = runtime == Runtime::hip ? hip_library() : cuda_library();
  if (!library.problem.empty()) throw abi::Failure(AA_UNAVAILABLE, library.problem);
  Platform platform;
  platform.api = &library.api;
  const Api& api = library.api;
  const auto begin = std::chrono::steady_clock::now();
  if (const Result result = api.init(0); result != success)
    throw abi::Failure(AA_UNAVAILABLE, init_text(library, result), result);
  if (const Result result = api.driver_version(&platform.driver_version); result != success)
    throw abi::Failure(AA_UNAVAILABLE, "the driver does not tell its version: " + result_text(api, result), result);
  if (runtime == Runtime::cuda && platform.driver_version < oldest_cuda_version)
    throw abi::Failure(AA_UNAVAILABLE, too_old_text(platform.driver_version));
  int physical = 0;
  Result result = api.device_count(&physical);
  if (result == success && physical == 0) result = error_no_device;
  if (result != success) throw abi::Failure(AA_UNAVAILABLE, init_text(library, result), result);
  platform.devices = read_device_facts(api, physical);
  platform.start_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  int shown = 0;
  std::string problem;
  if (!asked_count(shown, problem)) throw abi::Failure(AA_UNAVAILABLE, problem);
  if (shown) platform.devices = share_devices(platform.devices, shown);
  return platform;
}

}  // namespace

Discovery discover() {
  try {
    if (is_forked_child()) return unusable(Runtime::cuda, fork_text);
    if (started_once.load(std::memory_order_acquire)) return remembered().value();
    const bool asked_for = set_variable(library_path_variable) != nullptr;
    Discovery cuda = discover_cuda(nvidia_node(), asked_for);
    if (cuda.state == AA_PROBE_USABLE) return cuda;
    Discovery hip = discover_hip(asked_for);
    if (hip.state == AA_PROBE_USABLE) return hip;
    // A library that exists and does not work is more informative than one that is missing, so it is reported first.
    if (cuda.state == AA_PROBE_UNUSABLE) return cuda;
    if (hip.state == AA_PROBE_UNUSABLE) std::swap(cuda, hip);
    cuda.reason += "; " + hip.reason;
    return cuda;
  } catch (const std::exception& error) {
    return unusable(Runtime::cuda, std::string("looking for a GPU failed: ") + error.what());
  }
}

const Platform& start_platform() {
  if (is_forked_child()) throw abi::Failure(AA_FAILED_PRECONDITION, fork_text);
  static std::mutex mutex;
  static const Platform* started = nullptr;
  const std::scoped_lock lock(mutex);
  if (started) return *started;
  std::optional<Discovery> found = remembered();
  if (!found) found = discover();
  if (found->state != AA_PROBE_USABLE) throw abi::Failure(AA_UNAVAILABLE, found->reason);
  static bool fork_is_watched = false;
  if (!fork_is_watched) {
    fork_is_watched = true;
    pthread_atfork(nullptr, nullptr, [] { forked_after_start.store(true, std::memory_order_relaxed); });
  }
  started = new Platform(start(found->runtime));  // lives until the process ends, as what the vendor started does
  started_once.store(true, std::memory_order_release);
  return *started;
}

bool is_forked_child() noexcept { return forked_after_start.load(std::memory_order_relaxed); }

std::string result_text(const Api& api, Result result) {
  const char* name = nullptr;
  const char* words = nullptr;
  const bool named = api.error_name && api.error_name(result, &name) == success && name && *name;
  const bool worded = api.error_string && api.error_string(result, &words) == success && words && *words;
  std::string text =
      named ? std::string(name) + " (" + std::to_string(result) + ")" : "error " + std::to_string(result);
  if (worded) text += std::string(": ") + words;
  return text;
}

aa_code code_of(Result result) {
  switch (result) {
    case success: return AA_OK;
    case error_out_of_memory: return AA_RESOURCE_EXHAUSTED;
    case error_not_initialized:
    case error_deinitialized:
    case error_stub_library:
    case error_device_unavailable:
    case error_no_device:
    case error_system_not_ready:
    case error_system_driver_mismatch:
    case error_compat_not_supported_on_device: return AA_UNAVAILABLE;
    case error_invalid_value:
    case error_invalid_image:
    case error_invalid_context:
    case error_invalid_handle:
    case error_host_memory_not_registered:
    case error_launch_out_of_resources: return AA_INVALID_ARGUMENT;
    case error_invalid_device: return AA_OUT_OF_RANGE;
    case error_no_binary_for_gpu:
    case error_unsupported_ptx_version: return AA_INCOMPATIBLE;
    case error_not_found: return AA_NOT_FOUND;
    case error_host_memory_already_registered: return AA_ALREADY_EXISTS;
    case error_not_permitted: return AA_PERMISSION_DENIED;
    case error_not_supported: return AA_UNIMPLEMENTED;
    case error_not_ready: return AA_FAILED_PRECONDITION;
    case error_ecc_uncorrectable:
    case error_illegal_address:
    case error_launch_timeout:
    case error_context_is_destroyed:
    case error_misaligned_address:
    case error_launch_failed: return AA_DEVICE_LOST;
    default: break;
  }
  if (result >= error_hardware_stack && result <= error_invalid_program_counter) return AA_DEVICE_LOST;
  if (result >= first_capture_error && result <= last_capture_error) return AA_FAILED_PRECONDITION;
  return AA_UNKNOWN;
}

}  // namespace anyaccel::cuda
