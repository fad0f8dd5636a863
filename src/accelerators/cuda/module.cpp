// Implements module.h: loaded device code and its kernels.
#include "accelerators/cuda/module.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace anyaccel::cuda {
namespace {

constexpr Result error_invalid_ptx = 218;
constexpr int jit_error_log = 5, jit_error_log_size = 6;  // CUjit_option

// The shared memory of a launch that needs no special request.
constexpr uint32_t ordinary_shared_bytes = 48u << 10;

// A truncated file: the vendor's loader takes no length and would read past the end.
bool is_truncated(std::string_view image) {
  Elf64_Ehdr header;
  if (image.substr(0, SELFMAG) != std::string_view(ELFMAG, SELFMAG)) return false;
  if (image.size() < sizeof(header)) return true;
  std::memcpy(&header, image.data(), sizeof(header));
  const auto ends_inside = [&](uint64_t offset, uint64_t count, uint64_t size) {
    return offset <= image.size() && (count == 0 || size <= (image.size() - offset) / count);
  };
  return !ends_inside(header.e_shoff, header.e_shnum, header.e_shentsize) ||
         !ends_inside(header.e_phoff, header.e_phnum, header.e_phentsize);
}

bool is_for_other_device(Result result) {
  return result == error_no_binary_for_gpu || result == error_invalid_ptx || result == error_unsupported_ptx_version;
}

}  // namespace

Kernel::Kernel(DeviceState& device, FunctionHandle function, std::string name)
    : device_(device), function_(function), name_(std::move(name)) {
  const Api& api = device.api();
  device.check(api.function_attribute(&max_threads_, function_max_threads_per_block, function), "cuFuncGetAttribute");
  device.check(api.function_attribute(&static_shared_, function_shared_size_bytes, function), "cuFuncGetAttribute");
  const auto fixed = static_cast<uint32_t>(std::max(static_shared_, 0));
  allowed_shared_ = ordinary_shared_bytes - std::min(ordinary_shared_bytes, fixed);
}

void Kernel::describe(aa_kernel_info& info) const {
  info.max_threads_per_block = max_threads_;
  info.static_shared_bytes = static_shared_;
  info.argument_count = -1;  // the vendor's driver does not report them before CUDA 12.4
}

void Kernel::ask_for_shared(uint32_t bytes) {
  const DeviceFacts& facts = device_.facts();
  const int most = device_.api().has_dynamic_shared ? facts.shared_per_block_optin - static_shared_
                                                    : facts.shared_per_block - static_shared_;
  if (static_cast<int64_t>(bytes) > most) {
    throw abi::Failure(AA_INVALID_ARGUMENT, device_.label() + ": kernel \"" + name_ + "\" was launched with " +
                                                std::to_string(bytes) + " bytes of shared memory; beside its own " +
                                                std::to_string(static_shared_) + " it can have " +
                                                std::to_string(most));
  }
  if (device_.api().has_dynamic_shared) {
    // All at once: another launch may want more than this one.
    device_.check(device_.api().function_set_attribute(function_, function_max_dynamic_shared_size_bytes, most),
                  "cuFuncSetAttribute");
  }
  allowed_shared_.store(static_cast<uint32_t>(most), std::memory_order_relaxed);
}

Module::Module(DeviceState& device, const void* image, size_t size, const char* format) : device_(device) {
  const bool hip = device.api().runtime == Runtime::hip;
  const std::string_view wanted(format);
  if (hip ? wanted != "hsaco" : wanted != "cubin" && wanted != "ptx") {
    throw abi::Failure(AA_UNIMPLEMENTED, device.label() + ": modules of format \"" + format +
                                             "\" cannot be loaded; it takes " +
                                             (hip ? "\"hsaco\"" : "\"cubin\" and \"ptx\""));
  }
  // Text has to end with a zero, which the caller's need not.
  const std::string text(static_cast<const char*>(image), size);
  if (text.empty() || is_truncated(text)) {
    throw abi::Failure(AA_INVALID_ARGUMENT, device.label() + ": the module of " + std::to_string(size) +
                                                " bytes is empty or was cut: its headers point behind its end");
  }
  device.bind_surely();
  const RelaxedCaptureMode relaxed(device.api());
  char log[4096] = "";
  int options[] = {jit_error_log, jit_error_log_size};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  const unsigned option_count = wanted == "ptx" ? 2 : 0;  // images of machine code are not compiled
  const Result result = device.api().module_load(&module_, text.c_str(), option_count, options, values);
  if (result == success) return;
  log[sizeof(log) - 1] = '\0';
  const std::string words = *log ? std::string("\n") + log : "";
  if (is_for_other_device(result)) {
    throw abi::Failure(AA_INVALID_ARGUMENT,
                       device.label() + ": cuModuleLoadDataEx gave " + result_text(device.api(), result) +
                           ": the module was made for another device or a newer driver than this one (" +
                           device.facts().arch + ", CUDA " + std::to_string(device.platform().driver_version / 1000) +
                           "." + std::to_string(device.platform().driver_version % 1000 / 10) +
                           "); compile it again for this one" + words,
                       result);
  }
  if (result == error_invalid_image) {
    throw abi::Failure(AA_INVALID_ARGUMENT,
                       device.label() + ": cuModuleLoadDataEx gave " + result_text(device.api(), result) +
                           ": the bytes are not a module of format \"" + format + "\"" + words,
                       result);
  }
  device.check(result, ("cuModuleLoadDataEx" + words).c_str());
}

Module::~Module() {
  kernels_.clear();
  if (is_forked_child()) return;
  try {
    device_.bind_surely();
  } catch (const abi::Failure&) {
    return;  // a lost device has no modules
  }
  const RelaxedCaptureMode relaxed(device_.api());
  device_.api().module_unload(module_);
}

Kernel* Module::kernel_get(const char* name, aa_kernel_info& info) {
  device_.bind_surely();
  const RelaxedCaptureMode relaxed(device_.api());
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Kernel>& kernel = kernels_[name];
  if (!kernel) {
    FunctionHandle function = nullptr;
    const Result result = device_.api().module_function(&function, module_, name);
    if (result == error_not_found) {
      kernels_.erase(name);
      return nullptr;
    }
    device_.check(result, "cuModuleGetFunction");
    kernel = std::make_unique<Kernel>(device_, function, name);
  }
  kernel->describe(info);
  return kernel.get();
}

}  // namespace anyaccel::cuda
