// Device ops: kernels in source form, which the active accelerator's own compiler compiles for its device.
//
//   struct ScaleBuilder : anyaccel::DeviceOpBuilder {
//     explicit ScaleBuilder(Accelerator& a) : DeviceOpBuilder("ScaleBuilder", a) {}
//     std::vector<DeviceSource> device_sources() const override {
//       return {{"cuda-c++", "scale.cu"}, {"opencl-c", "scale.cl"}};
//     }
//   };
//   auto library = ScaleBuilder(accelerator).load_as<DeviceOpLibrary>();
//   library->kernel("scale").launch({.grid = {blocks}, .block = {256}}, x, count, 2.0f);
//
// Compiled code is stored in the op builders' cache, keyed by source text, options and compiler fingerprint.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "anyaccel/abi/driver.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/tensor.h"

namespace anyaccel {

// The threads that run a kernel, and the memory that a block shares. Dimensions that are left out, as in
// {.grid = {blocks}, .block = {256}}, are 1.
struct LaunchShape {
  std::array<uint32_t, 3> grid{1, 1, 1};   // blocks
  std::array<uint32_t, 3> block{1, 1, 1};  // threads in a block
  uint32_t shared_bytes = 0;               // in addition to the kernel's static shared memory
};

// A kernel on one device. Lives as long as the DeviceOpLibrary that it came from.
class DeviceKernel {
 public:
  const aa_kernel_info& info() const noexcept { return info_; }

  // Enqueues it on the calling thread's current stream of its device; does not block. Arguments are passed unchanged, a
  // Tensor as the address of its first element. Throws InvalidArgument if their number differs from the kernel's, when
  // the driver knows that number.
  template <class... Arguments>
  void launch(const LaunchShape& shape, const Arguments&... arguments) const {
    const auto values = std::make_tuple(value_of(arguments)...);
    std::apply(
        [&](const auto&... value) {
          const std::array<const void*, sizeof...(value)> addresses{static_cast<const void*>(&value)...};
          const std::array<uint32_t, sizeof...(value)> sizes{static_cast<uint32_t>(sizeof(value))...};
          const std::array<uint8_t, sizeof...(value)> kinds{kind_of(value)...};
          launch_with(shape, sizeof...(value), addresses.data(), sizes.data(), kinds.data());
        },
        values);
  }

 private:
  friend class DeviceOpLibrary;
  DeviceKernel() = default;
  static void* value_of(const Tensor& tensor) { return tensor.data(); }
  template <class Value>
  static constexpr uint8_t kind_of(const Value&) {
    return std::is_pointer_v<Value> ? AA_ARGUMENT_POINTER : AA_ARGUMENT_VALUE;
  }
  template <class Value>
  static Value value_of(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>, "a kernel's argument is copied byte by byte");
    return value;
  }
  void launch_with(const LaunchShape& shape, size_t count, const void* const* addresses, const uint32_t* sizes,
                   const uint8_t* kinds) const;

  DriverAccelerator* accelerator_ = nullptr;
  int device_ = 0;
  aa_kernel* kernel_ = nullptr;
  aa_kernel_info info_{};
  std::string name_;
};

// Compiled kernels; loaded on each device when that device first asks for one.
class DeviceOpLibrary : public OpLibrary {
 public:
  // Takes an image that the accelerator's compiler created; `format` is the one for module_load.
  DeviceOpLibrary(DriverAccelerator& accelerator, std::string op_name, std::string format, std::string image);
  ~DeviceOpLibrary() override;

  // Loads the code on the device now instead of when its first kernel is requested. Throws the driver's error if it
  // rejects the image. Thread-safe.
  void prepare(int device = Accelerator::current_device_index);
  // Returns a kernel. Throws InvalidArgument, naming the op, if there is no kernel of that name. Thread-safe.
  DeviceKernel kernel(const std::string& name, int device = Accelerator::current_device_index);

 private:
  aa_module* module(int device);  // with mutex_ held

  DriverAccelerator& accelerator_;
  std::string op_name_;
  std::string format_;
  std::string image_;
  std::mutex mutex_;
  std::map<int, aa_module*> modules_;
};

struct DeviceSource {
  std::string language;  // as abi/compiler.h names them: "opencl-c", "cuda-c++", "c++"
  std::string file;      // relative to the builder's folder
};

class DeviceOpBuilder : public OpBuilder {
 public:
  DeviceOpBuilder(std::string name, Accelerator& accelerator) : name_(std::move(name)), accelerator_(accelerator) {}

  const std::string& name() const noexcept override { return name_; }
  // Returns the sources of the op in one or several languages. The first language in the accelerator's own list that is
  // among them is used.
  virtual std::vector<DeviceSource> device_sources() const = 0;
  // Returns flags for the accelerator's compiler.
  virtual std::vector<std::string> compile_options() const { return {}; }

  // Returns the chosen source; empty if the accelerator accepts none of the languages.
  std::vector<std::string> sources() const override;
  // True when the accelerator has a compiler that accepts one of the languages.
  bool is_compatible(std::string* reason = nullptr) const override;
  bool is_built() const override;
  // Returns a DeviceOpLibrary. Throws UnavailableError (with is_compatible()'s reason), and BuildError with the
  // compiler's output.
  std::shared_ptr<OpLibrary> load() override;

 private:
  struct Recipe;
  Recipe recipe() const;

  std::string name_;
  Accelerator& accelerator_;
};

// Returns the text of a source file in which every #include "name" of a file beside it, or in one of the folders, is
// replaced by that file's text (once each), for compilers that cannot read files. Throws UnavailableError if the source
// cannot be read.
std::string expand_includes(const std::string& file, const std::vector<std::string>& folders);

}  // namespace anyaccel
