// Tests which accelerator detection takes in each of the 512 combinations of the nine being present or not. Vendors' runtimes are the
// simulated ones; a plugin stands for xpu.external; the CPU, which every machine has, is taken away at its table, for which the program
// is linked with --wrap (CMakeLists.txt).
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "ops/op_build_support.h"
#include "this_build.h"

namespace {
bool cpu_is_there = true;
}  // namespace

extern "C" {
const aa_driver* __real_anyaccel_cpu_driver_query(uint32_t, uint32_t, const aa_host*);  // NOLINT: the linker's name
const aa_driver* __wrap_anyaccel_cpu_driver_query(uint32_t min, uint32_t max, const aa_host* host) {  // NOLINT
  static aa_driver table;
  static const aa_driver* real;
  real = __real_anyaccel_cpu_driver_query(min, max, host);
  table = *real;
  table.probe = [](void* self, aa_probe* out) -> aa_status* {
    if (aa_status* failed = real->probe(self, out)) return failed;
    if (cpu_is_there) return nullptr;
    out->state = AA_PROBE_ABSENT;
    out->device_count = 0;
    std::strcpy(out->reason, "taken away by a test");
    return nullptr;
  };
  return &table;
}
}

namespace anyaccel {
namespace {

namespace fs = std::filesystem;

// One of the nine, and how it becomes present: its variable names its simulated library, or its plugin's file.
struct Present {
  const char* name;      // what detection calls it
  const char* variable;  // null: a plugin, or the CPU
  std::string value;
  std::string library;  // what has to be there
};

const std::string simulators = test::built("simulators/");

// In the order in which the first one present is taken; but xpu yields to cuda.
const std::array<Present, 9>& all() {
  static const std::array<Present, 9> nine{{
      {"xpu.external", nullptr, "xpu_90.so", ""},
      {"xpu", "ZE_ENABLE_ALT_DRIVERS", simulators + "libze_sim.so", simulators + "libze_sim.so"},
      {"npu", "ANYACCEL_NPU_LIBRARY_PATH", simulators + "ascend", simulators + "ascend/libascendcl.so"},
      {"sdaa", "ANYACCEL_SDAA_LIBRARY_PATH", simulators + "tecorigin", simulators + "tecorigin/libsdaart.so"},
      {"mps", "ANYACCEL_MPS_LIBRARY_PATH", simulators + "apple", simulators + "apple/Metal"},
      {"hpu", "ANYACCEL_HPU_LIBRARY_PATH", simulators + "habana", simulators + "habana/libSynapse.so"},
      {"mlu", "ANYACCEL_MLU_LIBRARY_PATH", simulators + "neuware", simulators + "neuware/libcnrt.so"},
      {"cuda", "ANYACCEL_CUDA_LIBRARY_PATH", simulators + "cuda", simulators + "cuda/libcuda.so.1"},
      {"cpu", nullptr, "", ""},
  }};
  return nine;
}
constexpr size_t xpu = 1, cuda = 7, cpu = 8;

bool is_in(unsigned combination, size_t number) { return (combination >> number & 1) != 0; }

class DetectionCombinations : public testing::Test {
 protected:
  DetectionCombinations() {
    set_log_level(LogLevel::error);  // "Setting accelerator to CPU"
    for (const Present& one : all()) {
      if (one.variable || one.value.empty()) continue;
      const fs::path file = plugins_.path() / one.value;
      fs::copy_file(test::built("tests/plugins/named.so"), file);
      fs::permissions(file, fs::perms(0755));
    }
  }
  ~DetectionCombinations() override {
    cpu_is_there = true;
    make_present(0);
    reset_accelerator();
  }

  void make_present(unsigned combination) const {
    reset_accelerator();
    std::string files;
    for (size_t i = 0; i < all().size(); ++i) {
      const Present& one = all()[i];
      if (one.variable) {
        is_in(combination, i) ? setenv(one.variable, one.value.c_str(), 1) : unsetenv(one.variable);
      } else if (i != cpu && is_in(combination, i)) {
        files += (files.empty() ? "" : ":") + (plugins_.path() / one.value).string();
      }
    }
    setenv("ANYACCEL_PLUGIN_PATH", files.c_str(), 1);
    cpu_is_there = is_in(combination, cpu);
  }

