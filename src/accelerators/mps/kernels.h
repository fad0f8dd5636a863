// Compiles and launches device code: source in Metal's shading language, which Metal compiles at run time.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "accelerators/mps/memory.h"

namespace anyaccel::mps {

inline constexpr const char* source_language = "metal";

// Returns a line that changes whenever the same source could compile to something else: it names the device, the
// system, and the version of the image's layout.
std::string device_line(const DeviceFacts& facts);

// Compiles the source to check that it can be compiled. Options: -DNAME, -DNAME=VALUE, -std=metalMAJOR.MINOR. The image
// is the source with its options, because Metal exports compiled code only as files for a later start of the same
// program; the system itself caches what it has compiled.
abi::CompileOutput compile_source(const DeviceFacts& facts, const aa_compile& what);

// One argument of a launch as an encoder takes it: a place in a buffer, or bytes of `values`.
struct Argument {
  Place place;
  size_t value_begin = 0;
  uint32_t value_size = 0;  // 0: the argument is a place
};
struct Arguments {
  std::vector<Argument> list;
  std::vector<unsigned char> values;
};

class Kernel final : public abi::Kernel {
 public:
  Kernel(std::string name, Owned pipeline, uint64_t max_threads)
      : name_(std::move(name)), pipeline_(std::move(pipeline)), max_threads_(max_threads) {}

  // Checks a launch; throws an error that names the kernel and the argument if something is wrong with it. `absent` is
  // the buffer that stands for null pointers, since Metal needs a buffer for every argument.
  void check(const aa_launch& launch) const;
  void read_arguments(const aa_launch& launch, Id absent, Arguments& out) const;
  // Makes the encoder's calls for the launch.
  void encode(Id encoder, const Arguments& arguments, const Size3& grid, const Size3& block) const;

 private:
  const std::string name_;
  const Owned pipeline_;
  const uint64_t max_threads_;
};

class Module final : public abi::Module {
 public:
  Module(const DeviceFacts& facts, const aa_module_params& params);
  abi::Kernel* kernel_get(const char* name, aa_kernel_info& info) override;

 private:
  struct Loaded {
    std::unique_ptr<Kernel> kernel;
    int32_t max_threads;
    int32_t threadgroup_bytes;
  };
  const DeviceFacts& facts_;
  Owned library_;
  std::mutex mutex_;
  std::map<std::string, Loaded, std::less<>> kernels_;
};

}  // namespace anyaccel::mps
