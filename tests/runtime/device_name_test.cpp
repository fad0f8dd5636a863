// A device's name is a device: tensors are made on it and moved to it, and what is no name says which there are. On the
// accelerator that DS_ACCELERATOR names.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/error.h"

namespace anyaccel {
namespace {

class DeviceName : public ::testing::Test {
 protected:
  static void expect_error(const std::string& name, const std::string& first_words, aa_code code) {
    try {
      static_cast<void>(Device(name));
      ADD_FAILURE() << "\"" << name << "\" was taken for a device";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, first_words.size()), first_words) << name;
      EXPECT_EQ(error.code(), code) << name;
    }
  }
  // As messages list them.
  std::string expected() const {
    std::string text = "\"" + name + "\"" + (count > 1 ? ", \"" : " or \"") + name + ":0\"";
    if (count > 1) text += " to \"" + name + ":" + std::to_string(count - 1) + "\"";
    return text + (name == "cpu" ? "" : ", or \"cpu\" for ordinary host memory") + " can be given";
  }

  Accelerator& accelerator = *get_accelerator();
  const std::string name = accelerator.name();
  const int count = accelerator.device_count();
};

TEST_F(DeviceName, NamesEveryDevice) {
  EXPECT_EQ(Device(name), accelerator.device());
  EXPECT_EQ(Device(accelerator.current_device_name()), accelerator.device());
  EXPECT_EQ(Device(accelerator.device_name()), accelerator.device());
  for (int i = 0; i < count; ++i) EXPECT_EQ(Device(name + ":" + std::to_string(i)), accelerator.device(i));
  EXPECT_EQ(Device("cpu").is_host(), name != "cpu");
  EXPECT_EQ(Device("cpu").name(), "cpu");
}

TEST_F(DeviceName, IsTheCurrentDeviceWithoutAnIndex) {
  accelerator.set_device(count - 1);
  EXPECT_EQ(Device(name).index, count - 1);
  accelerator.set_device(0);
  EXPECT_EQ(Device(name).index, 0);
}

TEST_F(DeviceName, TensorsAreMadeOnItAndMovedToIt) {
  const std::string last = name + ":" + std::to_string(count - 1);
  const std::vector<float> values{1, 2, 3};
  const Tensor there = Tensor::from_host(values.data(), {3}, DType::F32, last);
  EXPECT_EQ(there.device(), accelerator.device(count - 1));
  const Tensor here = there.to("cpu");
  EXPECT_EQ(here.device(), Device("cpu"));
  EXPECT_EQ(here.to_vector<float>(), values);
  EXPECT_EQ(here.to(accelerator.current_device_name()).to_vector<float>(), values);
  EXPECT_EQ(Tensor::empty({2, 3}, DType::F16, name.c_str()).device(), accelerator.device());
  EXPECT_EQ(Tensor::zeros({2}, DType::F32, std::string_view(last)).to("cpu").to_vector<float>(),
            (std::vector<float>{0, 0}));
  EXPECT_TRUE(there.device() == last);
}

TEST_F(DeviceName, WrongIndices) {
  const std::string devices = std::to_string(count) + (count == 1 ? " device; " : " devices; ");
  for (const int index : {count, 4711}) {
    const std::string asked = name + ":" + std::to_string(index);
    expect_error(asked, "there is no device \"" + asked + "\": the accelerator has " + devices + expected(),
                 AA_OUT_OF_RANGE);
  }
}

TEST_F(DeviceName, MalformedNames) {
  const std::vector<std::string> wrong{"",
                                       ":",
                                       ":0",
                                       name + ":",
                                       name + ":x",
                                       name + ":-1",
                                       name + ":0x1",
                                       name + ":+1",
                                       name + ":1 ",
                                       name + ":0:0",
                                       " " + name + ": 0",
                                       name + ":99999999999999",
                                       "cpu: 0"};
  for (const std::string& asked : wrong) {
    expect_error(asked, "\"" + asked + "\" is not the name of a device: " + expected(), AA_INVALID_ARGUMENT);
  }
  EXPECT_THROW(static_cast<void>(Device(static_cast<const char*>(nullptr))), InvalidArgument);
}

TEST_F(DeviceName, OfAnotherAccelerator) {
  for (const std::string other : {"cuda", "xpu:0", "npu:3", "null", "gizmo", "cpu:0"}) {
    if (other.substr(0, other.find(':')) == name) continue;
    expect_error(other, "\"" + other + "\" is not a device of the active accelerator, \"" + name + "\": " + expected(),
                 AA_INVALID_ARGUMENT);
  }
}

TEST(DeviceNameOnTheCpu, HasOneForEachDevice) {
  const char* forced = std::getenv("DS_ACCELERATOR");
  if (forced && std::string(forced) != "cpu") GTEST_SKIP() << "of the CPU accelerator";
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // in a process that has opened nothing yet
  EXPECT_EXIT(
      {
        setenv("LOCAL_SIZE", "3", 1);
        reset_accelerator();
        Accelerator& cpu = *get_accelerator();
        cpu.set_device(1);
        bool right = Device("cpu").index == 1 && Device("cpu:2").index == 2 && Device("cpu:2").accelerator == &cpu;
        try {
          static_cast<void>(Device("cpu:3"));
        } catch (const InvalidArgument& error) {
          right = right && std::string(error.what()).ends_with("\"cpu\", \"cpu:0\" to \"cpu:2\" can be given");
        }
        std::exit(right ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(DeviceNameAfterSetAccelerator, IsOfTheNewOne) {
  set_accelerator(make_accelerator("null"));
  EXPECT_EQ(Device("null:0").accelerator, get_accelerator());
  EXPECT_TRUE(Device("cpu").is_host());
  reset_accelerator();
}

}  // namespace
}  // namespace anyaccel
