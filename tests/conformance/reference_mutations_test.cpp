// The conformance suite is tested: the asynchronous reference driver passes it, also when it holds work back, and fails
// the named case for each of the mistakes that can be put into it (tests/plugins/reference_async/mutations.h).
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/detection.h"
#include "anyaccel/log.h"
#include "conformance/suite.h"
#include "plugins/reference_async/mutations.h"
#include "runtime/driver/host_services.h"
#include "this_build.h"

namespace anyaccel {
namespace {

using conformance::Outcome;

struct Row {
  const char* name;
  const char* noticed_by;
  bool lazy;
};

constexpr Row rows[] = {
#define ANYACCEL_ROW(name, noticed_by) {#name, noticed_by, false},
    REFERENCE_MUTATIONS(ANYACCEL_ROW)
#undef ANYACCEL_ROW
#define ANYACCEL_ROW(name, noticed_by) {#name, noticed_by, true},
        REFERENCE_LAZY_MUTATIONS(ANYACCEL_ROW)
#undef ANYACCEL_ROW
};

// Loaded once. The environment's settings are read in the children, which are the first to call the driver.
const aa_driver& reference_driver() {
  static const LoadedDriver driver = load_plugin(test::built("tests/plugins/reference_async.so"));
  return *driver.table;
}

std::vector<conformance::CaseResult> run(const char* filter, int seconds) {
  set_log_level(LogLevel::off);  // the suite provokes errors
  auto cases = conformance::run_conformance(&reference_driver(), host_services(), filter, {},
                                            {.timeout = std::chrono::seconds(seconds)})
                   .cases;
  set_log_level(LogLevel::warning);
  return cases;
}

class ReferenceDriver : public testing::Test {
 protected:
  void TearDown() override {
    unsetenv("REFERENCE_ASYNC_MUTATION");
    unsetenv("REFERENCE_ASYNC_VENDOR_THREAD");
    unsetenv("ANYACCEL_REFERENCE_ASYNC_OPTIONS");
  }
};

void expect_no_failure() {
  int passed = 0;
  for (const auto& result : run("", 120)) {
    EXPECT_NE(result.outcome, Outcome::fail) << result.group << "." << result.name << ": " << result.message;
    passed += result.outcome == Outcome::pass;
  }
  EXPECT_GT(passed, 120);
}

TEST_F(ReferenceDriver, PassesConformance) { expect_no_failure(); }

TEST_F(ReferenceDriver, PassesConformanceWhileItHoldsWorkBack) {
  setenv("ANYACCEL_REFERENCE_ASYNC_OPTIONS", "lazy=1", 1);
  expect_no_failure();
}

// Drivers that leave out what they may.
TEST_F(ReferenceDriver, PassesConformanceWithoutHostCalls) {
  setenv("ANYACCEL_REFERENCE_ASYNC_OPTIONS", "leaves_out=host_calls", 1);
  bool judged = false;
  for (const auto& result : run("!op.,!growth", 120)) {
    EXPECT_NE(result.outcome, Outcome::fail) << result.group << "." << result.name << ": " << result.message;
    judged = judged || (result.name == "long_work_holds_its_stream" && result.outcome == Outcome::pass);
  }
  EXPECT_TRUE(judged) << "nothing held a stream";
}

TEST_F(ReferenceDriver, PassesConformanceWithCopiesOnly) {
  setenv("ANYACCEL_REFERENCE_ASYNC_OPTIONS", "leaves_out=all", 1);
  for (const auto& result : run("", 120)) {
    EXPECT_NE(result.outcome, Outcome::fail) << result.group << "." << result.name << ": " << result.message;
  }
}

// A vendor's library may start a thread when a probe loads it, which the case names.
TEST_F(ReferenceDriver, AThreadOfTheVendorsIsNamed) {
  setenv("REFERENCE_ASYNC_VENDOR_THREAD", "1", 1);
  bool named = false;
  for (const auto& result : run("probe.", 20)) {
    EXPECT_NE(result.outcome, Outcome::fail) << result.name << ": " << result.message;
    named = named || result.message.find("\"vendor-events\"") != std::string::npos;
  }
  EXPECT_TRUE(named);
}

class Mutations : public ReferenceDriver, public testing::WithParamInterface<Row> {};

TEST_P(Mutations, AreNoticed) {
  setenv("REFERENCE_ASYNC_MUTATION", GetParam().name, 1);
  if (GetParam().lazy) setenv("ANYACCEL_REFERENCE_ASYNC_OPTIONS", "lazy=1", 1);
  const conformance::CaseResult* found = nullptr;
  // Promises are judged by a run of all cases. What hangs is killed soon: it fails either way.
  const bool promise = std::string_view(GetParam().noticed_by).starts_with("promises.");
  std::string filter = GetParam().noticed_by;
  // Memory that a driver keeps after an op shows when it is closed after one.
  if (GetParam().lazy && filter == "life.closes_without_error") filter += ",op.softmax.of_rows";
  // A case that work must not get past a wait looks for it for 20 ms (conformance::Watch). On a busy machine the thread
  // of a driver that does not wait may get no processor for that long, so what is not noticed is looked for again.
  const bool watches = filter.starts_with("order.") || filter.starts_with("many_devices.");
  const int most_runs = watches ? 5 : 1;
  std::vector<conformance::CaseResult> cases;
  for (int runs = 0; runs < most_runs && (!found || found->outcome != Outcome::fail); ++runs) {
    cases = promise ? run("", 120) : run(filter.c_str(), 2);
    found = nullptr;
    for (const auto& result : cases) {
      if (result.group + "." + result.name == GetParam().noticed_by) found = &result;
    }
    ASSERT_NE(found, nullptr) << "there is no case " << GetParam().noticed_by;
  }
  EXPECT_EQ(found->outcome, Outcome::fail) << GetParam().noticed_by << ": " << found->message;
  EXPECT_FALSE(found->message.empty());
  RecordProperty("message", found->message);
}

INSTANTIATE_TEST_SUITE_P(All, Mutations, testing::ValuesIn(rows),
                         [](const auto& info) { return std::string(info.param.name); });

// A permanent error fails one case, not the cases after it.
TEST_F(ReferenceDriver, AStickyErrorFailsOneCase) {
  setenv("REFERENCE_ASYNC_MUTATION", "a_thousand_items_break_it", 1);
  std::vector<std::string> failed;
  int passed = 0;
  for (const auto& result : run("fills.,order.,events.,fault.", 20)) {
    if (result.outcome == Outcome::fail) failed.push_back(result.group + "." + result.name);
    passed += result.outcome == Outcome::pass;
  }
  EXPECT_EQ(failed, std::vector<std::string>{"order.host_calls_run_once_and_in_order"});
  EXPECT_GE(passed, 40);
}

TEST(MutationList, NamesNoneTwice) {
  std::set<std::string> names;
  for (const Row& row : rows) EXPECT_TRUE(names.insert(row.name).second) << row.name;
  EXPECT_GE(names.size(), 120u);
}

}  // namespace
}  // namespace anyaccel
