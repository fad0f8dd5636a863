// Finds the compilers that build host ops.
#include "base/process/toolchain.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/process/shell.h"
#include "base/process/subprocess.h"

namespace anyaccel {

std::vector<std::string> cxx_command(const std::string& asked) {
  if (!asked.empty()) {
    std::vector<std::string> command = split_words(asked, "the compiler of the accelerator");
    if (command.empty() || find_program(command[0]).empty()) {
      throw UnavailableError(
          "the accelerator builds its ops with \"" + asked +
          "\", which names no program in PATH that can be executed; install it, or add its folder to PATH");
    }
    return command;
  }
  const char* variable = std::getenv("CXX");
  if (variable && *variable) {
    if (!find_program(variable).empty()) return {variable};  // its path may contain blanks
    std::vector<std::string> command = split_words(variable, "CXX");
    if (command.empty() || find_program(command[0]).empty()) {
      throw UnavailableError("CXX=" + std::string(variable) +
                             " names no program that can be executed; set it to a C++20 compiler or unset it");
    }
    return command;
  }
  for (const char* name : {"c++", "g++", "clang++"}) {
    if (!find_program(name).empty()) return {name};
  }
  throw UnavailableError(
      "there is no C++ compiler: CXX is not set, and none of c++, g++, clang++ is in PATH. Install one (Debian: "
      "apt-get "
      "install g++), or use a package with prebuilt ops");
}

std::string compiler_file(const std::string& program) {
  std::error_code error;
  return std::filesystem::canonical(find_program(program), error).string();
}

std::string compiler_identity(const std::string& program) {
  // A program may act according to the name it was called by: ccache is linked to by the names of compilers.
  const std::string name = find_program(program);
  const std::string file = compiler_file(program);
  struct stat info {};
  if (file.empty() || stat(file.c_str(), &info) != 0) return program;
  return (name == file ? file : name + " " + file) + " " + std::to_string(info.st_size) + " " +
         std::to_string(info.st_mtim.tv_sec) + "." + std::to_string(info.st_mtim.tv_nsec);
}

std::string compiler_version(const std::string& program) {
  const std::string said = run_program({program, "--version"}).output;
  return said.substr(0, said.find('\n'));
}

std::vector<std::string> target_flags(const std::string& target) {
  // The sets are those that src/base/simd/cpu_features.h defines.
  const std::vector<std::string> avx2 = {"-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2"};
  if (target == "avx2") return avx2;
  if (target == "avx512") {
    std::vector<std::string> flags = avx2;
    for (const char* flag : {"-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512"}) {
      flags.emplace_back(flag);
    }
    return flags;
  }
  return {};
}

int max_jobs() {
  const int processors = std::max(1u, std::thread::hardware_concurrency());
  const char* asked = std::getenv("MAX_JOBS");
  if (!asked || !*asked) return processors;
  char* end = nullptr;
  const long jobs = std::strtol(asked, &end, 10);
  if (*end || jobs < 1 || jobs > 4096) {
    throw InvalidArgument("MAX_JOBS=" + std::string(asked) + ": expected a number of processes from 1 to 4096");
  }
  return static_cast<int>(jobs);
}

}  // namespace anyaccel
