// Implements modules, functions and launches: an image names the kernels, and the table of host-compiled kernels has
// their code.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "simulators/cuda/cuda_face.h"
#include "simulators/cuda/image.h"

namespace sim::cuda {

static Result load(Handle* module, const void* image) {
  CUDA_REQUIRE(module != nullptr && image != nullptr, kInvalidValue, "bad-argument", "no image or no result");
  {
    const std::lock_guard lock(face_lock());
    CUDA_TRY(refuse_unsafe());
  }
  ModuleImage read = read_image(image);
  if (!read.problem.empty()) return kInvalidImage;
  if (!runs_on(read, state().arch)) return kNoBinaryForGpu;
  auto made = std::make_shared<Module>();
  made->context = current_context();
  made->kernels = std::move(read.kernels);
  *module = handle_of(made, true);
  return kSuccess;
}

CUDA_FUNCTION(cuModuleLoadData, "cuModuleLoadData", 2000, Need::healthy, (Handle * module, const void* image),
              (module, image)) {
  return load(module, image);
}

CUDA_FUNCTION(cuModuleLoadDataEx, "cuModuleLoadDataEx", 2010, Need::healthy,
              (Handle * module, const void* image, unsigned count, int* options, void** values),
              (module, image, count, options, values)) {
  CUDA_REQUIRE(count == 0 || (options != nullptr && values != nullptr), kInvalidValue, "bad-argument",
               "options without an array");
  for (unsigned i = 0; i < count; ++i) {
    CUDA_REQUIRE(options[i] >= 0 && options[i] < 35, kInvalidValue, "bad-argument", "unknown option");
    // Logs (3 and 5): a buffer comes with its size in the option after it (4 and 6); nothing is said.
    if ((options[i] == 3 || options[i] == 5) && values[i] != nullptr) *static_cast<char*>(values[i]) = '\0';
  }
  return load(module, image);
}

CUDA_FUNCTION(cuModuleUnload, "cuModuleUnload", 2000, Need::healthy_at_end, (Handle module), (module)) {
  const auto object = get<Module>(module, "module");
  if (object == nullptr) return kInvalidHandle;
  CUDA_REQUIRE(object->context == current_context(), kInvalidHandle, "bad-handle",
               "the module belongs to another context than the current one");
  const std::lock_guard lock(face_lock());
  CUDA_TRY(refuse_unsafe());
  for (const auto& [name, function] : object->functions) {
    std::string problem;
    if (const auto made = engine().handles().get<Function>(function, &problem)) engine().handles().remove(*made);
  }
  engine().handles().remove(*object);
  return kSuccess;
}

CUDA_FUNCTION(cuModuleGetFunction, "cuModuleGetFunction", 2000, Need::healthy,
              (Handle * function, Handle module, const char* name), (function, module, name)) {
  CUDA_REQUIRE(function != nullptr && name != nullptr, kInvalidValue, "bad-argument", "a pointer is null");
  const auto object = get<Module>(module, "module");
  if (object == nullptr) return kInvalidHandle;
  if (std::find(object->kernels.begin(), object->kernels.end(), name) == object->kernels.end()) return kNotFound;
  const auto info = kernel_table().find(name);
  CUDA_REQUIRE(info != kernel_table().end(), kNotFound, "kernel-state",
               std::string("kernel ") + name + " is not among those compiled into the simulator");
  const std::lock_guard lock(face_lock());
  Handle& known = object->functions[name];
  if (known == nullptr) {
    auto made = std::make_shared<Function>();
    made->module = object;
    made->info = &info->second;
    known = handle_of(made, false);
  }
  *function = known;
  return kSuccess;
}

// CUfunction_attribute.
CUDA_FUNCTION(cuFuncGetAttribute, "cuFuncGetAttribute", 2020, Need::healthy,
              (int* value, int attribute, Handle function), (value, attribute, function)) {
  CUDA_REQUIRE(value != nullptr, kInvalidValue, "bad-argument", "the result is null");
  const auto object = get<Function>(function, "function");
  if (object == nullptr) return kInvalidHandle;
  switch (attribute) {
    case 0: *value = object->info->group_size; break;  // most threads of a block
    case 1: *value = 0; break;                         // static shared memory: not known before it runs
    case 2:
    case 3: *value = 0; break;   // constants, local memory
    case 4: *value = 32; break;  // registers
    case 5:
    case 6: *value = state().arch; break;
    case 8: *value = object->dynamic_limit; break;
    case 9: *value = -1; break;
    default: return refuse(kInvalidValue, "bad-argument", "there is no attribute " + std::to_string(attribute));
  }
  return kSuccess;
}

CUDA_FUNCTION(cuFuncSetAttribute, "cuFuncSetAttribute", 9000, Need::healthy,
              (Handle function, int attribute, int value), (function, attribute, value)) {
  const auto object = get<Function>(function, "function");
  if (object == nullptr) return kInvalidHandle;
  const std::lock_guard lock(face_lock());
  if (attribute == 9) {  // share of shared memory in the first-level cache, percent
    CUDA_REQUIRE(value >= -1 && value <= 100, kInvalidValue, "bad-argument", "not -1 to 100 percent");
    return kSuccess;
  }
  CUDA_REQUIRE(attribute == 8, kInvalidValue, "bad-argument",
               "attribute " + std::to_string(attribute) + " cannot be set");
  CUDA_REQUIRE(value >= 0 && value <= shared_bytes_optin(state().arch), kInvalidValue, "kernel-state",
               std::to_string(value) + " bytes of shared memory; a block gets at most " +
                   std::to_string(shared_bytes_optin(state().arch)));
  object->dynamic_limit = value;
  return kSuccess;
}

// ---- launches
// ----------------------------------------------------------------------------------------------------------

namespace {

Result check_shape(const Function& function, const LaunchConfig& config) {
  const KernelInfo& info = *function.info;
  for (int d = 0; d < 3; ++d) {
    CUDA_REQUIRE(config.grid[d] > 0 && config.grid[d] <= (d == 0 ? 2147483647u : 65535u), kInvalidValue, "kernel-state",
                 "a grid of " + std::to_string(config.grid[d]) + " blocks in one dimension");
  }
  const auto most = static_cast<unsigned>(info.group_size);
  const auto warp = static_cast<unsigned>(info.own_subgroup);
  const bool fits = warp == 0 ? config.block[0] == most
                              : config.block[0] > 0 && config.block[0] <= most && config.block[0] % warp == 0;
  CUDA_REQUIRE(fits && config.block[1] == 1 && config.block[2] == 1, kInvalidValue, "kernel-state",
               "blocks of (" + std::to_string(config.block[0]) + ", " + std::to_string(config.block[1]) + ", " +
                   std::to_string(config.block[2]) + ") threads for " + info.name + ", which was compiled for " +
                   (warp == 0 ? "" : "at most ") + std::to_string(most));
  CUDA_REQUIRE(config.shared_bytes <= static_cast<unsigned>(function.dynamic_limit), kInvalidValue, "kernel-state",
               std::to_string(config.shared_bytes) + " bytes of dynamic shared memory for " + info.name +
                   ", which may have " + std::to_string(function.dynamic_limit));
  return kSuccess;
}

// NVIDIA's programming guide, "Lazy loading": the default on Linux since CUDA 12.2.
bool loads_lazily() {
  static const bool lazy = [] {
    const char* mode = std::getenv("CUDA_MODULE_LOADING");
    if (mode != nullptr && std::strcmp(mode, "EAGER") == 0) return false;
    return driver_version() >= 12020 || (mode != nullptr && std::strcmp(mode, "LAZY") == 0);
  }();
  return lazy;
}

Result launch(const LaunchConfig& config, Handle handle, void** arguments, void** extra) {
  const auto function = get<Function>(handle, "function");
  if (function == nullptr) return kInvalidHandle;
  const auto module = function->module.lock();
  CUDA_REQUIRE(module != nullptr && module->context == current_context(), kInvalidHandle, "bad-handle",
               "the function belongs to another context than the current one");
  CUDA_REQUIRE(extra == nullptr, kInvalidValue, "bad-argument", "arguments in a buffer are not simulated");
  bool overlaps = false;
  CUDA_REQUIRE(config.attribute_count == 0 || config.attributes != nullptr, kInvalidValue, "bad-argument",
               "the attributes are null");
  for (unsigned i = 0; i < config.attribute_count; ++i) {
    const LaunchAttribute& attribute = config.attributes[i];
    switch (attribute.id) {
      case 0: break;
      case kLaunchCooperative:
        if (attribute.value != 0) return kNotSupported;
        break;
      case kLaunchProgrammaticSerialization:
        CUDA_REQUIRE(attribute.value == 0 || state().arch >= 90, kNotSupported, "bad-argument",
                     "programmatic launches need compute capability 9.0");
        overlaps = attribute.value != 0;
        break;
      default:
        return refuse(kInvalidValue, "bad-argument",
                      "launch attribute " + std::to_string(attribute.id) + " is not simulated");
    }
  }
  bool captures = false;
  {
    const std::lock_guard lock(face_lock());
    const auto stream = get_stream(config.stream);
    if (stream == nullptr) return kInvalidHandle;
    captures = stream->capture != nullptr;
  }
  if (!captures) load_code(*module->context, function->info->name);
  const std::lock_guard lock(face_lock());
  const auto stream = get_stream(config.stream);
  if (stream == nullptr) return kInvalidHandle;
  CUDA_REQUIRE(stream->context == module->context, kInvalidHandle, "bad-handle",
               "the stream belongs to another context than the function");
  CUDA_TRY(check_shape(*function, config));
  const KernelInfo& info = *function->info;
  CUDA_REQUIRE(info.parameters.empty() || arguments != nullptr, kInvalidValue, "kernel-state",
               info.name + " has arguments, and none are given");
  std::vector<std::vector<char>> values;
  for (std::size_t i = 0; i < info.parameters.size(); ++i) {
    CUDA_REQUIRE(arguments[i] != nullptr, kInvalidValue, "kernel-state",
                 "argument " + std::to_string(i) + " of " + info.name + " is not given");
    const char* value = static_cast<const char*>(arguments[i]);
    values.emplace_back(value, value + info.parameters[i].size);
  }
  LaunchShape shape;
  for (int d = 0; d < 3; ++d) shape.groups[d] = config.grid[d];
  shape.group_size = static_cast<int>(config.block[0]);
  shape.dynamic_local = config.shared_bytes;
  shape.overlaps_previous = overlaps;
  if (info.own_subgroup != 0) shape.static_limit = kTunedStaticLocalBytes;
  shape.local_limit = static_cast<std::size_t>(shared_bytes_optin(state().arch));
  // The values are taken now; the module must live until the kernel has run.
  Node node;
  node.what = info.name.c_str();
  node.run = [&info, values = std::move(values), shape, owner = std::weak_ptr<Module>(module)](Execution& execution) {
    if (owner.expired()) {
      engine().report().violation("destroyed-in-use",
                                  "the module of kernel " + info.name + " was unloaded before the kernel ran");
      execution.fail(Status::bad_access);
      return;
    }
    execution.launch(info, values, shape);
  };
  return submit(*stream, std::move(node));
}

}  // namespace

void load_code(Context& context, const std::string& name) {
  if (!loads_lazily()) return;
  {
    const std::lock_guard lock(face_lock());
    if (!context.loaded.insert(name).second) return;
  }
  // The error of a device that has failed is the launch's.
  static_cast<void>(wait_for_context(context));
}

CUDA_FUNCTION(cuLaunchKernel, "cuLaunchKernel", 4000, Need::healthy,
              (Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
               unsigned block_z, unsigned shared_bytes, Handle stream, void** arguments, void** extra),
              (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, arguments, extra)) {
  const LaunchConfig config = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream, nullptr, 0};
  return launch(config, function, arguments, extra);
}

CUDA_FUNCTION(cuLaunchKernelEx, "cuLaunchKernelEx", 11060, Need::healthy,
              (const LaunchConfig* config, Handle function, void** arguments, void** extra),
              (config, function, arguments, extra)) {
  CUDA_REQUIRE(config != nullptr, kInvalidValue, "bad-argument", "the configuration is null");
  return launch(*config, function, arguments, extra);
}

CUDA_FUNCTION(cuLaunchHostFunc, "cuLaunchHostFunc", 10000, Need::healthy,
              (Handle stream, HostFunction function, void* user), (stream, function, user)) {
  CUDA_REQUIRE(function != nullptr, kInvalidValue, "bad-argument", "the function is null");
  const std::lock_guard lock(face_lock());
  const auto object = get_stream(stream);
  if (object == nullptr) return kInvalidHandle;
  Node node;
  node.what = current_function();
  node.run = [function, user](Execution& execution) {
    {
      const CallbackScope scope;
      function(user);
    }
    execution.ran_on_the_host();
  };
  return submit(*object, std::move(node));
}

}  // namespace sim::cuda
