// Helpers that the tests of the simulated CUDA driver share. Each test is a process of its own, because the driver
// reads its environment once; it binds the functions that the product uses (gpu_api.h) the way a program does, by
// cuGetProcAddress.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "accelerators/cuda/platform/gpu_api.h"
#include "base/files/files.h"
#include "tests/simulators/check.h"
#include "tests/this_build.h"

namespace cuda_face {

using namespace anyaccel::cuda;  // NOLINT: the table's types

#define CU_OK(call)                                                          \
  do {                                                                       \
    const int cu_result = (call);                                            \
    if (cu_result != 0) {                                                    \
      std::fprintf(stderr, "line %d: %s: %d\n", __LINE__, #call, cu_result); \
      std::_Exit(91);                                                        \
    }                                                                        \
  } while (0)
#define CU_IS(expected, call)                                                                       \
  do {                                                                                              \
    const int cu_result = (call);                                                                   \
    if (cu_result != (expected)) {                                                                  \
      std::fprintf(stderr, "line %d: %s: %d, not %d\n", __LINE__, #call, cu_result, int{expected}); \
      std::_Exit(92);                                                                               \
    }                                                                                               \
  } while (0)

inline void* library() {
  static void* const opened = [] {
    void* found = ::dlopen(anyaccel::test::built("simulators/cuda/libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (found == nullptr) std::fprintf(stderr, "%s\n", ::dlerror());
    return found;
  }();
  CHECK(opened != nullptr);
  return opened;
}
// A function by its exported name; null: there is none.
template <typename Function>
Function* symbol(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library(), name));
}
using GetAddress = int(const char*, void**, int, std::uint64_t, int*);
inline void* address_of(const char* name, int version, int* status = nullptr) {
  void* function = nullptr;
  auto* look_up = symbol<GetAddress>("cuGetProcAddress_v2");
  CHECK(look_up != nullptr);
  CU_OK(look_up(name, &function, version, 1, status));
  return function;
}
// Every function of the product's table; those that are missing stay null.
inline const Api& api() {
  static const Api bound = [] {
    Api all;
#define BIND(need, member, name, since, hip, parameters) \
  all.member = reinterpret_cast<decltype(all.member)>(address_of(name, since));
    ANYACCEL_GPU_FUNCTIONS(BIND)
#undef BIND
    return all;
  }();
  return bound;
}

inline DevicePointer device_address(const void* pointer) { return reinterpret_cast<DevicePointer>(pointer); }

// A started driver with a current context.
struct Program {
  ContextHandle context = nullptr;

  explicit Program(int device = 0) {
    CU_OK(api().init(0));
    CU_OK(api().primary_context_retain(&context, device));
    CU_OK(api().context_set_current(context));
  }
  void end(int device = 0) { CU_OK(api().primary_context_release(device)); }

  static DevicePointer allocate(std::size_t bytes) {
    DevicePointer pointer = 0;
    CU_OK(api().memory_alloc(&pointer, bytes));
    return pointer;
  }
  template <typename T = char>
  static T* pinned(std::size_t count) {
    void* pointer = nullptr;
    CU_OK(api().host_alloc(&pointer, count * sizeof(T), 0));
    return static_cast<T*>(pointer);
  }
  static StreamHandle stream(bool blocking = false) {
    StreamHandle stream = nullptr;
    CU_OK(api().stream_create(&stream, blocking ? 0 : stream_non_blocking, 0));
    return stream;
  }
  static EventHandle event(unsigned flags = event_disable_timing) {
    EventHandle event = nullptr;
    CU_OK(api().event_create(&event, flags));
    return event;
  }
  static ModuleHandle module(const std::string& kernels = "kernel sim_scale\n") {
    const std::string image = "SIMCUBIN\narch sm_90\n" + kernels;
    ModuleHandle module = nullptr;
    CU_OK(api().module_load(&module, image.c_str(), 0, nullptr, nullptr));
    return module;
  }
  static FunctionHandle function(ModuleHandle module, const char* name = "sim_scale") {
    FunctionHandle function = nullptr;
    CU_OK(api().module_function(&function, module, name));
    return function;
  }
  // sim_scale(y, x, factor, count)
  static int scale(FunctionHandle function, StreamHandle stream, DevicePointer y, DevicePointer x, float factor,
                   std::int64_t count) {
    void* arguments[] = {&y, &x, &factor, &count};
    return api().launch_kernel(function, static_cast<unsigned>(count + 31) / 32, 1, 1, 32, 1, 1, 0, stream, arguments,
                               nullptr);
  }
  static int copy(DevicePointer to, const void* from, std::size_t bytes, StreamHandle stream) {
    return api().copy_async(to, device_address(from), bytes, stream);
  }
  static int copy(void* to, DevicePointer from, std::size_t bytes, StreamHandle stream) {
    return api().copy_async(device_address(to), from, bytes, stream);
  }
};

// Holds a stream until it is opened: work behind it has surely not run, whatever the timing.
class Gate {
 public:
  explicit Gate(StreamHandle stream) {
    CU_OK(api().launch_host_function(
        stream,
        [](void* user) {
          while (!static_cast<Gate*>(user)->open_) std::this_thread::yield();
        },
        this));
  }
  void open() { open_ = true; }

 private:
  std::atomic<bool> open_ = false;
};

using Environment = std::vector<std::pair<const char*, const char*>>;

class CudaFace : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "fast"); }

  // Runs `program` in a child, and returns the report it left.
  nlohmann::json run(const std::function<void()>& program, const Environment& more = {}) {
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
  static std::string kinds(const nlohmann::json& report) {
    std::string text;
    for (const auto& v : report.at("violations")) {
      text += (text.empty() ? "" : ",") + v.at("kind").get<std::string>();
    }
    return text;
  }
  std::string kinds_of(const std::function<void()>& program, const Environment& more = {}) {
    return kinds(run(program, more));
  }

  const anyaccel::TemporaryFolder folder_{"report"};
  const std::string report_ = folder_.file("report.json");
};

}  // namespace cuda_face
