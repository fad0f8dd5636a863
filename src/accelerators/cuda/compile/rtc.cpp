// Implements rtc.h: the vendors' compilers as libraries.
#include "accelerators/cuda/compile/rtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>

#include "accelerators/cuda/libraries/loading.h"

namespace anyaccel::cuda {
namespace {

enum : int {
  rtc_success = 0,
  rtc_out_of_memory = 1,
  rtc_invalid_option = 5,
  rtc_compilation = 6,
  rtc_builtin_operation_failure = 7,
};

struct Candidate {
  int major;
  const char* file;
};
constexpr Candidate nvrtc_files[] = {{13, "libnvrtc.so.13"}, {12, "libnvrtc.so.12"}, {11, "libnvrtc.so.11.2"}};

// Each is opened once; null: missing or not usable.
struct Opened {
  std::unique_ptr<RuntimeCompiler> compiler;
  std::string problem;
};

Opened open(Runtime runtime, const std::vector<std::string>& files) {
  Opened opened;
  void* handle = open_library(runtime, files, opened.problem);
  if (!handle) return opened;
  auto compiler = std::make_unique<RuntimeCompiler>(handle, runtime);
  opened.problem = compiler->problem();
  if (opened.problem.empty()) opened.compiler = std::move(compiler);
  return opened;
}

const Opened& nvrtc(size_t index) {
  static std::mutex mutex;
  static std::unique_ptr<Opened> opened[std::size(nvrtc_files)];
  const std::scoped_lock lock(mutex);
  if (!opened[index]) opened[index] = std::make_unique<Opened>(open(Runtime::cuda, {nvrtc_files[index].file}));
  return *opened[index];
}

}  // namespace

RuntimeCompiler::RuntimeCompiler(void* handle, Runtime runtime) : runtime_(runtime), path_(library_path(handle)) {
  const bool hip = runtime == Runtime::hip;
  const std::string prefix = hip ? "hiprtc" : "nvrtc";
  const auto bind = [&](auto& function, const std::string& name, bool needed) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, (prefix + name).c_str()));
    if (needed && !function && problem_.empty()) problem_ = path_ + " lacks the function " + prefix + name;
  };
  bind(create_, "CreateProgram", true);
  bind(destroy_, "DestroyProgram", true);
  bind(compile_, "CompileProgram", true);
  bind(log_size_, "GetProgramLogSize", true);
  bind(log_, "GetProgramLog", true);
  bind(code_size_, hip ? "GetCodeSize" : "GetCUBINSize", true);
  bind(code_, hip ? "GetCode" : "GetCUBIN", true);
  bind(ptx_size_, "GetPTXSize", !hip);
  bind(ptx_, "GetPTX", !hip);
  bind(version_, "Version", true);
  bind(error_string_, "GetErrorString", true);
  Status (*count_architectures)(int*) = nullptr;
  Status (*list_architectures)(int*) = nullptr;
  bind(count_architectures, "GetNumSupportedArchs", false);
  bind(list_architectures, "GetSupportedArchs", false);
  if (!problem_.empty()) return;

  int major = 0;
  int minor = 0;
  version_(&major, &minor);
  // An update may keep the version and change the file.
  std::error_code error;
  const auto size = std::filesystem::file_size(path_, error);
  identity_ = prefix + " " + std::to_string(major) + "." + std::to_string(minor) +
              (error ? std::string() : " (" + std::to_string(size) + " bytes)");
  int count = 0;
  if (count_architectures && list_architectures && count_architectures(&count) == rtc_success && count > 0) {
    architectures_.resize(static_cast<size_t>(count));
    if (list_architectures(architectures_.data()) != rtc_success) architectures_.clear();
    std::sort(architectures_.begin(), architectures_.end());
  }
}

class RuntimeCompiler::OpenProgram {
 public:
  OpenProgram(const RuntimeCompiler& compiler, const std::string& name, const std::string& source)
      : compiler_(compiler) {
    compiler_.check(compiler_.create_(&program_, source.c_str(), name.c_str(), 0, nullptr, nullptr), "CreateProgram");
  }
  ~OpenProgram() { compiler_.destroy_(&program_); }
  OpenProgram(const OpenProgram&) = delete;
  OpenProgram& operator=(const OpenProgram&) = delete;
  Program get() const noexcept { return program_; }

 private:
  const RuntimeCompiler& compiler_;
  Program program_ = nullptr;
};

