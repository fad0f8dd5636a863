// Tests which Gaudi modules a process may use, by the variables of Habana's frameworks.
#include <gtest/gtest.h>

#include "accelerators/hpu/modules.h"
#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::hpu {
namespace {

using Modules = std::vector<uint32_t>;

const Modules present{0, 1, 2, 5};

TEST(HpuModules, AllAreVisibleWhereNothingIsSaid) { EXPECT_EQ(choose_modules({}, present), present); }

TEST(HpuModules, AListIsInItsOwnOrder) {
  EXPECT_EQ(choose_modules({.visible = "5,0"}, present), (Modules{5, 0}));
  EXPECT_EQ(choose_modules({.visible = "7,5"}, present), Modules{5});
  EXPECT_EQ(choose_modules({.visible = "7"}, present), Modules{});
}

TEST(HpuModules, ARankHasTheModuleOfItsPlace) {
  EXPECT_EQ(choose_modules({.local_rank = "3"}, present), Modules{5});
  EXPECT_EQ(choose_modules({.visible = "5,2", .local_rank = "1"}, present), Modules{2});
  EXPECT_EQ(choose_modules({.visible = "5,2", .local_rank = "2"}, present), Modules{});
  EXPECT_EQ(choose_modules({.visible = "7,2", .local_rank = "0"}, present), Modules{});  // not that of rank 1
}

TEST(HpuModules, OneModuleNamedIsTheOne) {
  EXPECT_EQ(choose_modules({.visible = "0,1", .module = "2", .local_rank = "1"}, present), Modules{2});
  EXPECT_EQ(choose_modules({.module = "3"}, present), Modules{});
}

TEST(HpuModules, RefusesWhatIsNoNumber) {
  const auto refusal = [](const ModuleChoice& choice) -> std::string {
    try {
      choose_modules(choice, present);
    } catch (const abi::Failure& failure) {
      EXPECT_EQ(failure.code(), AA_INVALID_ARGUMENT);
      return failure.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({.module = "x"}), "HLS_MODULE_ID is \"x\"; expected the number of a module");
  EXPECT_EQ(refusal({.local_rank = "-1"}), "LOCAL_RANK is \"-1\"; expected a number from 0");
  for (const std::string list : {",", "0,", "0,0", "0 1", "a", "99999999999", "all"}) {
    EXPECT_EQ(refusal({.visible = list}),
              "HABANA_VISIBLE_MODULES is \"" + list + "\"; expected numbers of modules, each once, such as \"0,1\"");
  }
}

}  // namespace
}  // namespace anyaccel::hpu
