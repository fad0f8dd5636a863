// Implements tuned_kernels.h: the kernels of one file of kernels/cuda on one device.
#include "accelerators/cuda/ops/tuned_kernels.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "accelerators/cuda/compile/compiler.h"
#include "anyaccel/device_op.h"
#include "base/files/image_cache.h"
#include "base/files/install_paths.h"
#include "base/hash.h"

namespace anyaccel::cuda {
namespace {

namespace fs = std::filesystem;

// Overrides the group settings of kernels/portable/dialect.h, since tuned kernels have their own.
constexpr const char* dialect_options[] = {
    "-DAA_GROUP_SIZE=1", "-DAA_LANES=1",   "-DAA_SUBGROUP=0",   "-DAA_ITEMS=1", "-DAA_LOCAL_BYTES=0",
    "-DAA_HAS_F16=1",    "-DAA_HAS_F64=1", "-diag-suppress=177"};  // functions of headers that are not used

// Dynamic shared memory that every kernel may have.
constexpr unsigned ordinary_shared_bytes = 48 * 1024;
// The first compute capability with programmatic dependent launch.
constexpr int overlap_major = 9;

// While it lives, this thread may load code although a stream captures.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Api& api) : api_(api) {
    if (api_.has_graphs) relaxed_ = api_.capture_mode_exchange(&mode_) == success;
  }
  ~RelaxedCapture() {
    if (relaxed_) api_.capture_mode_exchange(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Api& api_;
  int mode_ = capture_mode_relaxed;
  bool relaxed_ = false;
};

// Failures to load that say nothing about the image.
bool is_about_device(Result result) {
  const aa_code code = code_of(result);
  return code == AA_RESOURCE_EXHAUSTED || code == AA_DEVICE_LOST || result == error_illegal_address ||
         result == error_launch_failed;
}

}  // namespace

TunedKernels::TunedKernels(DeviceState& device, std::string file, std::vector<std::string> kernels,
                           std::vector<std::string> options)
    : device_(device),
      file_(std::move(file)),
      kernels_(std::move(kernels)),
      options_(std::begin(dialect_options), std::end(dialect_options)),
      overlaps_(device.facts().major >= overlap_major && device.api().runtime == Runtime::cuda &&
                device.api().has_launch_attributes),
      functions_(kernels_.size()),
      large_shared_(kernels_.size()) {
  options_.insert(options_.end(), options.begin(), options.end());
}

TunedKernels::~TunedKernels() {
  if (!module_) return;
  try {
    device_.bind();
    device_.api().module_unload(module_);
  } catch (const std::exception&) {
    // A lost device has no modules.
  }
}

void TunedKernels::load_module() {
  const Api& api = device_.api();
  const DeviceFacts& facts = device_.facts();
  const fs::path kernels = install_kernels_dir();
  const std::string file = (kernels / "cuda" / file_).string();
  const std::string text =
      expand_includes(file, {(kernels / "portable").string(), (kernels / "portable/dialects/cuda-c++").string()});
  Hash hash;
  hash.add(image_magic).add(compiler_fingerprint(facts)).add(facts.arch).add(text);
  for (const std::string& option : options_) hash.add(option);

  const std::string what = "the kernels of " + file_;
  const auto use = [&](DeviceImage image, bool kept) -> std::string {
    const RelaxedCapture relaxed(api);
    const Result result = api.module_load(&module_, image.bytes.c_str(), 0, nullptr, nullptr);
    if (result == success) return {};
    module_ = nullptr;
    if (kept && !is_about_device(result)) return result_text(api, result);
    device_.check(result, ("loading " + what).c_str());
    return {};
  };
  const auto make = [&] {
    abi::CompileOutput output = compile(facts, file_, text, options_);
    if (!output.succeeded) {
      throw abi::Failure(AA_INTERNAL, what + " could not be compiled for " + facts.arch + " (" +
                                          compiler_fingerprint(facts) + "; source " + file + "):\n" + output.log);
    }
    return DeviceImage{std::move(output.format), std::string(output.image.begin(), output.image.end())};
  };
  use_image(image_file("cuda_" + fs::path(file_).stem().string(), hash.text()), what, use, make);
}

FunctionHandle TunedKernels::load(size_t kernel) {
  const std::lock_guard lock(mutex_);
  if (FunctionHandle found = functions_[kernel].load(std::memory_order_acquire)) return found;
  if (!module_) load_module();
  const RelaxedCapture relaxed(device_.api());
  FunctionHandle function = nullptr;
  device_.check(device_.api().module_function(&function, module_, kernels_[kernel].c_str()),
                ("finding kernel " + kernels_[kernel] + " of " + file_).c_str());
  functions_[kernel].store(function, std::memory_order_release);
  return function;
}

// Requests all that the device has, since another launch may need more than this one.
void TunedKernels::allow_shared_memory(size_t kernel, FunctionHandle function) {
  const Api& api = device_.api();
  if (!api.has_dynamic_shared) {
    throw abi::Failure(
        AA_UNIMPLEMENTED,
        "kernel " + kernels_[kernel] + " needs more than 48 KiB of shared memory, which this driver does not give");
  }
  int fixed = 0;
  device_.check(api.function_attribute(&fixed, function_shared_size_bytes, function), "cuFuncGetAttribute");
  device_.check(api.function_set_attribute(function, function_max_dynamic_shared_size_bytes,
                                           device_.facts().shared_per_block_optin - fixed),
                ("shared memory of kernel " + kernels_[kernel]).c_str());
  large_shared_[kernel].store(true, std::memory_order_release);
}

void TunedKernels::launch_with(size_t kernel, StreamHandle stream, const TunedLaunch& shape, void** arguments) {
  const Api& api = device_.api();
  FunctionHandle function = get(kernel);
  unsigned shared_bytes = shape.shared_bytes;
  if (shape.alone && overlaps_) {
    // Over half of what a multiprocessor has, which is at most 1 KiB more than a block may have.
    const auto half = static_cast<unsigned>(device_.facts().shared_per_block_optin / 2 + 1024);
    shared_bytes = std::max(shared_bytes, half);
  }
  if (shared_bytes > ordinary_shared_bytes && !large_shared_[kernel].load(std::memory_order_acquire)) [[unlikely]]
    allow_shared_memory(kernel, function);
  Result result = success;
  if (shape.overlaps_previous && overlaps_) {
    LaunchAttribute attribute{};
    attribute.id = launch_attribute_programmatic_stream_serialization;
    attribute.value = 1;
    const LaunchConfig config{.grid = {shape.grid[0], shape.grid[1], shape.grid[2]},
                              .block = {shape.block, 1, 1},
                              .shared_bytes = shared_bytes,
                              .stream = stream,
                              .attributes = &attribute,
                              .attribute_count = 1};
    result = api.launch_kernel_ex(&config, function, arguments, nullptr);
  } else {
    result = api.launch_kernel(function, shape.grid[0], shape.grid[1], shape.grid[2], shape.block, 1, 1, shared_bytes,
                               stream, arguments, nullptr);
  }
  if (result != success) [[unlikely]]
    device_.check(result, ("launching kernel " + kernels_[kernel]).c_str());
}

}  // namespace anyaccel::cuda
