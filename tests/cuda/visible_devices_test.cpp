// CUDA_VISIBLE_DEVICES by the driver's rules.
#include "accelerators/cuda/platform/visible_devices.h"

#include <gtest/gtest.h>

namespace anyaccel::cuda {
namespace {

const std::vector<PhysicalGpu> four{
    {"GPU-11111111-0000-0000-0000-000000000000", false, {}},
    {"GPU-11112222-0000-0000-0000-000000000000", false, {}},
    {"GPU-aaaa0000-0000-0000-0000-000000000000", false, {}},
    {"GPU-bbbb0000-0000-0000-0000-000000000000", false, {}},
};
const std::vector<PhysicalGpu> cut{
    {"GPU-11111111-0000-0000-0000-000000000000", false, {}},
    {"GPU-22222222-0000-0000-0000-000000000000",
     true,
     {{"MIG-abcd0000-0000-0000-0000-000000000000", 1, 0}, {"MIG-abce0000-0000-0000-0000-000000000000", 2, 0}}},
    {"GPU-33333333-0000-0000-0000-000000000000", true, {}},
};

struct Row {
  const char* value;
  int count;
  const char* remark;  // what the remark holds; "" for none
};

void check(const std::vector<Row>& rows, const std::vector<PhysicalGpu>& gpus) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.value ? row.value : "(not set)");
    const VisibleDevices visible = visible_devices(row.value, gpus);
    EXPECT_EQ(visible.count, row.count);
    if (*row.remark)
      EXPECT_NE(visible.remark.find(row.remark), std::string::npos) << visible.remark;
    else
      EXPECT_EQ(visible.remark, "");
  }
}

TEST(VisibleDevices, Ordinals) {
  check({{nullptr, 4, ""},
         {"0", 1, ""},
         {"3,0,1", 3, ""},
         {" 2 , 1 ", 2, ""},
         {"+1", 1, ""},
         {"1gpu2,2ampere", 2, ""},  // a number ends where its digits do
         {"01", 1, ""}},
        four);
}

TEST(VisibleDevices, ReadingStopsAtTheFirstInvalidEntry) {
  check({{"0,1,-1,2", 2, "stopped at \"-1\""},
         {"0,4,1", 1, "\"4\", but the driver lists 4 GPUs, 0 to 3"},
         {"1,x,2", 1, "\"x\""},
         {"2,,3", 1, "stopped at \"\""},
         {"0,99999999999999999999999", 1, "99999999999999999999999"},
         {"0,GPU-aaaa0000", 1, "stopped at \"GPU-aaaa0000\""}},
        four);
}

TEST(VisibleDevices, NoneAtAll) {
  check({{"", 0, "empty"},
         {" ", 0, "empty"},
         {"-1", 0, "CUDA_VISIBLE_DEVICES=\"-1\""},
         {"7", 0, "no device is visible"},
         {"all", 0, "neither a number"},
         {"NoDevFiles", 0, "\"NoDevFiles\""},
         {"0,1,0", 0, "\"0\" names a device for the second time"},
         {"GPU-aaaa,GPU-aaaa0000", 0, "second time"}},
        four);
  EXPECT_EQ(visible_devices(nullptr, {}).count, 0);
  EXPECT_EQ(visible_devices("0", {}).count, 0);
}

TEST(VisibleDevices, Uuids) {
  check({{"GPU-aaaa0000-0000-0000-0000-000000000000", 1, ""},
         {"GPU-aaaa", 1, ""},
         {"GPU-b,GPU-a", 2, ""},
         {"GPU-11111", 1, ""},
         {"GPU-1111", 0, "\"GPU-1111\", with which the UUIDs of 2 devices begin"},
         {"GPU-aaaa,GPU-cccc", 1, "\"GPU-cccc\", with which no device's UUID begins"},
         {"GPU-aaaa,0", 1, "\"0\", which is among UUIDs but is not a UUID"},
         {"GPU-dead", 0, "GPU-dead"},
         {"MIG-aaaa", 0, "\"MIG-aaaa\""}},
        four);
}

TEST(VisibleDevices, Slices) {
  check({{nullptr, 1, ""},  // where a slice is visible it is the only device
         {"0", 1, ""},
         {"1", 1, ""},
         {"0,1", 1, ""},
         {"2", 0, "MIG mode without instances"},
         {"GPU-2", 1, ""},
         {"GPU-3", 0, "GPU-3"},
         {"MIG-abcd", 1, ""},
         {"MIG-abcd,MIG-abce", 1, ""},
         {"MIG-abc", 0, "2 devices"},
         {"MIG-GPU-22222222-0000-0000-0000-000000000000/2/0", 1, ""},
         {"MIG-GPU-22222222-0000-0000-0000-000000000000/3/0", 0, "/3/0"}},
        cut);
  const std::vector<PhysicalGpu> only_mode{{"GPU-1", true, {}}};
  const VisibleDevices none = visible_devices(nullptr, only_mode);
  EXPECT_EQ(none.count, 0);
  EXPECT_NE(none.remark.find("no instances"), std::string::npos) << none.remark;
}

// Whatever is in the variable, there is an answer, and a count of devices that exist.
TEST(VisibleDevices, AnyText) {
  const std::string letters = "0123456789,-+ GPUMIabcdef/";
  uint64_t state = 12345;
  for (int round = 0; round < 20000; ++round) {
    std::string value;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const size_t length = (state >> 33) % 24;
    for (size_t i = 0; i < length; ++i) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      value += letters[(state >> 33) % letters.size()];
    }
    for (const auto* gpus : {&four, &cut}) {
      const VisibleDevices visible = visible_devices(value.c_str(), *gpus);
      ASSERT_GE(visible.count, 0) << value;
      ASSERT_LE(visible.count, 4) << value;
      ASSERT_TRUE(visible.count > 0 || !visible.remark.empty()) << value;
    }
  }
}

}  // namespace
}  // namespace anyaccel::cuda
