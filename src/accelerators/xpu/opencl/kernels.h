// Programs and kernels: compiling, the image that is kept, loading it, and setting arguments.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "accelerators/xpu/opencl/objects.h"
#include "accelerators/xpu/opencl/platform.h"

namespace anyaccel::xpu::opencl {

inline constexpr const char* image_format = "opencl-binary";
inline constexpr const char* source_language = "opencl-c";

// The kind of an argument: pointers to global memory and values are set by different calls.
enum class ArgumentKind : char { pointer = 'p', value = 'v' };

// A line that changes when the same source could give another binary, or when a binary of another driver must not be
// loaded: platform, device, versions, and the version of the image's layout.
std::string device_line(const DeviceFacts& facts);

// Compiles for the device. `options` as given; the language version is added unless they choose one.
//
// PoCL 3.1 compiles when a kernel is first enqueued, once for small grids and once for large ones, and keeps what it made in its
// own cache ($POCL_CACHE_DIR, else ~/.cache/pocl). With that cache warm a module loads in about 10 ms, the time of its parser,
// and a first launch takes 0.1 ms.
abi::CompileOutput compile_program(const DeviceFacts& facts, cl_context context, const char* source, size_t source_size,
                                   const char* const* options, size_t option_count);

// One kernel. launch() of the stream locks it while it sets the arguments, because they belong to the cl_kernel: two
// threads that launch the same kernel take turns for some hundred nanoseconds.
class Kernel final : public abi::Kernel {
 public:
  Kernel(const Api& api, cl_program program, std::string name, std::string kinds);

  // Sets the arguments of a launch on `kernel`. Throws AA_INVALID_ARGUMENT naming the kernel and the argument.
  void set_arguments(cl_kernel kernel, const aa_launch& launch) const;
  // A cl_kernel of its own with the arguments of a launch, to be enqueued again and again.
  OwnedKernel bind(const aa_launch& launch) const;

  const std::string& name() const noexcept { return name_; }
  cl_kernel get() const noexcept { return kernel_.get(); }
  std::mutex& mutex() noexcept { return mutex_; }
  size_t argument_count() const noexcept { return kinds_.size(); }

 private:
  const Api& api_;
  cl_program program_;  // the module's
  std::string name_;
  std::string kinds_;  // an ArgumentKind each
  std::mutex mutex_;
  OwnedKernel kernel_;
};

class Module final : public abi::Module {
 public:
  // From an image that compile_program made. AA_INCOMPATIBLE when another device or driver version made it.
  Module(const DeviceFacts& facts, cl_context context, const void* image, size_t size, const char* format);
  abi::Kernel* kernel_get(const char* name, aa_kernel_info& info) override;

 private:
  const DeviceFacts& facts_;
  OwnedProgram program_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

}  // namespace anyaccel::xpu::opencl
