// The conformance suite is tested: the asynchronous reference driver passes it, also when it holds work back, and fails
// the named case for each of the mistakes that can be put into it (tests/plugins/reference_async/mutations.h).
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "anyaccel/detection.h"
#include "anyaccel/log.h"
#include "conformance/suite.h"
#include "plugins/reference_async/mutations.h"
#include "runtime/driver/host_services.h"

namespace anyaccel {
namespace {

using conformance::Outcome;

struct Row {
  const char* name;
  const char* noticed_by;
};

constexpr Row rows[] = {
#define ANYACCEL_ROW(name, noticed_by) {#name, noticed_by},
    REFERENCE_MUTATIONS(ANYACCEL_ROW)
#undef ANYACCEL_ROW
};

// Loaded once. What the environment asks for is read in the children, which are the first to enter the driver.
const aa_driver& reference_driver() {
  static const LoadedDriver driver = load_plugin(ANYACCEL_BINARY_DIR "/tests/plugins/reference_async.so");
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
    unsetenv("REFERENCE_ASYNC_LAZY");
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
  setenv("REFERENCE_ASYNC_LAZY", "1", 1);
  expect_no_failure();
}

class Mutations : public ReferenceDriver, public testing::WithParamInterface<Row> {};

TEST_P(Mutations, AreNoticed) {
  setenv("REFERENCE_ASYNC_MUTATION", GetParam().name, 1);
  const conformance::CaseResult* found = nullptr;
  // What hangs is killed soon: it fails either way.
  const auto cases = run(GetParam().noticed_by, 2);
  for (const auto& result : cases) {
    if (result.group + "." + result.name == GetParam().noticed_by) found = &result;
  }
  ASSERT_NE(found, nullptr) << "there is no case " << GetParam().noticed_by;
  EXPECT_EQ(found->outcome, Outcome::fail) << GetParam().noticed_by << ": " << found->message;
  EXPECT_FALSE(found->message.empty());
  RecordProperty("message", found->message);
}

INSTANTIATE_TEST_SUITE_P(All, Mutations, testing::ValuesIn(rows),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(MutationList, NamesNoneTwice) {
  std::set<std::string> names;
  for (const Row& row : rows) EXPECT_TRUE(names.insert(row.name).second) << row.name;
  EXPECT_GE(names.size(), 120u);
}

}  // namespace
}  // namespace anyaccel
