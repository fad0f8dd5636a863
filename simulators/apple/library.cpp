// Implements libraries compiled from source, functions and compute pipeline states.
#include <algorithm>

#include "simulators/apple/metal.h"

namespace sim::apple {
namespace {

constexpr const char* kLibraryErrors = "MTLLibraryErrorDomain";
constexpr Integer kUnsupported = 1, kCompileFailure = 3;  // MTLLibraryError

struct CompileOptions : Instance {
  CompileOptions() : Instance("MTLCompileOptions") {}
  void dealloc() override { macros = {}; }
  UInteger language = 0;
  Boolean fast_math = true;
  Integer math_mode = 2, optimization = 0, math_functions = 0;
  UInteger most_threads = 0;
  Ref<Dictionary> macros;
};
// A property that changes nothing here.
#define APPLE_PROPERTY(Type, getter, setter, member)                           \
  Type get_##member(CompileOptions& self) { return self.member; }              \
  void set_##member(CompileOptions& self, Type value) { self.member = value; } \
  METHOD("MTLCompileOptions", getter, get_##member)                            \
  METHOD("MTLCompileOptions", setter, set_##member)
CLASS("MTLCompileOptions", "NSObject", &make_instance<CompileOptions>)
APPLE_PROPERTY(UInteger, "languageVersion", "setLanguageVersion:", language)
APPLE_PROPERTY(Boolean, "fastMathEnabled", "setFastMathEnabled:", fast_math)
APPLE_PROPERTY(Integer, "mathMode", "setMathMode:", math_mode)
APPLE_PROPERTY(Integer, "mathFloatingPointFunctions", "setMathFloatingPointFunctions:", math_functions)
APPLE_PROPERTY(Integer, "optimizationLevel", "setOptimizationLevel:", optimization)
APPLE_PROPERTY(UInteger, "maxTotalThreadsPerThreadgroup", "setMaxTotalThreadsPerThreadgroup:", most_threads)
void set_macros(CompileOptions& self, Id id) {
  self.macros = {};
  if (id != nullptr) self.macros = Ref<Dictionary>(get<Dictionary>(id, "the macros"));
}
METHOD("MTLCompileOptions", "setPreprocessorMacros:", set_macros)

// Names and strings or numbers.
std::vector<std::string> definitions(const Dictionary& macros) {
  std::vector<std::string> options;
  for (const auto& [key, value] : macros.entries) {
    const auto* name = dynamic_cast<const String*>(key.get());
    const auto* text = dynamic_cast<const String*>(value.get());
    const auto* number = dynamic_cast<const Number*>(value.get());
    if (name == nullptr || (text == nullptr && number == nullptr)) {
      violation("bad-argument", "a preprocessor macro is no string with a string or a number");
      continue;
    }
    options.push_back("-D" + name->text + "=" + (text != nullptr ? text->text : std::to_string(number->integer)));
  }
  return options;
}

Id new_library(MetalDevice& self, Id source, Id options, Id* error) {
  std::string text;
  if (!text_of(source, "the source", &text)) return nullptr;
  std::vector<std::string> macros;
  UInteger most_threads = 0;
  if (options != nullptr) {
    const auto chosen = get<CompileOptions>(options, "the options");
    if (chosen == nullptr) return nullptr;
    if (chosen->macros) macros = definitions(*chosen->macros);
    most_threads = chosen->most_threads;
    // MTLLanguageVersion: major version << 16 | minor; 3.1 came with macOS 14, 3.2 with macOS 15.
    const UInteger newest = macos_version() >= 1500 ? 0x30002 : macos_version() >= 1400 ? 0x30001 : 0x30000;
    if (chosen->language > newest) {
      set_error(error, kLibraryErrors, kUnsupported,
                "language version " + std::to_string(chosen->language >> 16) + "." +
                    std::to_string(chosen->language & 0xffff) + " is not supported");
      return nullptr;
    }
  }
  MslResult read = read_msl(text, macros);
  if (!read.succeeded) {
    set_error(error, kLibraryErrors, kCompileFailure, read.log);
    return nullptr;
  }
  const auto library = create<Library>(Ref<MetalDevice>(shared(self)));
  library->kernels = std::move(read.kernels);
  for (MslKernel& kernel : library->kernels) {
    if (kernel.most_threads == 0) kernel.most_threads = static_cast<int>(most_threads);
  }
  return library->id();
}
METHOD("MTLDevice", "newLibraryWithSource:options:error:", new_library)

Id names_of(Library& self) {
  const auto names = create<Array>();
  for (const MslKernel& kernel : self.kernels) {
    const auto name = create<String>(kernel.name);
    names->elements.emplace_back(name);
    release(name);
  }
  return autorelease(names);
}
Id new_function(Library& self, Id id) {
  std::string name;
  if (!text_of(id, "the name", &name)) return nullptr;
  const auto found = std::find_if(self.kernels.begin(), self.kernels.end(),
                                  [&](const MslKernel& kernel) { return kernel.name == name; });
  if (found == self.kernels.end()) return nullptr;
  const auto function = create<Function>(self.device);
  function->kernel = *found;
  return function->id();
}
PROTOCOL("MTLLibrary", "MTLObject")
SURE_METHOD("MTLLibrary", "functionNames", names_of)
METHOD("MTLLibrary", "newFunctionWithName:", new_function)

Id function_name(Function& self) { return string_autoreleased(self.kernel.name); }
UInteger function_type(Function&) { return 3; }  // MTLFunctionTypeKernel
PROTOCOL("MTLFunction", "MTLObject")
SURE_METHOD("MTLFunction", "name", function_name)
METHOD("MTLFunction", "functionType", function_type)

Id make_pipeline(MetalDevice& self, Function& function, UInteger most_threads, Id* error) {
  APPLE_REQUIRE(function.device.get() == &self, nullptr, "wrong-owner", "the function is another device's");
  const MslKernel& kernel = function.kernel;
  const auto refuse = [&](const std::string& what) {
    violation("kernel-state", what);
    set_error(error, kLibraryErrors, kUnsupported, what);
    return nullptr;
  };
  if (!kernel.problem.empty()) return refuse("kernel " + kernel.name + ": " + kernel.problem);
  const auto known = kernel_table().find(kernel.name);
  if (known == kernel_table().end())
    return refuse("kernel " + kernel.name + " is not among those compiled into the simulator");
  for (const MslArgument& argument : kernel.arguments) {
    if (argument.index < 0 || static_cast<UInteger>(argument.index) >= kArguments) {
      return refuse("kernel " + kernel.name + ": buffer " + std::to_string(argument.index) + "; there are 31");
    }
  }
  std::vector<ArgumentSource> sources;
  if (const std::string problem = match_arguments(kernel, known->second, &sources); !problem.empty())
    return refuse(problem);
  const auto pipeline = create<Pipeline>(function.device);
  pipeline->kernel = kernel;
  pipeline->info = &known->second;
  pipeline->sources = std::move(sources);
  if (kernel.most_threads > 0) pipeline->most_threads = static_cast<UInteger>(kernel.most_threads);
  if (most_threads > 0) pipeline->most_threads = std::min(pipeline->most_threads, most_threads);
  return pipeline->id();
}

Id new_pipeline(MetalDevice& self, Id id, Id* error) {
  const auto function = get<Function>(id, "the function");
  return function == nullptr ? nullptr : make_pipeline(self, *function, 0, error);
}
METHOD("MTLDevice", "newComputePipelineStateWithFunction:error:", new_pipeline)

struct PipelineDescriptor : Instance {
  PipelineDescriptor() : Instance("MTLComputePipelineDescriptor") {}
  void dealloc() override { function = {}; }
  Ref<Function> function;
  UInteger most_threads = 0;
  Boolean whole_widths = false;
  std::string label;
};
void set_function(PipelineDescriptor& self, Id id) {
  self.function = id == nullptr ? Ref<Function>() : Ref<Function>(get<Function>(id, "the function"));
}
void set_pipeline_threads(PipelineDescriptor& self, UInteger threads) { self.most_threads = threads; }
void set_whole_widths(PipelineDescriptor& self, Boolean whole) { self.whole_widths = whole; }
void set_pipeline_label(PipelineDescriptor& self, Id label) {
  self.label.clear();
  if (label != nullptr) text_of(label, "the label", &self.label);
}
CLASS("MTLComputePipelineDescriptor", "NSObject", &make_instance<PipelineDescriptor>)
METHOD("MTLComputePipelineDescriptor", "setComputeFunction:", set_function)
METHOD("MTLComputePipelineDescriptor", "setMaxTotalThreadsPerThreadgroup:", set_pipeline_threads)
METHOD("MTLComputePipelineDescriptor", "setThreadGroupSizeIsMultipleOfThreadExecutionWidth:", set_whole_widths)
METHOD("MTLComputePipelineDescriptor", "setLabel:", set_pipeline_label)
Id new_described_pipeline(MetalDevice& self, Id id, UInteger options, Id* reflection, Id* error) {
  const auto descriptor = get<PipelineDescriptor>(id, "the descriptor");
  if (descriptor == nullptr) return nullptr;
  APPLE_REQUIRE(options == 0 && reflection == nullptr, nullptr, "bad-argument", "reflection is not simulated");
  APPLE_REQUIRE(descriptor->function, nullptr, "bad-argument", "the descriptor has no function");
  return make_pipeline(self, *descriptor->function, descriptor->most_threads, error);
}
METHOD("MTLDevice", "newComputePipelineStateWithDescriptor:options:reflection:error:", new_described_pipeline)

UInteger most_threads_of(Pipeline& self) { return self.most_threads; }
UInteger width_of(Pipeline&) { return kWidth; }
UInteger static_bytes(Pipeline&) { return 0; }  // not known before it runs
PROTOCOL("MTLComputePipelineState", "MTLObject")
METHOD("MTLComputePipelineState", "maxTotalThreadsPerThreadgroup", most_threads_of)
METHOD("MTLComputePipelineState", "threadExecutionWidth", width_of)
METHOD("MTLComputePipelineState", "staticThreadgroupMemoryLength", static_bytes)

}  // namespace

// ---- what the library Metal calls ------------------------------------------------------------------------------------------

extern "C" {

__attribute__((visibility("default"))) void sim_metal_load() { load_metal(); }

__attribute__((visibility("default"))) Id sim_metal_default_device() {
  if (settings().devices == 0 || settings().fault("init") != nullptr) return nullptr;
  return metal_device(0)->id();
}

__attribute__((visibility("default"))) Id sim_metal_all_devices() {
  const auto all = create<Array>();
  for (int i = 0; settings().fault("init") == nullptr && i < settings().devices; ++i) {
    const auto device = metal_device(i);
    all->elements.emplace_back(device);
    release(device);
  }
  return all->id();
}

__attribute__((visibility("default"))) bool sim_metal_call(const char* name) {
  const std::uint64_t number = ++engine().report().calls(name);
  for (const Fault& fault : settings().faults) {
    if (fault.name == "fail" && fault.words[0] == name && *fault.call == number) return false;
  }
  return true;
}

__attribute__((visibility("default"))) bool sim_metal_hidden(const char* name) { return settings().hidden(name); }
}

}  // namespace sim::apple
