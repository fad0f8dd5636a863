// Tests which of several installed versions of NVRTC is chosen for a driver and a device.
#include "accelerators/cuda/compile/compiler.h"
#include "accelerators/cuda/compile/rtc.h"
#include "cuda/loading_test_support.h"
#include "this_build.h"

namespace anyaccel::loading_test {
namespace {

using namespace cuda;

TEST(NvrtcChoice, VersionForDriverAndDevice) {
  const std::string folder = test::built("tests/cuda/fake_nvrtc");
  const auto chosen = [](const std::string& where, int driver, int architecture) {
    return in_child({{"ANYACCEL_CUDA_LIBRARY_PATH", where}}, [&] {
      std::string tried;
      const RuntimeCompiler* compiler = find_nvrtc(driver, architecture, tried);
      return compiler ? compiler->identity().substr(0, 10) : tried;
    });
  };
  EXPECT_EQ(chosen(folder, 13000, 90), "nvrtc 13.4");
  EXPECT_EQ(chosen(folder, 12040, 90), "nvrtc 12.4");
  EXPECT_EQ(chosen(folder, 0, 90), "nvrtc 13.4");
  EXPECT_EQ(chosen(folder, 13000, 70), "nvrtc 12.4");   // 13 has left it behind
  EXPECT_EQ(chosen(folder, 13000, 130), "nvrtc 13.4");  // PTX
  EXPECT_EQ(chosen(folder, 12040, 120), "nvrtc 12.4");  // PTX: a driver of CUDA 12 need not take what 13 makes
  EXPECT_EQ(chosen(folder, 13000, 35), folder +
                                           "/libnvrtc.so.13 compiles for sm_75 and newer, and the device is sm_35: "
                                           "install NVRTC of an older CUDA");
  // Nothing of the driver's version, nor older: a newer one may do.
  EXPECT_EQ(chosen(folder + "_13", 12040, 90), "nvrtc 13.4");
  // A library that does not work is reported with its name and its own error message.
  const std::string failed = in_child({{"ANYACCEL_CUDA_LIBRARY_PATH", folder}}, [] {
    DeviceFacts facts;
    facts.arch = "sm_90";
    facts.major = 9;
    return compile(facts, "empty.cu", "", {}).log;
  });
  EXPECT_CONTAINS(failed, "failure " + std::to_string(AA_UNAVAILABLE) + ": nvrtcCreateProgram of " + folder +
                              "/libnvrtc.so.13 gives NVRTC_ERROR_INVALID_PROGRAM (4)");
}

}  // namespace
}  // namespace anyaccel::loading_test
