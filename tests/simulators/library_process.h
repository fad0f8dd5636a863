// For tests of simulated libraries through their raw functions: each test program runs in a process of its own,
// because the libraries read their environment once, and leaves the report that the vendor's driver or runtime wrote.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/files/files.h"
#include "tests/simulators/check.h"
#include "tests/this_build.h"

namespace sim_test {

// By its file's name in the folder of the CUDA libraries, or with another vendor's folder before it.
inline void* library(const std::string& file) {
  const std::string path = file.find('/') == std::string::npos ? "cuda/" + file : file;
  void* handle = ::dlopen(anyaccel::test::built("simulators/" + path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    std::_Exit(90);
  }
  return handle;
}

// A function by its name, called with exactly the types of the arguments given.
template <typename Return = int, typename... Args>
Return call(const char* file, const char* name, Args... args) {
  auto* function = reinterpret_cast<Return (*)(Args...)>(::dlsym(library(file), name));
  if (function == nullptr) {
    std::fprintf(stderr, "%s has no %s\n", file, name);
    std::_Exit(90);
  }
  return function(args...);
}
template <typename... Args>
int cu(const char* name, Args... args) {
  return call("libcuda.so.1", name, args...);
}

#define CHECK_EQUAL(expected, expression)                                                              \
  do {                                                                                                 \
    const long long want = static_cast<long long>(expected), got = static_cast<long long>(expression); \
    if (want != got) {                                                                                 \
      std::fprintf(stderr, "line %d: %s: %lld instead of %lld\n", __LINE__, #expression, got, want);   \
      std::_Exit(92);                                                                                  \
    }                                                                                                  \
  } while (0)
#define OK(expression) CHECK_EQUAL(0, expression)

// Device 0 opened, its context current.
struct Device {
  explicit Device(int ordinal = 0) {
    OK(cu("cuInit", 0U));
    OK(cu("cuDeviceGet", &device, ordinal));
    OK(cu("cuDevicePrimaryCtxRetain", &context, device));
    make_current();
  }
  void make_current() const { OK(cu("cuCtxSetCurrent", context)); }
  void close() const {
    OK(cu("cuCtxSetCurrent", static_cast<void*>(nullptr)));
    OK(cu("cuDevicePrimaryCtxRelease_v2", device));
  }
  int device = 0;
  void* context = nullptr;
};
inline void* make_stream() {
  void* stream = nullptr;
  OK(cu("cuStreamCreateWithPriority", &stream, 1U, 0));
  return stream;
}
inline void wait(void* stream) { OK(cu("cuStreamSynchronize", stream)); }
inline void destroy_stream(void* stream) { OK(cu("cuStreamDestroy_v2", stream)); }
inline std::uint64_t allocate(std::size_t bytes) {
  std::uint64_t pointer = 0;
  OK(cu("cuMemAlloc_v2", &pointer, bytes));
  return pointer;
}
inline void release(std::uint64_t pointer) { OK(cu("cuMemFree_v2", pointer)); }
template <typename T>
std::uint64_t upload(const std::vector<T>& values, void* stream) {
  const std::uint64_t pointer = allocate(values.size() * sizeof(T));
  OK(cu("cuMemcpyHtoDAsync_v2", pointer, static_cast<const void*>(values.data()), values.size() * sizeof(T), stream));
  wait(stream);
  return pointer;
}
template <typename T>
std::vector<T> download(std::uint64_t pointer, std::size_t count, void* stream) {
  std::vector<T> values(count);
  OK(cu("cuMemcpyDtoHAsync_v2", static_cast<void*>(values.data()), pointer, count * sizeof(T), stream));
  wait(stream);
  return values;
}

class LibraryProcess : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "fast"); }

  using Variables = std::vector<std::pair<const char*, const char*>>;
  nlohmann::json run(const std::function<void()>& program, const Variables& more = {}) {
    EXPECT_EXIT(
        {
          ::setenv("SIM_REPORT", report_.c_str(), 1);
          for (const auto& [name, value] : more) ::setenv(name, value, 1);
          program();
          std::exit(0);
        },
        ::testing::ExitedWithCode(0), "");
    std::ifstream file(report_);
    return nlohmann::json::parse(file, nullptr, false);
  }
  // "race,bad-handle": the kinds of the violations, in their order.
  static std::string kinds(const nlohmann::json& report) {
    std::string text;
    if (!report.is_object()) return "no report";
    for (const auto& v : report.at("violations")) {
      text += (text.empty() ? "" : ",") + v.at("kind").get<std::string>();
    }
    return text;
  }
  void expect_clean(const std::function<void()>& program, const Variables& more = {}) {
    const nlohmann::json report = run(program, more);
    EXPECT_EQ(kinds(report), "");
    if (!report.is_object()) return;
    EXPECT_EQ(report.at("leaks"), nlohmann::json::array());
  }

  const anyaccel::TemporaryFolder folder_{"report"};
  const std::string report_ = folder_.file("report.json");
};

}  // namespace sim_test
