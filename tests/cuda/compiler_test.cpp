// Compiling without a device: by a real NVRTC if one is installed, by nvcc if only that exists, and the error where
// there is neither.
#include "accelerators/cuda/compile/compiler.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "accelerators/cuda/compile/rtc.h"
#include "accelerators/cuda/libraries/loading.h"
#include "base/files/files.h"
#include "base/process/shell.h"
#include "base/process/subprocess.h"
#include "cuda/loading_test_support.h"

namespace anyaccel::loading_test {
namespace {

using namespace cuda;

DeviceFacts device(int major, int minor) {
  DeviceFacts facts;
  facts.name = "a device";
  facts.major = major;
  facts.minor = minor;
  facts.arch = "sm_" + std::to_string(major) + std::to_string(minor);
  return facts;
}

const std::string source =
    "extern \"C\" __global__ void scale(float* x, float by, int n) {\n"
    "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i < n) x[i] *= by + AA_BIAS;\n"
    "}\n";
const std::vector<std::string> options{"-DAA_BIAS=1.5f"};

// The architecture in a cubin's ELF header (e_flags): its low byte, or from CUDA 13 on the second.
bool is_cubin_for(const std::vector<unsigned char>& image, int architecture) {
  if (image.size() < 64 || std::memcmp(image.data(),
                                       "\x7f"
                                       "ELF",
                                       4) != 0) {
    return false;
  }
  uint32_t flags = 0;
  std::memcpy(&flags, image.data() + 48, sizeof(flags));
  return (flags & 0xff) == static_cast<uint32_t>(architecture) ||
         (flags >> 8 & 0xff) == static_cast<uint32_t>(architecture);
}

const RuntimeCompiler* real_nvrtc() {
  std::string tried;
  return find_nvrtc(0, 90, tried);
}

TEST(CudaCompiler, NvrtcCompilesForEveryArchitectureWithoutADevice) {
  if (!real_nvrtc()) GTEST_SKIP() << "no NVRTC is installed";
  for (const auto& [major, minor] : {std::pair{8, 0}, std::pair{9, 0}, std::pair{10, 0}}) {
    const int number = major * 10 + minor;
    const std::vector<int>& known = real_nvrtc()->architectures();
    if (std::find(known.begin(), known.end(), number) == known.end()) continue;  // sm_100 came with CUDA 12.8
    const abi::CompileOutput output = compile(device(major, minor), "scale.cu", source, options);
    ASSERT_TRUE(output.succeeded) << output.log;
    EXPECT_EQ(output.format, "cubin");
    EXPECT_TRUE(is_cubin_for(output.image, number)) << number;
    const std::string_view text(reinterpret_cast<const char*>(output.image.data()), output.image.size());
    EXPECT_NE(text.find(".text.scale"), std::string_view::npos);
  }
}

// The kernels of Hopper are for compute capability 9.0 only, and for compilers that know sm_90a.
TEST(CudaCompiler, FeaturesOfOneArchitecture) {
  if (!real_nvrtc()) GTEST_SKIP() << "no NVRTC is installed";
  const int version = std::atoi(real_nvrtc()->identity().c_str() + std::strlen("nvrtc "));
  EXPECT_EQ(compiles_own_features(device(9, 0)), version >= 12) << real_nvrtc()->identity();
  EXPECT_FALSE(compiles_own_features(device(8, 0)));
  EXPECT_FALSE(compiles_own_features(device(10, 0)));
  if (version < 12) return;
  std::vector<std::string> own = options;
  own.push_back("--gpu-architecture=sm_90a");
  const abi::CompileOutput output =
      compile(device(9, 0), "scale.cu", "#ifndef __CUDA_ARCH_FEAT_SM90_ALL\n#error\n#endif\n" + source, own);
  ASSERT_TRUE(output.succeeded) << output.log;
  EXPECT_EQ(output.format, "cubin");
}

TEST(CudaCompiler, DeviceNewerThanNvrtcGetsPtx) {
  const RuntimeCompiler* nvrtc = real_nvrtc();
  if (!nvrtc || nvrtc->architectures().empty()) GTEST_SKIP() << "no NVRTC that lists its architectures is installed";
  const std::string newest = "compute_" + std::to_string(nvrtc->architectures().back());
  const abi::CompileOutput output = compile(device(90, 0), "scale.cu", source, options);
  ASSERT_TRUE(output.succeeded) << output.log;
  EXPECT_EQ(output.format, "ptx");
  const std::string text(reinterpret_cast<const char*>(output.image.data()), output.image.size());
  EXPECT_CONTAINS(text, ".target sm_" + std::to_string(nvrtc->architectures().back()));
  EXPECT_TRUE(compiler_fingerprint(device(90, 0)).ends_with(" " + newest)) << compiler_fingerprint(device(90, 0));
}

TEST(CudaCompiler, DeviceOlderThanNvrtcIsAnError) {
  const RuntimeCompiler* nvrtc = real_nvrtc();
  if (!nvrtc || nvrtc->architectures().empty() || nvrtc->architectures().front() <= 20)
    GTEST_SKIP() << "no NVRTC that lists its architectures is installed";
  std::string tried;
  EXPECT_EQ(find_nvrtc(0, 20, tried), nullptr);
  EXPECT_CONTAINS(tried, " and newer, and the device is sm_20");
}

TEST(CudaCompiler, ArchitectureOfTheCaller) {
  if (!real_nvrtc()) GTEST_SKIP() << "no NVRTC is installed";
  const abi::CompileOutput ptx =
      compile(device(9, 0), "scale.cu", source, std::vector<std::string>{options[0], "--gpu-architecture=compute_80"});
  ASSERT_TRUE(ptx.succeeded) << ptx.log;
  EXPECT_EQ(ptx.format, "ptx");
  const abi::CompileOutput own =
      compile(device(9, 0), "scale.cu", source, std::vector<std::string>{options[0], "--gpu-architecture=sm_90a"});
  ASSERT_TRUE(own.succeeded) << own.log;
  EXPECT_EQ(own.format, "cubin");
}

TEST(CudaCompiler, ErrorsComeBackInTheLog) {
  if (!real_nvrtc()) GTEST_SKIP() << "no NVRTC is installed";
  const abi::CompileOutput wrong = compile(device(9, 0), "wrong.cu", "__global__ void k() { undefined(); }\n", {});
  EXPECT_FALSE(wrong.succeeded);
  EXPECT_CONTAINS(wrong.log, "wrong.cu(1): error: identifier \"undefined\" is undefined");
  const abi::CompileOutput option =
      compile(device(9, 0), "scale.cu", source, std::vector<std::string>{"--no-such-option"});
  EXPECT_FALSE(option.succeeded);
  EXPECT_CONTAINS(option.log, "no-such-option");
  const abi::CompileOutput said =
      compile(device(9, 0), "scale.cu", source, std::vector<std::string>{options[0], "--ptxas-options=-v"});
  EXPECT_TRUE(said.succeeded);
  EXPECT_CONTAINS(said.log, "registers");
}

TEST(CudaCompiler, FingerprintChangesWithTheArchitecture) {
  if (!real_nvrtc()) GTEST_SKIP() << "no NVRTC is installed";
  const std::string fingerprint = compiler_fingerprint(device(9, 0));
  EXPECT_TRUE(fingerprint.starts_with("nvrtc ")) << fingerprint;
  EXPECT_TRUE(fingerprint.ends_with(" sm_90")) << fingerprint;
  EXPECT_NE(fingerprint, compiler_fingerprint(device(8, 0)));
}

// This program again, where the loader finds files of no use under NVRTC's names first: it reads LD_LIBRARY_PATH only when a
// program starts.
class WithoutNvrtc : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ + "/bin");
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"})
      std::ofstream(folder_ + "/" + name) << "This is no library.\n";
  }
  std::string compiled(const std::string& path) const {
    return run_program({"/usr/bin/env", "-u", "ANYACCEL_CUDA_LIBRARY_PATH", "LD_LIBRARY_PATH=" + folder_,
                        "CUDA_HOME=" + folder_, "PATH=" + path, std::filesystem::read_symlink("/proc/self/exe"),
                        "--gtest_also_run_disabled_tests", "--gtest_filter=CudaCompilerAlone.*"})
        .output;
  }
  const TemporaryFolder temporary_{"no-nvrtc"};
  const std::string folder_ = temporary_.path().string();
};

