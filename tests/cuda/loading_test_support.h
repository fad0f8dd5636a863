// Helpers that the tests of finding and opening the vendors' libraries share. Every case runs in a child process with
// an environment of its own, because a library that one has opened stays open.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "accelerators/cuda/platform/platform.h"
#include "this_build.h"

namespace anyaccel::loading_test {

using Environment = std::map<std::string, std::string>;

// Stand-ins that tests/cuda/CMakeLists.txt builds, each in a folder of its own.
inline const std::string fake_driver = test::built("tests/cuda/fake_driver");
inline const std::string fake_nvml = test::built("tests/cuda/fake_nvml");
inline const std::string fake_hip = test::built("tests/cuda/fake_hip");

inline Environment with(Environment environment, const std::string& name, const std::string& value) {
  environment[name] = value;
  return environment;
}

// Runs `body` in a child process with these variables and none of the others that matter here; what it returns comes back.
inline std::string in_child(const Environment& environment, const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    for (const char* name : {"ANYACCEL_CUDA_LIBRARY_PATH", "ANYACCEL_CUDA_DEVICES", "CUDA_VISIBLE_DEVICES",
                             "HIP_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "HIP_PATH", "FAKE_CUDA",
                             "FAKE_NVML", "FAKE_HIP", "NVTX_INJECTION64_PATH"}) {
      unsetenv(name);
    }
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    std::string text;
    try {
      text = body();
    } catch (const abi::Failure& failure) {
      text = "failure " + std::to_string(failure.code()) + ": " + failure.what();
    } catch (const std::exception& error) {
      text = std::string("exception: ") + error.what();
    }
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t written = write(ends[1], text.data() + sent, text.size() - sent);
      if (written <= 0) _exit(1);
      sent += static_cast<size_t>(written);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof(buffer))) > 0;) text.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) text += " [the child process died]";
  return text;
}

inline bool mapped(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(library) != std::string::npos) return true;
  }
  return false;
}

// "usable 2 cuda: <reason>".
inline std::string text_of(const cuda::Discovery& found) {
  constexpr const char* states[] = {"absent", "unusable", "usable"};
  return std::string(states[found.state]) + " " + std::to_string(found.device_count) +
         (found.runtime == cuda::Runtime::cuda ? " cuda: " : " hip: ") + found.reason;
}

inline std::string discovered(const Environment& environment) {
  return in_child(environment, [] { return text_of(cuda::discover()); });
}

// A machine with an NVIDIA GPU opens its own driver where a test wants to see none.
inline bool has_nvidia_node() {
  return std::filesystem::exists("/dev/nvidiactl") || std::filesystem::exists("/dev/nvidia0") ||
         std::filesystem::exists("/dev/dxg");
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

#define EXPECT_CONTAINS(text, part) EXPECT_TRUE(::anyaccel::loading_test::contains(text, part)) << (text)

}  // namespace anyaccel::loading_test
