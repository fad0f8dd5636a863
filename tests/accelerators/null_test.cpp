// The null driver passes the conformance suite, bare and behind every layer.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>

#include "accelerators/null/null_driver.h"
#include "anyaccel/log.h"
#include "conformance/suite.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"
#include "runtime/layers/layers.h"

namespace anyaccel {
namespace {

class NullDriver : public ::testing::TestWithParam<const char*> {};

TEST_P(NullDriver, PassesConformance) {
  const aa_driver* raw = anyaccel_null_driver_query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services());
  ASSERT_NE(raw, nullptr);
  const abi::DriverCalls* table = apply_layers(complete_table(raw, "built in"), GetParam());
  set_log_level(LogLevel::off);  // the suite provokes errors
  ::testing::internal::CaptureStderr();
  const auto results = conformance::run_conformance(table, host_services()).cases;
  ::testing::internal::GetCapturedStderr();
  set_log_level(LogLevel::warning);
  std::map<conformance::Outcome, int> counts;
  for (const auto& result : results) {
    ++counts[result.outcome];
    EXPECT_NE(result.outcome, conformance::Outcome::fail)
        << result.group << "." << result.name << ": " << result.message;
    if (result.outcome != conformance::Outcome::pass) {
      EXPECT_FALSE(result.message.empty()) << result.group << "." << result.name;
    }
  }
  EXPECT_EQ(results.size(), conformance::conformance_cases().size());
  EXPECT_GT(counts[conformance::Outcome::pass], 40);
  EXPECT_EQ(counts[conformance::Outcome::unavailable], 3);  // its memory is the host's: not used up, not counted
  EXPECT_EQ(live_status_count(), 0) << "statuses were not released";
}

INSTANTIATE_TEST_SUITE_P(Layers, NullDriver, ::testing::Values("", "validate", "trace", "validate,trace"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, ',');
                           return name.empty() ? std::string("none") : name;
                         });

TEST(Conformance, FilterChoosesCases) {
  const aa_driver* raw = anyaccel_null_driver_query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services());
  const auto results = conformance::run_conformance(raw, host_services(), "copies.in_order,fills.").cases;
  ASSERT_EQ(results.size(), 4u);
  for (const auto& result : results) EXPECT_TRUE(result.group == "fills" || result.name == "in_order");
  EXPECT_TRUE(conformance::run_conformance(raw, host_services(), "no such case").cases.empty());
}

// The suite must find what is wrong: a driver whose copies do nothing.
TEST(Conformance, FindsBrokenDrivers) {
  aa_driver broken = *anyaccel_null_driver_query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services());
  broken.copy_async = [](void*, aa_stream*, const aa_copy*) -> aa_status* { return nullptr; };
  broken.event_query = [](void*, aa_event*, int32_t* out_done) -> aa_status* {
    *out_done = 2;
    return nullptr;
  };
  broken.stream_native = nullptr;
  std::map<std::string, conformance::Outcome> outcomes;
  for (const auto& result : conformance::run_conformance(&broken, host_services()).cases) {
    outcomes[result.group + "." + result.name] = result.outcome;
  }
  EXPECT_EQ(outcomes["copies.there_and_back"], conformance::Outcome::fail);
  EXPECT_EQ(outcomes["events.never_recorded_is_complete"], conformance::Outcome::fail);
  EXPECT_EQ(outcomes["streams.native_handle_answers"], conformance::Outcome::unsupported);
  EXPECT_EQ(outcomes["memory.alloc_is_aligned_and_apart"], conformance::Outcome::pass);
}

TEST(Conformance, SkipsWhatIsNotThere) {
  aa_driver absent = *anyaccel_null_driver_query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services());
  absent.probe = [](void*, aa_probe* probe) -> aa_status* {
    probe->state = AA_PROBE_ABSENT;
    probe->device_count = 0;
    if (probe->struct_size == sizeof(aa_probe)) {
      std::snprintf(probe->reason, sizeof(probe->reason), "no /dev/unicorn");
    }
    return nullptr;
  };
  int skipped = 0;
  for (const auto& result : conformance::run_conformance(&absent, host_services()).cases) {
    EXPECT_NE(result.outcome, conformance::Outcome::fail) << result.group << "." << result.name << result.message;
    if (result.outcome != conformance::Outcome::unavailable) continue;
    ++skipped;
    EXPECT_NE(result.message.find("/dev/unicorn"), std::string::npos);
  }
  EXPECT_GT(skipped, 40);
}

}  // namespace
}  // namespace anyaccel
