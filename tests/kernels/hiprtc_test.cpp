// Every portable kernel compiles as HIP for AMD's architectures: checked with the hipRTC of Debian's libamdhip64-5, which needs no
// GPU. Skipped where it cannot compile: it takes rocm-device-libs and libhiprtc-builtins5 too. (gfx942 is newer than it.)
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "accelerators/cuda/compile/rtc.h"
#include "anyaccel/device_op.h"
#include "kernels/vendor_compilers.h"

namespace anyaccel {
namespace {

struct Architecture {
  const char* name;
  int wave;  // items that move as one: AA_LANES and AA_SUBGROUP
};
constexpr Architecture architectures[] = {{"gfx906", 64}, {"gfx90a", 64}, {"gfx1030", 32}};

const std::string trivial_kernel = "extern \"C\" __global__ void k(int* x) { *x = 3; }\n";

abi::CompileOutput compile_trivial(const cuda::RuntimeCompiler& compiler, const std::string& architecture) {
  return compiler.compile("trivial.hip", trivial_kernel, {"--offload-arch=" + architecture},
                          cuda::RuntimeCompiler::Image::native);
}

// Returns why it cannot compile here; empty if it can.
const std::string& problem_of_hiprtc() {
  static const std::string problem = [] {
    std::string tried;
    const cuda::RuntimeCompiler* compiler = cuda::find_hiprtc(tried);
    if (!compiler) return "no hipRTC (Debian: libamdhip64-5): " + tried;
    const abi::CompileOutput output = compile_trivial(*compiler, architectures[0].name);
    if (output.succeeded) return std::string();
    return compiler->path() + " cannot compile (Debian: rocm-device-libs, libhiprtc-builtins5): " + output.log;
  }();
  return problem;
}

class HiprtcTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!problem_of_hiprtc().empty()) GTEST_SKIP() << problem_of_hiprtc();
  }
};

TEST_P(HiprtcTest, CompilesForEveryArchitecture) {
  std::string tried;
  const cuda::RuntimeCompiler& compiler = *cuda::find_hiprtc(tried);
  const std::string source = expand_includes((kernels_folder / "portable" / GetParam()).string(), {cuda_dialect});
  for (const Architecture& architecture : architectures) {
    const std::string wave = std::to_string(architecture.wave);
    for (std::vector<std::string> options : type_options(GetParam(), architecture.name == std::string("gfx90a"))) {
      options.insert(options.begin(), {std::string("--offload-arch=") + architecture.name, "-DAA_GROUP_SIZE=256",
                                       "-DAA_LANES=" + wave, "-DAA_SUBGROUP=" + wave, "-DAA_ITEMS=256",
                                       "-DAA_LOCAL_BYTES=49152", "-DAA_HAS_F16=1", "-DAA_HAS_F64=1"});
      compile_once(compiler, GetParam(), source, options);
    }
  }
}

TEST(Hiprtc, MakesAnImageForTheArchitecture) {
  if (!problem_of_hiprtc().empty()) GTEST_SKIP() << problem_of_hiprtc();
  std::string tried;
  for (const Architecture& architecture : architectures) {
    const abi::CompileOutput output = compile_trivial(*cuda::find_hiprtc(tried), architecture.name);
    EXPECT_TRUE(output.succeeded) << output.log;
    const std::string image(reinterpret_cast<const char*>(output.image.data()), output.image.size());
    EXPECT_NE(image.find(architecture.name), std::string::npos) << architecture.name;
  }
}

TEST(Hiprtc, SaysWhatIsWrongWithAKernel) {
  if (!problem_of_hiprtc().empty()) GTEST_SKIP() << problem_of_hiprtc();
  std::string tried;
  const abi::CompileOutput output =
      cuda::find_hiprtc(tried)->compile("wrong.hip", "extern \"C\" __global__ void k() { no_such_function(); }\n",
                                        {"--offload-arch=gfx90a"}, cuda::RuntimeCompiler::Image::native);
  EXPECT_FALSE(output.succeeded);
  EXPECT_NE(output.log.find("no_such_function"), std::string::npos) << output.log;
}

INSTANTIATE_TEST_SUITE_P(PortableKernels, HiprtcTest, ::testing::ValuesIn(files_of("portable", ".cl")),
                         [](const auto& info) { return std::filesystem::path(info.param).stem().string(); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(HiprtcTest);

}  // namespace
}  // namespace anyaccel
