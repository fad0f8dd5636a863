// Plugins as files: the good ones load, the broken ones (tests/plugins) give one clear error and never a crash.
#include <gtest/gtest.h>

#include <string>

#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "conformance/suite.h"
#include "runtime/driver/host_services.h"
#include "runtime/layers/layers.h"
#include "this_build.h"

namespace anyaccel {
namespace {

std::string file_of(const std::string& name) { return test::built("tests/plugins/") + name + ".so"; }

class BrokenPlugin : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(BrokenPlugin, IsRefusedByName) {
  const auto [name, reason] = GetParam();
  try {
    load_plugin(file_of(name));
    FAIL() << name << " was loaded";
  } catch (const UnavailableError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(file_of(name)), std::string::npos) << text;
    EXPECT_NE(text.find(reason), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BrokenPlugin,
    ::testing::Values(std::pair("not_a_library", "shared library"), std::pair("no_entry", AA_DRIVER_QUERY_SYMBOL),
                      std::pair("wrong_major", "8.3"),
                      std::pair("version_1", "it speaks version 1.3 of the plugin interface; this program speaks 2.0"),
                      std::pair("no_common_version", "2.0"), std::pair("garbage_table", "this host speaks version"),
                      std::pair("missing_required", "mem_alloc, stream_synchronize"),
                      std::pair("throws_from_query", "thrown by the query function"),
                      std::pair("data_entry", "is data, not a function"),
                      std::pair("untyped_entry", "is data, not a function"), std::pair("no_such_file", "no such file")),
    [](const auto& info) { return info.param.first; });

TEST(Plugins, BadProbesAreUnusable) {
  const Candidate garbage = probe_driver(load_plugin(file_of("garbage_probe")));
  EXPECT_EQ(garbage.state, AA_PROBE_UNUSABLE);
  EXPECT_NE(garbage.reason.find("77"), std::string::npos) << garbage.reason;
  const Candidate throwing = probe_driver(load_plugin(file_of("throws_from_probe")));
  EXPECT_EQ(throwing.state, AA_PROBE_UNUSABLE);
  EXPECT_FALSE(throwing.reason.empty());
}

TEST(Plugins, AnAbsentDeviceIsToldInThePluginsWords) {
  const LoadedDriver driver = load_plugin(file_of("cpp_driver"));
  const Candidate candidate = probe_driver(driver);
  EXPECT_EQ(candidate.state, AA_PROBE_ABSENT);
  EXPECT_EQ(candidate.reason, "no device node /dev/unicorn0");
  aa_initialize_params params{};
  params.struct_size = sizeof(params);
  aa_instance* instance = nullptr;
  const StatusRef status(driver.table->initialize(&params, &instance));
  EXPECT_EQ(status.code(), AA_UNAVAILABLE);
  EXPECT_NE(status.message().find("libunicorn"), std::string_view::npos);
}

TEST(Plugins, OlderTablesWorkAsFarAsTheyGo) {
  const LoadedDriver driver = load_plugin(file_of("short_table"));
  EXPECT_EQ(driver.table->struct_size, sizeof(aa_driver));
  aa_event* event = nullptr;
  EXPECT_EQ(StatusRef(driver.table->event_create(nullptr, 0, &event)).code(), AA_UNIMPLEMENTED);
  EXPECT_EQ(probe_driver(driver).state, AA_PROBE_UNUSABLE);
}

TEST(Plugins, TheMinimalOnePassesConformance) {
  const LoadedDriver driver = load_plugin(file_of("minimal"));
  set_log_level(LogLevel::off);
  for (const char* layers : {"", "validate"}) {
    const abi::DriverCalls* table = apply_layers(driver.table, layers);
    for (const auto& result : conformance::run_conformance(table, host_services()).cases) {
      EXPECT_NE(result.outcome, conformance::Outcome::fail)
          << result.group << "." << result.name << ": " << result.message;
    }
  }
  set_log_level(LogLevel::warning);
}

}  // namespace
}  // namespace anyaccel
