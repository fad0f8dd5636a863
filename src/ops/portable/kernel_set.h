// Runs portable kernels (kernels/portable) on an accelerator. They are compiled for its tuning through the op builders'
// cache, loaded when they are first used, and then found by index, so that a launch allocates nothing and looks up no
// names.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "anyaccel/abi/compiler.h"
#include "anyaccel/device_op.h"
#include "anyaccel/driver_accelerator.h"

namespace anyaccel::ops::portable {

// The element types for which a kernel is compiled: AA_X and AA_W of the dialect.
enum class Element : int { F32, BF16, F16 };
inline constexpr size_t element_count = 3;
// `dtype` is F32, BF16 or F16.
Element element_of(int32_t dtype);

// Returns the settings with which the kernels of a device are compiled and launched: those of the driver
// (aa_compiler_table::kernel_tuning), or one item per row if it has none. ANYACCEL_KERNEL_TUNING overrides members:
// "group_size=64,lanes=16,local_memory=32768".
aa_kernel_tuning kernel_tuning(DriverAccelerator& accelerator, int device);
// Throws InvalidArgument if that variable names something that is not a member or has a value that is not a number.
void check_tuning_variable();

// The tunings of an accelerator's devices, each of which is queried when it is first needed (this opens the device).
class Tunings {
 public:
  explicit Tunings(DriverAccelerator& accelerator);
  const aa_kernel_tuning& of(int device);

 private:
  DriverAccelerator& accelerator_;
  std::vector<std::once_flag> known_;
  std::vector<aa_kernel_tuning> tunings_;
};

// The language in which an accelerator compiles the portable kernels, and the folder of its dialect: the first of the
// driver's languages for which the driver or this installation (kernels/portable/dialects) has a dialect. Both are
// empty if there is none. portable_dialect() throws UnavailableError for a folder in which others could put code.
struct Dialect {
  std::string language;
  std::string folder;
};
Dialect portable_dialect(DriverAccelerator& accelerator);

// Returns the compile options that describe a tuning to the dialect.
std::vector<std::string> dialect_options(const aa_kernel_tuning& tuning);

// The kernels of one file of kernels/portable.
class KernelSet {
 public:
  // The element types (AA_X, AA_W) for which the file is compiled; the names of kernels end accordingly
  // ("gemv_f32_bf16").
  enum class Types { none, x, xw };

  // `file` has no folder; `kernels` are the names in the file, without element types. `block` is the format of quantized
  // weights (AA_BLOCK) for which a file is compiled that needs one, with which the names of its kernels end ("q4_k").
  KernelSet(DriverAccelerator& accelerator, std::string file, std::vector<std::string> kernels,
            Types types = Types::none, std::string block = {});

  const aa_kernel_tuning& tuning(int device) { return tunings_.of(device); }

  // Enqueues kernel number `kernel` (of the list above) on the calling thread's current stream of `device`; does not
  // block except for compiling and loading it at its first use. The arguments must be as the kernel declares them:
  // void* for AA_IN and AA_OUT, int32_t, int64_t, float, structs of kernels/portable/arguments.h.
  template <class... Arguments>
  void launch(size_t kernel, int device, const LaunchShape& shape, const Arguments&... arguments) {
    get(kernel, device, Element::F32, Element::F32).launch(shape, arguments...);
  }
  template <class... Arguments>
  void launch_for(size_t kernel, int device, Element x, Element w, const LaunchShape& shape,
                  const Arguments&... arguments) {
    get(kernel, device, x, w).launch(shape, arguments...);
  }
  // Returns the kernel, loaded, for callers that need its properties (DeviceKernel::info).
  const DeviceKernel& get(size_t kernel, int device, Element x, Element w) {
    const size_t slot = slot_of(kernel, device, x, w);
    if (const DeviceKernel* found = slots_[slot].load(std::memory_order_acquire)) [[likely]]
      return *found;
    return load(kernel, device, x, w);
  }

 private:
  size_t slot_of(size_t kernel, int device, Element x, Element w) const {
    return ((static_cast<size_t>(device) * element_count + static_cast<size_t>(x)) * element_count +
            static_cast<size_t>(w)) *
               kernels_.size() +
           kernel;
  }
  const DeviceKernel& load(size_t kernel, int device, Element x, Element w);

  DriverAccelerator& accelerator_;
  std::string file_;
  std::vector<std::string> kernels_;
  Types types_;
  std::string block_;
  Tunings tunings_;
  std::vector<std::atomic<const DeviceKernel*>> slots_;                // see slot_of
  std::mutex mutex_;                                                   // guards the members below
  std::map<std::string, std::shared_ptr<DeviceOpLibrary>> libraries_;  // by compile options
  std::vector<std::unique_ptr<const DeviceKernel>> loaded_;
};

}  // namespace anyaccel::ops::portable
