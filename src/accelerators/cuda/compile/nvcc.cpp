// Implements nvcc.h: building of *.cu sources of host ops with NVIDIA's compiler driver.
#include "accelerators/cuda/compile/nvcc.h"

#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "anyaccel/error.h"
#include "base/process/shell.h"
#include "base/process/subprocess.h"

namespace anyaccel::cuda {
namespace {

constexpr const char* default_architectures = "8.0;9.0+PTX";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// "9.0+PTX" gives sm_90 and compute_90.
void add_architecture(std::vector<std::string>& flags, const std::string& entry) {
  std::string number = entry;
  const bool with_ptx = number.ends_with("+PTX");
  if (with_ptx) number.resize(number.size() - 4);
  const size_t point = number.find('.');
  std::string digits;
  std::string suffix;  // "a" of 9.0a: features of that very architecture
  bool good = point != std::string::npos && point > 0;
  for (size_t i = 0; good && i < number.size(); ++i) {
    if (i == point) continue;
    if (std::isdigit(static_cast<unsigned char>(number[i]))) {
      good = suffix.empty();
      digits += number[i];
    } else {
      good = i > point + 1 && (number[i] == 'a' || number[i] == 'f') && suffix.empty();
      suffix += number[i];
    }
  }
  if (!good || digits.size() < 2 || digits.size() > 3) {
    throw InvalidArgument("TORCH_CUDA_ARCH_LIST: \"" + entry +
                          "\" is not understood; expected compute capabilities like \"8.0;9.0+PTX\"");
  }
  const std::string arch = digits + suffix;
  flags.push_back("-gencode=arch=compute_" + arch + ",code=sm_" + arch);
  if (with_ptx) flags.push_back("-gencode=arch=compute_" + arch + ",code=compute_" + arch);
}

std::filesystem::path toolkit() {
  std::error_code error;
  return std::filesystem::canonical(nvcc(), error).parent_path().parent_path();
}

}  // namespace

std::string nvcc() {
  if (const std::string home = variable("CUDA_HOME"); !home.empty()) {
    const std::string file = home + "/bin/nvcc";
    if (!find_program(file).empty()) return file;
    throw UnavailableError("CUDA_HOME=" + home + ", but " + file +
                           " is not a program; set CUDA_HOME to a CUDA toolkit, or unset it to use the nvcc in PATH");
  }
  if (std::string file = find_program("nvcc"); !file.empty()) return file;
  if (std::string file = find_program("/usr/local/cuda/bin/nvcc"); !file.empty()) return file;
  throw UnavailableError(
      "there is no nvcc: CUDA_HOME is not set, and it is neither in PATH nor at /usr/local/cuda/bin/nvcc; install the "
      "CUDA toolkit to build *.cu sources");
}

std::vector<std::string> nvcc_flags() {
  std::vector<std::string> flags;
  std::string list = variable("TORCH_CUDA_ARCH_LIST");
  if (list.empty()) list = default_architectures;
  std::string entry;
  for (const char c : list + ";") {
    if (c != ';' && c != ' ' && c != ',') {
      entry += c;
      continue;
    }
    if (!entry.empty()) add_architecture(flags, entry);
    entry.clear();
  }
  if (const std::string threads = variable("DS_NVCC_THREADS"); !threads.empty())
    flags.push_back("--threads=" + threads);
  if (variable("DS_DEBUG_CUDA_BUILD") == "1") flags.emplace_back("--ptxas-options=-v");
  return flags;
}

std::vector<std::string> nvcc_command(const BuildPlan& plan, const std::string& source, const std::string& object,
                                      const std::string& depfile) {
  std::vector<std::string> command = {nvcc(), "-std=c++20", "-O3", "-Xcompiler=-fPIC,-fvisibility=hidden"};
  // The host compiler decides which C++ library the objects agree with.
  if (const std::string cxx = variable("CXX"); !cxx.empty()) {
    const std::vector<std::string> words = split_words(cxx, "CXX");
    if (!words.empty()) command.push_back("-ccbin=" + words.back());
  }
  command.insert(command.end(), plan.nvcc_args.begin(), plan.nvcc_args.end());
  for (const std::string& path : plan.include_paths) command.push_back("-I" + path);
  command.insert(command.end(), {"-MD", "-MF", depfile, "-c", source, "-o", object});
  return command;
}

std::vector<std::string> nvcc_link_flags() {
  const std::filesystem::path home = toolkit();
  std::vector<std::string> flags;
  for (const char* folder : {"lib64", "targets/x86_64-linux/lib"}) {
    std::error_code error;
    if (std::filesystem::exists(home / folder / "libcudart_static.a", error)) {
      flags.push_back("-L" + (home / folder).string());
      break;
    }
  }
  flags.insert(flags.end(), {"-lcudart_static", "-ldl", "-lrt", "-lpthread"});
  return flags;
}

}  // namespace anyaccel::cuda
