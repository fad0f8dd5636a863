// Helpers that the tests of cuda on the simulated driver share: child processes, each with a simulator of its own,
// and the driver's table with every status checked.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "accelerators/cuda/cuda_driver.h"
#include "accelerators/cuda/platform/platform.h"
#include "anyaccel/abi/ceilings.h"
#include "anyaccel/abi/graph.h"
#include "anyaccel/abi/host_memory.h"
#include "ops/op_build_support.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"
#include "this_build.h"

namespace anyaccel::cuda_test {

inline const std::string simulated_libraries = test::built("simulators/cuda");

// Empty when these tests can run; else what is missing.
inline std::string simulator_missing() {
  const std::string driver = simulated_libraries + "/libcuda.so.1";
  return std::filesystem::exists(driver) ? "" : driver + " was not built";
}

inline constexpr size_t mebibyte = size_t{1} << 20;

using Settings = std::vector<std::pair<std::string, std::string>>;

// Failed expectations of the running test so far.
inline int failures() {
  const ::testing::TestResult& result = *::testing::UnitTest::GetInstance()->current_test_info()->result();
  int count = 0;
  for (int i = 0; i < result.total_part_count(); ++i) count += result.GetTestPartResult(i).failed();
  return count;
}

// Runs `body` in a child of the calling process; whether it ended without failed expectations.
inline bool forked(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    const int before = failures();
    body();
    std::fflush(nullptr);
    _exit(failures() > before ? 1 : 0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// A child process of this one, which has not opened the simulated driver: `body` runs there, its failed expectations are
// printed and fail the test here.
struct Simulated {
  std::string output;     // both streams
  nlohmann::json report;  // of the simulator; null when none was written

  Simulated(const Settings& settings, const std::function<void()>& body) {
    test::TemporaryFolder folder;
    const std::string output_file = (folder.path() / "output").string();
    const std::string report_file = (folder.path() / "report").string();
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      if (!std::freopen(output_file.c_str(), "w", stdout)) _exit(3);
      dup2(fileno(stdout), STDERR_FILENO);
      for (const char* name :
           {"SIM_FAULT", "SIM_DEVICES", "SIM_MEMORY", "SIM_SEED", "SIM_CUDA_ARCH", "SIM_CUDA_VERSION", "SIM_STRICT",
            "CUDA_VISIBLE_DEVICES", "ANYACCEL_CUDA_DEVICES", "DS_ALLOW_DEPRECATED_FP16"}) {
        unsetenv(name);
      }
      setenv("ANYACCEL_CUDA_LIBRARY_PATH", simulated_libraries.c_str(), 1);
      setenv("ANYACCEL_CACHE_DIR", (folder.path() / "cache").c_str(), 1);
      setenv("SIM_REPORT", report_file.c_str(), 1);
      setenv("SIM_MEMORY", "256m", 1);
      for (const auto& [name, value] : settings) setenv(name.c_str(), value.c_str(), 1);
      const int before = failures();
      body();
      std::exit(failures() > before ? 1 : 0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    std::ifstream said(output_file);
    output.assign(std::istreambuf_iterator<char>(said), {});
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << (WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status)) + "\n" : "") << output;
    std::ifstream written(report_file);
    if (written) report = nlohmann::json::parse(written, nullptr, false);
  }

  // No rule of the simulator was broken, and nothing is left.
  const Simulated& clean() const {
    EXPECT_TRUE(report.is_object()) << output;
    if (!report.is_object()) return *this;
    EXPECT_TRUE(report["violations"].empty()) << report["violations"].dump(1) << output;
    EXPECT_TRUE(report["leaks"].empty()) << report["leaks"].dump(1) << output;
    return *this;
  }
  int calls(const std::string& function) const { return report.is_object() ? report["calls"].value(function, 0) : -1; }
};

inline const abi::DriverCalls& cuda_table() {
  static const abi::DriverCalls* table = complete_table(
      anyaccel_cuda_driver_query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services()), "built in");
  return *table;
}

inline void ok(aa_status* status, const char* what = "") {
  const StatusRef taken(status);
  EXPECT_TRUE(taken.ok()) << what << ": " << taken.text();
}
// A status that is expected to be an error of this code; its message.
inline std::string refused(aa_status* status, aa_code code) {
  const StatusRef taken(status);
  EXPECT_EQ(taken.code(), code) << taken.text();
  return std::string(taken.message());
}
inline bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
#define EXPECT_SAYS(text, part)                  \
  do {                                           \
    const std::string said_ = std::string(text); \
    EXPECT_TRUE(says(said_, part)) << said_;     \
  } while (false)

// The started driver, and its devices, which are opened at first use. All objects made from them must be destroyed
// first.
class Opened {
 public:
  Opened() {
    aa_initialize_params params{};
    params.struct_size = sizeof(params);
    ok(table.initialize(&params, &instance), "initialize");
    int32_t count = 0;
    if (instance) ok(table.device_count(instance, &count), "device_count");
    if (count <= 0) {
      std::fflush(nullptr);
      _exit(4);  // nothing further can be tested, and nothing would explain more
    }
    devices_.resize(static_cast<size_t>(count));
  }
  ~Opened() {
    for (aa_device* device : devices_) {
      if (device) ok(table.device_close(device), "device_close");
    }
    ok(table.shutdown(instance), "shutdown");
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  size_t count() const { return devices_.size(); }
  aa_device* device(size_t index = 0) {
    if (!devices_[index]) ok(table.device_open(instance, static_cast<int32_t>(index), &devices_[index]), "device_open");
    return devices_[index];
  }
  aa_stream* stream(size_t index = 0) {
    aa_stream* made = nullptr;
    ok(table.stream_create(device(index), 0, AA_STREAM_NON_BLOCKING, &made), "stream_create");
    return made;
  }
  aa_event* event(size_t index = 0, uint32_t flags = AA_EVENT_DEFAULT) {
    aa_event* made = nullptr;
    ok(table.event_create(device(index), flags, &made), "event_create");
    return made;
  }
  char* memory(size_t size, int32_t kind = AA_MEMORY_DEVICE, size_t index = 0) {
    void* pointer = nullptr;
    ok(table.mem_alloc(device(index), kind, size, &pointer), "mem_alloc");
    return static_cast<char*>(pointer);
  }
  void free(void* pointer, size_t size, int32_t kind = AA_MEMORY_DEVICE, size_t index = 0) {
    ok(table.mem_free(device(index), kind, pointer, size), "mem_free");
  }
  void upload(aa_stream* stream, void* to, const void* from, size_t size) {
    ok(table.copy_async(stream, to, from, size, AA_COPY_HOST_TO_DEVICE), "copy to the device");
    ok(table.stream_synchronize(stream), "stream_synchronize");
  }
  std::vector<unsigned char> download(aa_stream* stream, const void* from, size_t size) {
    std::vector<unsigned char> bytes(size);
    ok(table.copy_async(stream, bytes.data(), from, size, AA_COPY_DEVICE_TO_HOST), "copy from the device");
    ok(table.stream_synchronize(stream), "stream_synchronize");
    return bytes;
  }
  aa_memory_info query(const void* pointer) {
    aa_memory_info info{};
    info.struct_size = sizeof(info);
    ok(table.mem_query(instance, pointer, &info), "mem_query");
    return info;
  }
  template <class Table>
  abi::Calls<Table> extension(const char* name) {
    const void* found = nullptr;
    ok(table.query_extension(instance, name, 1, &found), name);
    return abi::calls(*static_cast<const Table*>(found));
  }

  const abi::DriverCalls& table = cuda_table();
  aa_instance* instance = nullptr;

 private:
  std::vector<aa_device*> devices_;
};

}  // namespace anyaccel::cuda_test