  static std::string name_of(unsigned combination) {
    std::string text;
    for (size_t i = 0; i < all().size(); ++i) {
      if (is_in(combination, i)) text += (text.empty() ? "" : " ") + std::string(all()[i].name);
    }
    return text.empty() ? "none" : text;
  }

  static std::string expected(unsigned combination) {
    for (size_t i = 0; i < all().size(); ++i) {
      if (is_in(combination, i) && (i != xpu || !is_in(combination, cuda))) return all()[i].name;
    }
    return "";
  }

  std::string refusal;  // detection's, where it takes none

  std::string detected() {
    try {
      get_accelerator();
      return detection_report().chosen;
    } catch (const UnavailableError& error) {
      const std::string text = refusal = error.what();
      EXPECT_EQ(text.rfind("no accelerator can be used on this machine. Tried:", 0), 0u) << text;
      for (const Present& one : all()) {
        const std::string line = "\n  " + std::string(one.name) + ": ";
        if (!std::strstr(one.name, ".external")) {
          EXPECT_NE(text.find(line), std::string::npos) << text;
        }
      }
      return "";
    }
  }

 private:
  const test::TemporaryFolder plugins_;
  const test::Variable home_{"HOME", plugins_.path().string()};
  const test::Variable forced_{"DS_ACCELERATOR", std::nullopt};
  const test::Variable runtime_{"ANYACCEL_XPU_RUNTIME", std::nullopt};
  const test::Variable icd_{"OCL_ICD_VENDORS", plugins_.path().string()};
};

TEST_F(DetectionCombinations, TheFirstPresentIsTaken) {
  for (const Present& one : all()) {
    if (!one.library.empty() && access(one.library.c_str(), R_OK) != 0) {
      GTEST_SKIP() << one.library << " was not built";
    }
  }
  make_present(1u << xpu);
  if (detected() != "xpu") GTEST_SKIP() << "xpu is not usable on its simulated driver: is libze_loader.so.1 installed?";
  make_present(1u << cpu);
  for (const Candidate& candidate : probe_all_accelerators().candidates) {
    if (candidate.state == AA_PROBE_USABLE && candidate.name != "cpu" && candidate.name != "null") {
      GTEST_SKIP() << "this machine has a real " << candidate.name;
    }
  }
  for (unsigned combination = 0; combination < 512; ++combination) {
    make_present(combination);
    refusal.clear();
    ASSERT_EQ(detected(), expected(combination)) << name_of(combination) << refusal;
  }
  // Detection stops at the one it takes; `info` looks at all of them.
  for (const unsigned combination : {0b111111111u, 0b101010101u, 0b010101010u, 0b100000010u, 0b110000000u}) {
    make_present(combination | 1u << cpu);
    for (const Candidate& candidate : probe_all_accelerators().candidates) {
      for (size_t i = 0; i < all().size(); ++i) {
        if (candidate.name != all()[i].name) continue;
        const bool there = i == cpu || is_in(combination, i);
        EXPECT_EQ(candidate.state == AA_PROBE_USABLE, there) << candidate.name << ": " << candidate.reason;
        EXPECT_EQ(candidate.passed_over, i == xpu && there && is_in(combination, cuda)) << candidate.name;
      }
    }
  }
  // DS_ACCELERATOR selects each one that is present, and is an error for one that is not.
  for (size_t i = 0; i < all().size(); ++i) {
    const test::Variable asked("DS_ACCELERATOR", all()[i].name);
    make_present(1u << i);
    EXPECT_EQ(detected(), all()[i].name);
    make_present(0b111111111u & ~(1u << i));
    EXPECT_THROW(get_accelerator(), UnavailableError) << all()[i].name;
  }
}

}  // namespace
}  // namespace anyaccel
