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
constexpr Architecture gfx90a = {"gfx90a", 64}, gfx1030 = {"gfx1030", 32};

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
    const abi::CompileOutput output = compile_trivial(*compiler, gfx90a.name);
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

TEST_P(HiprtcTest, CompilesForBothSizesOfWaves) {
  std::string tried;
  const cuda::RuntimeCompiler& compiler = *cuda::find_hiprtc(tried);
  const std::filesystem::path file = kernels_folder / "portable" / GetParam();
  const std::string source = expand_includes(file.string(), {cuda_dialect});
  for (const char* own : {"__gfx", "__GFX", "__AMDGCN_WAVEFRONT_SIZE"}) {
    EXPECT_EQ(source.find(own), std::string::npos) << GetParam() << " has code for an architecture: " << own;
  }
  // All types for one architecture with waves of 64 items, one for one with waves of 32. What the optimizer could refuse does not
  // depend on types, nor on the size of waves, so that it works on the first of all choices only.
  std::string level = "-O3";
  for (const Architecture& architecture : {gfx90a, gfx1030}) {
    const std::string wave = std::to_string(architecture.wave);
    for (std::vector<std::string> options : type_options(read_text(file))) {
      options.insert(options.begin(), {std::string("--offload-arch=") + architecture.name, "-DAA_GROUP_SIZE=256",
                                       "-DAA_LANES=" + wave, "-DAA_SUBGROUP=" + wave, "-DAA_ITEMS=256",
                                       "-DAA_LOCAL_BYTES=49152", "-DAA_HAS_F16=1", "-DAA_HAS_F64=1", level});
      level = "-O0";
      compile_unless_recorded(compiler, GetParam(), source, options);
      if (architecture.wave != gfx90a.wave) break;
    }
  }
}

TEST(Hiprtc, MakesAnImageForTheArchitecture) {
  if (!problem_of_hiprtc().empty()) GTEST_SKIP() << problem_of_hiprtc();
  std::string tried;
  for (const Architecture& architecture : {Architecture{"gfx906", 64}, gfx90a, gfx1030}) {
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
