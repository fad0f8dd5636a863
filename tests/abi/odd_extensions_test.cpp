// Extension tables that are short, empty or full of nulls: callers get complete ones, or none, and the accelerator works.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <tuple>

#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"
#include "runtime/layers/layers.h"
#include "this_build.h"

namespace anyaccel {
namespace {

// The code that a function answers to arguments of zeros; the driver's own functions answer AA_DATA_LOSS.
template <auto Member>
struct Call;
template <class Table, class... Args, aa_status* (*Table::*Member)(void*, Args...)>
struct Call<Member> {
  static int32_t code(const Table* table) {
    const StatusRef status((table->*Member)(table->self, Args{}...));
    return status.code();
  }
};

// The extensions that a mode of the plugin offers, and the tables that the host can then use, in the order of the list.
struct Mode {
  const char* name;
  std::string tables;
  friend void PrintTo(const Mode& mode, std::ostream* out) { *out << mode.name; }
};

void check(const Mode& mode, const std::string& layers) {
  setenv("ANYACCEL_TEST_EXTENSIONS", mode.name, 1);
  const LoadedDriver plugin = load_plugin(test::built("tests/plugins/odd_extensions.so"));
  DriverAccelerator accelerator(apply_layers(plugin.table, layers), plugin.origin);

  const std::string_view given = mode.name;
  const auto check_answer = [&](const char* function, int32_t code, bool needed, bool last) {
    const bool there = (given == "short" && !last) || (given == "mixed" && needed);
    if (layers == "validate" && code == AA_INVALID_ARGUMENT) return;  // refused for its arguments of zeros
    EXPECT_EQ(code, there ? AA_DATA_LOSS : AA_UNIMPLEMENTED) << function;
  };
  [[maybe_unused]] constexpr bool required = true, optional = false;
  std::string tables;
#define CHECK_FUNCTION(type, function, need)                                    \
  check_answer(#type "." #function, Call<&type::function>::code(table), (need), \
               offsetof(type, function) + sizeof(void*) == sizeof(type));
#define CHECK_TABLE(member, type, extension_name, version, functions)                                 \
  if (const auto* table = static_cast<const type*>(accelerator.extension(extension_name, version))) { \
    tables += std::string(tables.empty() ? "" : " ") + extension_name;                                \
    EXPECT_EQ(table->struct_size, sizeof(type)) << extension_name;                                    \
    functions(CHECK_FUNCTION)                                                                         \
  }                                                                                                   \
  EXPECT_EQ(accelerator.extension(extension_name, version + 1), nullptr) << extension_name;
  ANYACCEL_EXTENSIONS(CHECK_TABLE)
  EXPECT_EQ(tables, mode.tables);

  // The accelerator works without the missing extensions.
  EXPECT_EQ(accelerator.supports_graphs(), given == "mixed");
  if (given != "mixed") {
    EXPECT_THROW(accelerator.create_graph(), NotImplementedError);
    EXPECT_EQ(accelerator.find_op("copy"), -1);
  }
  EXPECT_EQ(accelerator.communication_backend_version(), "");
  accelerator.range_push("a range");
  accelerator.range_pop();
  const std::vector<float> numbers{1, 2, 3};
  const Tensor there = Tensor::from_host(numbers.data(), Shape{3}, DType::F32, accelerator.device());
  EXPECT_EQ(there.to(DType::F64).to_vector<double>(), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(live_status_count(), 0);
}

class OddExtensions : public ::testing::TestWithParam<std::tuple<Mode, const char*>> {};

// In a process of its own, since the plugin makes its tables once.
TEST_P(OddExtensions, AreCompleteOrAbsent) {
  const auto& [mode, layers] = GetParam();
  EXPECT_EXIT(
      {
        set_log_level(LogLevel::off);
        check(mode, layers);
        std::exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

// A short table lacks its last function; if the host needs that function, the table counts as absent.
INSTANTIATE_TEST_SUITE_P(
    All, OddExtensions,
    ::testing::Combine(::testing::Values(Mode{"empty", "host_memory profiler"}, Mode{"nulls", "host_memory profiler"},
                                         Mode{"short", "host_memory ops compiler profiler collectives"},
                                         Mode{"mixed",
                                              "graph host_memory host_code ops compiler profiler ceilings "
                                              "collectives lazy peer memory_kinds files fault"}),
                       ::testing::Values("", "validate", "trace")),
    [](const auto& info) {
      const std::string layer = std::get<1>(info.param);
      return std::string(std::get<0>(info.param).name) + (layer.empty() ? "" : "_" + layer);
    });

TEST(ExtensionTable, ThatLacksWhatItIsForIsNamed) {
  aa_compiler_table raw{};
  raw.struct_size = sizeof(raw);
  raw.version = 1;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(complete_extension(&raw, "vendor"), nullptr);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("vendor: extension \"compiler\" is not used: its table lacks languages, fingerprint, compile, "
                      "release"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace anyaccel