// Run by the tests below only.
TEST(CudaCompilerAlone, DISABLED_Compiles) {
  try {
    const abi::CompileOutput output = compile(device(9, 0), "scale.cu", source, options);
    std::printf("compiled by %s to %s%s: %s\n", compiler_fingerprint(device(9, 0)).c_str(), output.format.c_str(),
                is_cubin_for(output.image, 90) ? " of sm_90" : "", output.log.c_str());
  } catch (const abi::Failure& failure) {
    std::printf("failure %d: %s\n", failure.code(), failure.what());
  }
}

TEST_F(WithoutNvrtc, SaysWhatWasLookedForAndWhatToInstall) {
  const std::string text = compiled("/nowhere");
  EXPECT_CONTAINS(text, "failure " + std::to_string(AA_UNAVAILABLE) +
                            ": kernels cannot be compiled: no NVRTC (looked for libnvrtc.so.13, libnvrtc.so.12, "
                            "libnvrtc.so.11.2 in " +
                            folder_ + "/lib64, ");
  EXPECT_CONTAINS(text, "and no nvcc (CUDA_HOME=" + folder_);
  EXPECT_CONTAINS(text, "install NVRTC of the driver's CUDA version");
}

TEST_F(WithoutNvrtc, NvccServes) {
  const std::string nvcc = find_program("/usr/local/cuda/bin/nvcc");
  if (nvcc.empty()) GTEST_SKIP() << "no nvcc in /usr/local/cuda/bin";
  std::ofstream(folder_ + "/bin/nvcc") << "#!/bin/sh\nexec /usr/local/cuda/bin/nvcc \"$@\"\n";
  std::filesystem::permissions(folder_ + "/bin/nvcc", std::filesystem::perms::owner_all);
  const std::string text = compiled(std::getenv("PATH"));
  EXPECT_CONTAINS(text, "compiled by nvcc Build cuda_");
  EXPECT_CONTAINS(text, " sm_90 to cubin of sm_90: ");
}

}  // namespace
}  // namespace anyaccel::loading_test
