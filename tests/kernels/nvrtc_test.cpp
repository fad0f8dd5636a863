// Every portable kernel compiles as CUDA C++ for the architectures in use: checked with NVRTC, which needs no GPU. Skipped
// where the CUDA toolkit is not installed.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "anyaccel/device_op.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;

// The functions of nvrtc.h that are used, as the CUDA documentation declares them.
struct Nvrtc {
  using Program = struct Opaque*;
  int (*create)(Program*, const char* source, const char* name, int headers, const char* const*, const char* const*);
  int (*compile)(Program, int count, const char* const* options);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  int (*cubin_size)(Program, size_t*);
  int (*destroy)(Program*);

  // Null: not installed.
  static const Nvrtc* open() {
    static const Nvrtc* const table = []() -> const Nvrtc* {
      void* library = nullptr;
      for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"}) {
        if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      }
      if (!library) return nullptr;
      static Nvrtc found{};
      const auto bind = [&](auto& function, const char* name) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
        return function != nullptr;
      };
      const bool all = bind(found.create, "nvrtcCreateProgram") && bind(found.compile, "nvrtcCompileProgram") &&
                       bind(found.log_size, "nvrtcGetProgramLogSize") && bind(found.log, "nvrtcGetProgramLog") &&
                       bind(found.cubin_size, "nvrtcGetCUBINSize") && bind(found.destroy, "nvrtcDestroyProgram");
      return all ? &found : nullptr;
    }();
    return table;
  }
};

std::string read(const fs::path& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

class NvrtcTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!Nvrtc::open()) GTEST_SKIP() << "libnvrtc.so is not installed (a part of the CUDA toolkit)";
  }
};

void compile(const fs::path& file, const std::string& source, const std::string& architecture,
             std::vector<std::string> more) {
  const Nvrtc& nvrtc = *Nvrtc::open();
  more.insert(more.begin(),
              {"--gpu-architecture=" + architecture, "-DAA_GROUP_SIZE=256", "-DAA_LANES=32", "-DAA_SUBGROUP=32",
               "-DAA_ITEMS=256", "-DAA_LOCAL_BYTES=49152", "-DAA_HAS_F16=1", "-DAA_HAS_F64=1"});
  std::string shown;
  std::vector<const char*> options;
  for (const std::string& option : more) {
    options.push_back(option.c_str());
    shown += " " + option;
  }
  Nvrtc::Program program = nullptr;
  ASSERT_EQ(nvrtc.create(&program, source.c_str(), file.filename().c_str(), 0, nullptr, nullptr), 0);
  const int result = nvrtc.compile(program, static_cast<int>(options.size()), options.data());
  size_t size = 0;
  nvrtc.log_size(program, &size);
  std::string log(size, '\0');
  nvrtc.log(program, log.data());
  EXPECT_EQ(result, 0) << file.filename() << shown << "\n" << log;
  size_t cubin = 0;
  if (result == 0) {
    nvrtc.cubin_size(program, &cubin);
    EXPECT_GT(cubin, 0u) << file.filename() << shown;
  }
  nvrtc.destroy(&program);
}

TEST_P(NvrtcTest, CompilesForEveryArchitecture) {
  const fs::path file = fs::path(ANYACCEL_SOURCE_DIR) / "kernels/portable" / GetParam();
  const std::string source = expand_includes(file.string(), {});
  const std::string text = read(file);
  const bool has_w = text.find("AA_W") != std::string::npos;
  const bool has_x = has_w || text.find("AA_X") != std::string::npos;
  const bool every_pair = std::getenv("ANYACCEL_TEST_SEEDS") != nullptr;
  for (const std::string architecture : {"sm_80", "sm_90", "sm_100"}) {
    if (!has_x) {
      compile(file, source, architecture, {});
      continue;
    }
    for (const std::string x : {"f32", "bf16", "f16"}) {
      for (const std::string w : {"f32", "bf16", "f16"}) {
        if (!has_w && w != x) continue;
        // Types and architectures do not meet in the code, so a short run takes the pairs of equal types and one mixed one.
        if (!every_pair && x != w && !(architecture == "sm_90" && x == "f32" && w == "bf16")) continue;
        compile(
            file, source, architecture,
            has_w ? std::vector<std::string>{"-DAA_X=" + x, "-DAA_W=" + w} : std::vector<std::string>{"-DAA_X=" + x});
      }
    }
  }
}

std::vector<std::string> kernel_files() {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(fs::path(ANYACCEL_SOURCE_DIR) / "kernels/portable")) {
    if (entry.path().extension() == ".cl") files.push_back(entry.path().filename().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

INSTANTIATE_TEST_SUITE_P(PortableKernels, NvrtcTest, ::testing::ValuesIn(kernel_files()), [](const auto& info) {
  std::string name = fs::path(info.param).stem().string();
  return name;
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NvrtcTest);

}  // namespace
}  // namespace anyaccel