void RuntimeCompiler::check(Status status, const char* call) const {
  if (status == rtc_success) return;
  const char* words = error_string_(status);
  std::string text = std::string(runtime_ == Runtime::hip ? "hiprtc" : "nvrtc") + call + " of " + path_ + " gives " +
                     (words ? words : "an error") + " (" + std::to_string(status) + ")";
  if (status == rtc_out_of_memory) throw abi::Failure(AA_RESOURCE_EXHAUSTED, text, status);
  if (status == rtc_builtin_operation_failure) {
    text += "; libnvrtc-builtins.so of the same version must lie beside it: reinstall NVRTC";
  }
  throw abi::Failure(AA_UNAVAILABLE, text, status);
}

abi::CompileOutput RuntimeCompiler::compile(const std::string& name, const std::string& source,
                                            const std::vector<std::string>& options, Image image) const {
  std::vector<const char*> arguments;
  arguments.reserve(options.size());
  for (const std::string& option : options) arguments.push_back(option.c_str());
  const OpenProgram program(*this, name, source);
  const Status status = compile_(program.get(), static_cast<int>(arguments.size()), arguments.data());

  abi::CompileOutput output;
  size_t bytes = 0;
  if (log_size_(program.get(), &bytes) == rtc_success && bytes > 1) {
    output.log.resize(bytes);  // including the terminating zero
    if (log_(program.get(), output.log.data()) != rtc_success) output.log.clear();
    while (!output.log.empty() && output.log.back() == '\0') output.log.pop_back();
  }
  if (status == rtc_compilation || status == rtc_invalid_option) {
    const char* words = error_string_(status);
    if (output.log.empty()) output.log = words ? words : "the compiler gave no reason";
    return output;
  }
  check(status, "CompileProgram");
  const bool hip = runtime_ == Runtime::hip;
  const bool ptx = image == Image::ptx && !hip;
  check((ptx ? ptx_size_ : code_size_)(program.get(), &bytes), ptx ? "GetPTXSize" : "GetCodeSize");
  output.image.resize(bytes);
  check((ptx ? ptx_ : code_)(program.get(), reinterpret_cast<char*>(output.image.data())), ptx ? "GetPTX" : "GetCode");
  output.format = hip ? "hsaco" : ptx ? "ptx" : "cubin";
  output.succeeded = bytes > 0;
  if (!output.succeeded) output.log += "\n" + identity_ + " gave no image";
  return output;
}

const RuntimeCompiler* find_nvrtc(int driver_version, int architecture, std::string& tried) {
  const int driver_major = driver_version / 1000;
  const auto fits_driver = [&](size_t i) { return driver_major == 0 || nvrtc_files[i].major <= driver_major; };
  std::vector<size_t> order;
  for (size_t i = 0; i < std::size(nvrtc_files); ++i) {
    if (fits_driver(i)) order.push_back(i);
  }
  for (size_t i = std::size(nvrtc_files); i-- > 0;) {
    if (!fits_driver(i)) order.push_back(i);
  }
  const RuntimeCompiler* too_old = nullptr;  // for this device
  const RuntimeCompiler* too_new = nullptr;
  for (const size_t index : order) {
    // The driver translates PTX of its own version, and may refuse everything of a newer one.
    if (too_old && !fits_driver(index)) break;
    const RuntimeCompiler* compiler = nvrtc(index).compiler.get();
    if (!compiler) continue;
    const std::vector<int>& known = compiler->architectures();
    if (known.empty() || std::find(known.begin(), known.end(), architecture) != known.end()) return compiler;
    const RuntimeCompiler*& other = architecture > known.back() ? too_old : too_new;
    if (!other) other = compiler;
  }
  if (too_old) return too_old;
  if (too_new) {
    tried = too_new->path() + " compiles for sm_" + std::to_string(too_new->architectures().front()) +
            " and newer, and the device is sm_" + std::to_string(architecture) + ": install NVRTC of an older CUDA";
    return nullptr;
  }
  // Name all places that were searched, and what is wrong with the libraries that were found.
  std::vector<std::string> names;
  for (const size_t index : order) names.emplace_back(nvrtc_files[index].file);
  if (open_library(Runtime::cuda, names, tried)) tried.clear();
  for (const size_t index : order) {
    const std::string& problem = nvrtc(index).problem;
    if (problem.find(" lacks ") != std::string::npos) tried += (tried.empty() ? "" : "; ") + problem;
  }
  return nullptr;
}

const RuntimeCompiler* find_hiprtc(std::string& tried) {
  // Up to ROCm 5 the runtime's own library has these functions.
  static const Opened opened =
      open(Runtime::hip, {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so", "libamdhip64.so.5"});
  tried = opened.problem;
  return opened.compiler.get();
}

}  // namespace anyaccel::cuda
