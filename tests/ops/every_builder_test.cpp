// Every op builder of anyaccel's own loads on the accelerator under test, save those that say what they lack.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ops/quant_test_support.h"
#include "runtime/builtins.h"

namespace anyaccel {
namespace {

TEST(EveryBuilder, Loads) {
  Accelerator& accelerator = testing::tested_accelerator();
  std::set<std::string> incompatible;
  for (const std::string& name : accelerator.op_builder_names()) {
    if (!find_builtin_op_builder(name)) continue;  // of other tests in this program
    const auto builder = accelerator.create_op_builder(name);
    ASSERT_TRUE(builder) << name;
    std::string reason;
    if (builder->is_compatible(&reason)) {
      EXPECT_TRUE(builder->load()) << name;
      continue;
    }
    incompatible.insert(name);
    EXPECT_EQ(reason.find("not implemented"), std::string::npos) << reason;
    EXPECT_THROW(builder->load(), Error) << name;
  }
  EXPECT_EQ(incompatible.count("DeepCompileBuilder"), 1u);
  incompatible.erase("DeepCompileBuilder");
  incompatible.erase("CCLCommBuilder");  // where oneCCL is not installed
  EXPECT_TRUE(incompatible.empty()) << *incompatible.begin();
}

}  // namespace
}  // namespace anyaccel
