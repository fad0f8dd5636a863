// Helpers that the tests of xpu over Level Zero share: child processes that open the simulated driver through the
// system's real loader, with its validation layer on, and the driver's table with every status checked.
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

#include "accelerators/xpu/xpu_driver.h"
#include "anyaccel/abi/compiler.h"
#include "anyaccel/abi/graph.h"
#include "ops/op_build_support.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"
#include "this_build.h"

namespace anyaccel::test {

inline std::string simulated_driver() { return test::built("simulators/libze_sim.so"); }

// Empty when these tests can run; else what is missing.
inline std::string level_zero_missing() {
  if (!std::filesystem::exists(simulated_driver())) return simulated_driver() + " was not built";
  for (const char* folder :
       {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"}) {
    if (std::filesystem::exists(std::string(folder) + "/libze_loader.so.1")) return {};
  }
  return "libze_loader.so.1 (Debian package libze1) is not installed";
}

class LevelZero : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = level_zero_missing(); !missing.empty()) GTEST_SKIP() << missing;
  }
};

inline std::vector<unsigned char> bytes_of(size_t size, unsigned seed) {
  std::vector<unsigned char> data(size);
  uint32_t state = seed * 2654435761u + 1;
  for (unsigned char& byte : data) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<unsigned char>(state >> 24);
  }
  return data;
}

// Failed expectations of the running test so far.
inline int failures() {
  const ::testing::TestResult& result = *::testing::UnitTest::GetInstance()->current_test_info()->result();
  int count = 0;
  for (int i = 0; i < result.total_part_count(); ++i) count += result.GetTestPartResult(i).failed();
  return count;
}

using Environment = std::vector<std::pair<std::string, std::string>>;

// A child process of this one, which has not opened Level Zero: `body` runs there, its failed expectations are printed and
// fail the test here.
struct Child {
  std::string output;     // both streams
  nlohmann::json report;  // of the simulator; null when none was written

  explicit Child(const Environment& environment, const std::function<void()>& body) {
    TemporaryFolder folder;
    const std::string output_file = (folder.path() / "output").string();
    const std::string report_file = (folder.path() / "report").string();
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      if (!std::freopen(output_file.c_str(), "w", stdout)) _exit(3);
      dup2(fileno(stdout), STDERR_FILENO);
      for (const char* name : {"ZE_AFFINITY_MASK", "SIM_FAULT", "SIM_DEVICES", "SIM_SEED", "SIM_LEVEL_ZERO_VERSION"}) {
        unsetenv(name);
      }
      setenv("ANYACCEL_XPU_RUNTIME", "level_zero", 1);
      setenv("ZE_ENABLE_ALT_DRIVERS", simulated_driver().c_str(), 1);
      // Not ZE_ENABLE_HANDLE_LIFETIME: it takes immediate command lists for closed ones (from 1.11 on, before which it does nothing).
      for (const char* name :
           {"ZE_ENABLE_VALIDATION_LAYER", "ZE_ENABLE_PARAMETER_VALIDATION", "ZEL_ENABLE_BASIC_LEAK_CHECKER"}) {
        setenv(name, "1", 1);
      }
      setenv("SIM_REPORT", report_file.c_str(), 1);
      for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
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
  void expect_clean() const {
    ASSERT_TRUE(report.is_object()) << output;
    EXPECT_TRUE(report["violations"].empty()) << report["violations"].dump(1);
    EXPECT_TRUE(report["leaks"].empty()) << report["leaks"].dump(1);
  }
};

inline const abi::DriverCalls& xpu_table() {
  static const abi::DriverCalls* table = complete_table(
      anyaccel_xpu_driver_query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services()), "built in");
  return *table;
}

inline void ok(aa_status* status, const char* what = "") {
  const StatusRef taken(status);
  EXPECT_TRUE(taken.ok()) << what << ": " << taken.text();
}
// The code and the message of a status that is expected to be an error.
inline std::pair<aa_code, std::string> error(aa_status* status) {
  const StatusRef taken(status);
  return {taken.code(), std::string(taken.message())};
}

inline aa_probe probe() {
  aa_probe found{};
  found.struct_size = sizeof(found);
  ok(xpu_table().probe(&found), "probe");
  return found;
}

// An opened device; everything made from it must be gone before it.
class OpenedDevice {
 public:
  explicit OpenedDevice(int32_t index = 0) {
    aa_initialize_params params{};
    params.struct_size = sizeof(params);
    ok(table.initialize(&params, &instance), "initialize");
    if (instance) ok(table.device_open(instance, index, &device), "device_open");
    if (!device) {
      std::fflush(nullptr);
      _exit(4);  // nothing further can be tested, and nothing would explain more
    }
  }
  ~OpenedDevice() {
    ok(table.device_close(device), "device_close");
    ok(table.shutdown(instance), "shutdown");
  }
  OpenedDevice(const OpenedDevice&) = delete;
  OpenedDevice& operator=(const OpenedDevice&) = delete;

  aa_stream* stream() const {
    aa_stream* made = nullptr;
    ok(table.stream_create(device, 0, AA_STREAM_DEFAULT, &made), "stream_create");
    return made;
  }
  void* memory(size_t size, int32_t kind = AA_MEMORY_DEVICE) const {
    void* pointer = nullptr;
    ok(table.mem_alloc(device, kind, size, &pointer), "mem_alloc");
    return pointer;
  }
  void free(void* pointer, size_t size, int32_t kind = AA_MEMORY_DEVICE) const {
    ok(table.mem_free(device, kind, pointer, size), "mem_free");
  }
  template <class Table>
  abi::Calls<Table> extension(const char* name) const {
    const void* found = nullptr;
    ok(table.query_extension(instance, name, 1, &found), name);
    return abi::calls(*static_cast<const Table*>(found));
  }

  const abi::DriverCalls& table = xpu_table();
  aa_instance* instance = nullptr;
  aa_device* device = nullptr;
};

}  // namespace anyaccel::test
