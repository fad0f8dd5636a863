// Implements compiler.h: CUDA C++ source to a cubin at run time.
#include "accelerators/cuda/compile/compiler.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>

#include "accelerators/compiler_program/build_folder.h"
#include "accelerators/cuda/compile/nvcc.h"
#include "accelerators/cuda/compile/rtc.h"
#include "accelerators/cuda/libraries/loading.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/files/cache_dir.h"
#include "base/process/subprocess.h"

namespace anyaccel::cuda {
namespace {

namespace fs = std::filesystem;

// A compiler and its target.
struct Choice {
  const RuntimeCompiler* library = nullptr;  // null: nvcc
  std::string nvcc;
  std::string missing;  // why there is no compiler; empty if there is one
  std::string target;   // "sm_90"; "compute_120" where the compiler is older than the device; "gfx942"
  bool ptx = false;
};

Choice choose_hip(const DeviceFacts& facts) {
  std::string tried;
  Choice choice;
  choice.library = find_hiprtc(tried);
  choice.target = facts.arch;
  if (!choice.library) throw abi::Failure(AA_UNAVAILABLE, "no hipRTC: " + tried + "; install ROCm's hiprtc");
  if (facts.arch.empty()) {
    throw abi::Failure(AA_UNAVAILABLE, "ROCm does not tell the architecture of " + facts.name +
                                           ", without which hipRTC cannot compile for it");
  }
  return choice;
}

Choice choose(const DeviceFacts& facts) {
  if (!facts.arch.starts_with("sm_")) return choose_hip(facts);
  Choice choice;
  choice.target = facts.arch;
  const int architecture = facts.major * 10 + facts.minor;
  std::string tried;
  choice.library = find_nvrtc(cuda_library().version, architecture, tried);
  if (choice.library) {
    const std::vector<int>& known = choice.library->architectures();
    if (!known.empty() && std::find(known.begin(), known.end(), architecture) == known.end()) {
      choice.target = "compute_" + std::to_string(known.back());
      choice.ptx = true;
    }
    return choice;
  }
  try {
    choice.nvcc = nvcc();
  } catch (const Error& error) {
    choice.missing = "kernels cannot be compiled: no NVRTC (" + tried + ") and no nvcc (" + error.what() +
                     "); install NVRTC of the driver's CUDA version (Debian and NVIDIA: cuda-nvrtc; pip: "
                     "nvidia-cuda-nvrtc, with its folder in " +
                     library_path_variable + ")";
  }
  return choice;
}

// Returns the output of `nvcc --version`, which is started once for each file.
std::string nvcc_identity(const std::string& file) {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;
  const std::scoped_lock lock(mutex);
  std::string& identity = known[file];
  if (identity.empty()) {
    std::string said = run_program({file, "--version"}).output;
    while (!said.empty() && said.back() == '\n') said.pop_back();
    identity = "nvcc " + said.substr(said.rfind('\n') + 1);  // "Build cuda_13.0.r13.0/compiler.36260728_0"
  }
  return identity;
}

// Kernels that were compiled before serve without a compiler. They are found by its identity, so that of the last one that compiled
// something is kept.
fs::path identity_file(const Choice& choice) {
  const fs::path cache = cache_directory();
  return cache.empty() ? cache : cache / "compilers" / choice.target;
}

std::optional<std::string> kept_identity(const fs::path& file) {
  constexpr size_t most_bytes = 4096;
  return file.empty() ? std::nullopt : read_cache_file(file, most_bytes);
}

std::string identity_of(const Choice& choice) {
  if (choice.library) return choice.library->identity();
  if (choice.missing.empty()) return nvcc_identity(choice.nvcc);
  const std::optional<std::string> kept = kept_identity(identity_file(choice));
  if (!kept) throw abi::Failure(AA_UNAVAILABLE, choice.missing);
  static std::once_flag told;
  std::call_once(
      told, [&] { log_warning("cuda: only kernels that " + *kept + " compiled before can run: " + choice.missing); });
  return *kept;
}

// Without it only later processes that find no compiler are worse off, so a failure is not reported.
void keep_identity(const Choice& choice) {
  const fs::path file = identity_file(choice);
  const std::string identity = identity_of(choice);
  if (!file.empty() && kept_identity(file) != identity) write_cache_file(file, identity);
}

abi::CompileOutput compile_by_nvcc(const Choice& choice, const std::string& name, const std::string& source,
                                   const std::vector<std::string>& options) {
  const BuildFolder folder;
  const std::string source_file = folder.write_source("kernel.cu", name, source);
  const std::string image_file = folder.file("kernel.cubin");
  std::vector<std::string> command{choice.nvcc, "-cubin", "-o", image_file};
  for (const std::string& option : options) {
    // NVRTC's own: functions without a qualifier are the device's.
    if (option == "-default-device" || option == "--device-as-default-execution-space") continue;
    command.push_back(option);
  }
  command.push_back(source_file);
  const ProcessResult compiled = run_program(command);
  abi::CompileOutput output;
  output.log = compiled.output;
  if (!compiled.ok()) {
    if (output.log.empty()) output.log = choice.nvcc + " ended with code " + std::to_string(compiled.exit_code);
    return output;
  }
  output.image = read_output(image_file);
  output.format = "cubin";
  output.succeeded = !output.image.empty();
  if (!output.succeeded) output.log += "\n" + choice.nvcc + " wrote nothing to " + image_file;
  return output;
}

}  // namespace

std::string compiler_fingerprint(const DeviceFacts& facts) {
  const Choice choice = choose(facts);
  return identity_of(choice) + " " + choice.target;
}

bool compiles_own_features(const DeviceFacts& facts) {
  if (facts.arch != "sm_90") return false;
  const Choice choice = choose(facts);
  if (choice.ptx) return false;
  // "nvrtc 12.8 (...)", "nvcc Build cuda_12.8.r12.8/...".
  const std::string identity = identity_of(choice);
  const size_t number = identity.find_first_of("0123456789");
  return number != std::string::npos && std::atoi(identity.c_str() + number) >= 12;
}

abi::CompileOutput compile(const DeviceFacts& facts, const std::string& name, const std::string& source,
                           std::span<const std::string> options) {
  const Choice choice = choose(facts);
  if (!choice.missing.empty()) throw abi::Failure(AA_UNAVAILABLE, choice.missing);
  const bool hip = !facts.arch.starts_with("sm_");
  std::vector<std::string> all;
  // A caller may want features of one architecture only ("sm_90a").
  bool ptx = choice.ptx;
  bool has_target = false;
  for (const std::string& option : options) {
    if (!option.starts_with("--gpu-architecture=") && !option.starts_with("-arch=")) continue;
    has_target = true;
    ptx = option.find("=compute_") != std::string::npos;
  }
  if (!has_target) all.push_back((hip ? "--offload-arch=" : "--gpu-architecture=") + choice.target);
  all.insert(all.end(), options.begin(), options.end());
  const auto image = ptx ? RuntimeCompiler::Image::ptx : RuntimeCompiler::Image::native;
  abi::CompileOutput output =
      choice.library ? choice.library->compile(name, source, all, image) : compile_by_nvcc(choice, name, source, all);
  if (output.succeeded) keep_identity(choice);
  return output;
}

}  // namespace anyaccel::cuda
