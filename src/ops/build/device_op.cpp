// Implements device ops, which are compiled by the accelerator, stored on disk, loaded and launched. See
// anyaccel/device_op.h.
#include "anyaccel/device_op.h"

#include <cstring>
#include <filesystem>
#include <functional>

#include "anyaccel/abi/compiler.h"
#include "anyaccel/error.h"
#include "base/files/image_cache.h"
#include "base/hash.h"
#include "base/text/text.h"
#include "ops/build/compiler_output.h"
#include "runtime/driver/host_services.h"

namespace anyaccel {
namespace fs = std::filesystem;

// ---- kernels --------------------------------------------------------------------------------------------------------

void DeviceKernel::launch_with(const LaunchShape& shape, size_t count, const void* const* addresses,
                               const uint32_t* sizes, const uint8_t* kinds) const {
  if (AA_HAS_MEMBER(&info_, aa_kernel_info, argument_count) && info_.argument_count >= 0 &&
      static_cast<size_t>(info_.argument_count) != count) {
    throw InvalidArgument("kernel \"" + name_ + "\" takes " + std::to_string(info_.argument_count) + " arguments, " +
                          std::to_string(count) + " were given");
  }
  aa_launch launch{};
  launch.struct_size = sizeof(launch);
  for (size_t d = 0; d < 3; ++d) {
    launch.grid[d] = d > 0 && shape.grid[d] == 0 ? 1 : shape.grid[d];
    launch.block[d] = d > 0 && shape.block[d] == 0 ? 1 : shape.block[d];
  }
  launch.shared_bytes = shape.shared_bytes;
  launch.argument_count = static_cast<uint32_t>(count);
  launch.arguments = addresses;
  launch.argument_sizes = sizes;
  launch.argument_kinds = kinds;
  const DriverAccelerator::StreamUse use(accelerator_->current_stream(device_));
  const auto call = [&] { return accelerator_->driver().kernel_launch(use.handle(), kernel_, &launch); };
  accelerator_->call_driver(device_, name_.c_str(), std::cref(call));  // a copy of it would be allocated
}

DeviceOpLibrary::DeviceOpLibrary(DriverAccelerator& accelerator, std::string op_name, std::string format,
                                 std::string image)
    : accelerator_(accelerator), op_name_(std::move(op_name)), format_(std::move(format)), image_(std::move(image)) {}

DeviceOpLibrary::~DeviceOpLibrary() {
  for (const auto& [device, module] : modules_) {
    if (!module) continue;  // it could not be loaded
    // No kernel of a module may be in flight when it is unloaded.
    release_status(accelerator_.driver().device_synchronize(accelerator_.device_handle(device)));
    release_status(accelerator_.driver().module_unload(module));
  }
}

aa_module* DeviceOpLibrary::module(int device) {
  aa_module*& module = modules_[device];
  if (!module) {
    accelerator_.call_driver(device, ("module_load of op " + op_name_).c_str(), [&] {
      return accelerator_.driver().module_load(accelerator_.device_handle(device), image_.data(), image_.size(),
                                               format_.c_str(), &module);
    });
    check_made(module, ("module_load of op " + op_name_).c_str(), accelerator_.driver().name);
  }
  return module;
}

void DeviceOpLibrary::prepare(int device) {
  std::lock_guard lock(mutex_);
  module(device == Accelerator::current_device_index ? accelerator_.current_device() : device);
}

DeviceKernel DeviceOpLibrary::kernel(const std::string& name, int device) {
  DeviceKernel kernel;
  kernel.accelerator_ = &accelerator_;
  kernel.device_ = device == Accelerator::current_device_index ? accelerator_.current_device() : device;
  kernel.name_ = op_name_ + "." + name;
  const abi::DriverCalls& driver = accelerator_.driver();
  std::lock_guard lock(mutex_);
  kernel.info_.struct_size = sizeof(kernel.info_);
  check(driver.kernel_get(module(kernel.device_), name.c_str(), &kernel.kernel_, &kernel.info_), kernel.name_.c_str(),
        driver.name);
  check_made(kernel.kernel_, ("kernel_get of " + kernel.name_).c_str(), driver.name);
  return kernel;
}

// ---- the builder ----------------------------------------------------------------------------------------------------

// The inputs of one compilation, and the location of its result. `reason` is set when the op cannot be built here.
struct DeviceOpBuilder::Recipe {
  std::string reason;
  DriverAccelerator* accelerator = nullptr;
  const abi::Calls<aa_compiler_table>* compiler = nullptr;
  std::string language;
  std::string file;
  std::string text;
  std::vector<std::string> options;
  fs::path image;  // empty if there is no cache folder
};

DeviceOpBuilder::Recipe DeviceOpBuilder::recipe() const {
  Recipe recipe;
  recipe.accelerator = dynamic_cast<DriverAccelerator*>(&accelerator_);
  const std::string who = "accelerator \"" + accelerator_.name() + "\"";
  if (recipe.accelerator) {
    recipe.compiler = static_cast<const abi::Calls<aa_compiler_table>*>(
        recipe.accelerator->extension(AA_COMPILER_EXTENSION, AA_COMPILER_VERSION));
  }
  if (!recipe.compiler) {
    recipe.reason =
        name() + ": " + who + " has no compiler for device code (its driver lacks the extension \"compiler\")";
    return recipe;
  }
  const char* driver = recipe.accelerator->driver().name;
  aa_device* device = recipe.accelerator->device_handle();
  const char* languages = nullptr;
  check(recipe.compiler->languages(device, &languages), "compiler.languages", driver);
  check_made(languages, "compiler.languages", driver);
  const std::vector<DeviceSource> sources = device_sources();
  for (const std::string& language : split_list(languages)) {
    for (const DeviceSource& source : sources) {
      if (source.language != language || !recipe.file.empty()) continue;
      recipe.language = language;
      recipe.file = (fs::path(folder()) / source.file).lexically_normal().string();
    }
  }
  if (recipe.file.empty()) {
    std::string own;
    for (const DeviceSource& source : sources) own += (own.empty() ? "" : ", ") + source.language;
    recipe.reason = name() + ": " + who + " compiles " + languages + "; the op is written in " + own;
    return recipe;
  }
  std::vector<std::string> folders;
  for (const std::string& path : include_paths()) folders.push_back((fs::path(folder()) / path).string());
  recipe.text = expand_includes(recipe.file, folders);
  recipe.options = compile_options();
  char fingerprint[512] = "";
  check(recipe.compiler->fingerprint(device, fingerprint, sizeof(fingerprint)), "compiler.fingerprint", driver);
  Hash hash;
  hash.add(image_magic).add(driver).add(fingerprint).add(recipe.language).add(recipe.text);
  for (const std::string& option : recipe.options) hash.add(option);
  recipe.image = image_file(op_name(), hash.text());
  return recipe;
}

std::vector<std::string> DeviceOpBuilder::sources() const {
  const Recipe found = recipe();
  return found.file.empty() ? std::vector<std::string>() : std::vector<std::string>{found.file};
}

bool DeviceOpBuilder::is_compatible(std::string* reason) const {
  try {
    const Recipe found = recipe();
    if (reason) *reason = found.reason;
    return found.reason.empty();
  } catch (const Error& error) {
    if (reason) *reason = error.what();
    return false;
  }
}

bool DeviceOpBuilder::is_built() const {
  try {
    const Recipe found = recipe();
    return found.reason.empty() && read_image(found.image);
  } catch (const Error&) {
    return false;
  }
}

std::shared_ptr<OpLibrary> DeviceOpBuilder::load() {
  const Recipe recipe = this->recipe();
  if (!recipe.reason.empty()) throw UnavailableError(recipe.reason);
  std::shared_ptr<OpLibrary> made;
  const auto use = [&](DeviceImage image, bool kept) -> std::string {
    auto library = std::make_shared<DeviceOpLibrary>(*recipe.accelerator, op_name(), std::move(image.format),
                                                     std::move(image.bytes));
    // An image that the driver refuses, for example one of another version, is compiled again.
    try {
      if (kept) library->prepare();
    } catch (const Error& refused) {
      if (refused.code() == AA_RESOURCE_EXHAUSTED || refused.code() == AA_DEVICE_LOST) throw;
      return refused.what();
    }
    made = std::move(library);
    return {};
  };
  const auto make = [&] {
    const char* driver = recipe.accelerator->driver().name;
    std::vector<const char*> options;
    for (const std::string& option : recipe.options) options.push_back(option.c_str());
    auto source = abi::sized<aa_compile>();
    source.language = recipe.language.c_str();
    source.name = recipe.file.c_str();
    source.source = recipe.text.data();
    source.source_size = recipe.text.size();
    source.options = options.data();
    source.option_count = options.size();
    auto result = abi::sized<aa_compile_result>();
    check(recipe.compiler->compile(recipe.accelerator->device_handle(), &source, &result), "compiler.compile", driver);
    const std::string log = result.log ? result.log : "";
    DeviceImage image;
    if (result.succeeded) {
      image.format = result.format ? result.format : "";
      if (result.image) image.bytes.assign(static_cast<const char*>(result.image), result.image_size);
    }
    const bool succeeded = result.succeeded != 0;
    check(recipe.compiler->release(&result), "compiler.release", driver);
    // Such an image would be kept, and found again by every later process.
    const bool is_empty = image.bytes.empty() || image.format.empty();
    if (!succeeded || is_empty) {
      throw BuildError("op \"" + op_name() + "\" could not be built: the " + recipe.language +
                       " compiler of accelerator \"" + accelerator_.name() + "\"" +
                       (succeeded     ? " reports success without an image or its format, for "
                        : log.empty() ? " refused it without a message: "
                                      : " says of ") +
                       recipe.file + (log.empty() ? "" : ":\n" + ops::shown_output(log)));
    }
    return image;
  };
  use_image(recipe.image, "op \"" + op_name() + "\"", use, make);
  return made;
}

}  // namespace anyaccel
