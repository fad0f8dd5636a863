// ROCm behind the same table: the adapters on a fake library, the answers of Debian's libamdhip64 without a GPU, and
// compiling by its hipRTC.
#include <dlfcn.h>

#include "accelerators/cuda/compile/compiler.h"
#include "accelerators/cuda/libraries/loading.h"
#include "cuda/loading_test_support.h"

namespace anyaccel::loading_test {
namespace {

using namespace cuda;

const Environment faked_hip{{"ANYACCEL_CUDA_LIBRARY_PATH", fake_hip}};

std::string calls() {
  void* library = dlopen((fake_hip + "/libamdhip64.so.7").c_str(), RTLD_NOW | RTLD_NOLOAD);
  return library ? reinterpret_cast<const char* (*)()>(dlsym(library, "fake_hip_text"))() : "not loaded";
}

TEST(Hip, FoundWhereThereIsNoCuda) {
  if (has_nvidia_node()) GTEST_SKIP() << "this machine has an NVIDIA GPU, which comes first";
  EXPECT_EQ(discovered(faked_hip), "usable 2 hip: 2 device(s), ROCm 7.0");
  EXPECT_EQ(discovered(with(faked_hip, "ANYACCEL_CUDA_DEVICES", "3")),
            "usable 3 hip: 3 device(s), ROCm 7.0; 3 virtual ones on 2 (ANYACCEL_CUDA_DEVICES)");
  EXPECT_CONTAINS(discovered(with(faked_hip, "FAKE_HIP", "count=0")), "no AMD GPU");
  EXPECT_CONTAINS(discovered(with(faked_hip, "FAKE_HIP", "init=101")), "hipInit gives hipErrorFake (101): words");
}

TEST(Hip, Facts) {
  if (has_nvidia_node()) GTEST_SKIP() << "this machine has an NVIDIA GPU, which comes first";
  EXPECT_EQ(in_child(faked_hip,
                     [] {
                       std::string text;
                       for (const DeviceFacts& facts : start_platform().devices) {
                         int64_t free = 0;
                         int64_t total = 0;
                         text += facts.name + " " + facts.arch + " " + facts.pci_bus_id + " " +
                                 std::to_string(facts.multiprocessors) + " " + std::to_string(facts.warp_size) + " " +
                                 std::to_string(facts.shared_per_block) + " " +
                                 std::to_string(facts.shared_per_block_optin) + " " +
                                 std::to_string(facts.shared_per_multiprocessor) + " " +
                                 std::to_string(facts.l2_bytes) + " " + std::to_string(facts.managed_memory) +
                                 std::to_string(facts.virtual_memory) + " " +
                                 std::to_string(nvml_memory_info(facts, free, total)) + "\n";
                       }
                       return text;
                     }),
            "AMD Instinct Fake gfx942 0002:05:01.0 304 64 65536 65536 65537 4194304 10 0\n"
            "AMD Instinct Fake gfx1100 0002:06:01.0 304 64 65536 65536 65537 4194304 10 0\n");
}

TEST(Hip, Features) {
  EXPECT_EQ(in_child(faked_hip,
                     [] {
                       const GpuLibrary& library = hip_library();
                       const Api& api = library.api;
                       return library.problem + std::to_string(api.has_graphs) + std::to_string(api.has_host_call) +
                              std::to_string(api.has_peer) + std::to_string(api.has_dynamic_shared) +
                              std::to_string(api.has_launch_attributes) + std::to_string(api.has_virtual_memory);
                     }),
            "111100");
}

TEST(Hip, AdaptersPassOnWhatHipWants) {
  EXPECT_EQ(in_child(faked_hip,
                     [] {
                       const Api& api = hip_library().api;
                       ContextHandle context = nullptr;
                       bool good = api.primary_context_retain(&context, 1) == success && context != nullptr;
                       ContextHandle other = nullptr;
                       good = good && api.primary_context_retain(&other, 0) == success && other != context;
                       good = good && api.context_set_current(context) == success;
                       ContextHandle now = nullptr;
                       good = good && api.context_get_current(&now) == success && now == context;
                       good = good && api.context_set_current(nullptr) == success;
                       ContextHandle none = nullptr;
                       good = good && api.primary_context_retain(&none, 7) == error_invalid_device && !none;
                       DevicePointer pointer = 0;
                       good = good && api.memory_alloc(&pointer, 100) == success && pointer == 0x10000;
                       good = good && api.memory_free(pointer) == success;
                       good = good && api.memory_alloc_managed(&pointer, 7, mem_attach_global) == success;
                       good = good && api.copy_async(16, 32, 8, nullptr) == success;
                       good = good && api.fill_32_async(64, 0xdeadbeef, 5, nullptr) == success;
                       good = good && api.fill_2d_32_async(4096, 256, 0, 10, 3, nullptr) == success;
                       good = good && api.fill_2d_32_async(4096, 256, 0x01020304, 10, 2, nullptr) == success;
                       GraphExecHandle exec = nullptr;
                       good = good && api.graph_instantiate(&exec, nullptr, 0) == success;
                       good = good && api.graph_instantiate(&exec, nullptr, 1) == error_not_supported;
                       good = good && api.enable_peer_access(context, 0) == success;
                       good = good && api.enable_peer_access(nullptr, 0) == error_invalid_value;
                       good = good && api.copy_peer_async(16, context, 32, other, 8, nullptr) == success;
                       good = good && api.primary_context_release(1) == success;
                       good = good && api.function_set_attribute(nullptr, function_max_dynamic_shared_size_bytes,
                                                                 65536) == success;
                       good = good && result_text(api, 2) == "hipErrorOutOfMemory (2): out of memory";
                       return std::string(good ? "good\n" : "BAD\n") + calls();
                     }),
            "good\nset device 1\nset device 0\nset device 1\nmalloc 100\nfree 65536\nmalloc managed 7 flags 1\n"
            "copy 16 32 8 kind 4\nfill 64 deadbeef 5\nfill 2d 4096 pitch 256 byte 0 40 x 3\n"
            "fill 4096 01020304 10\nfill 4352 01020304 10\ninstantiate\npeer 1 flags 0\n"
            "copy 16 of device 1 from 32 of device 0 8\n");
}

TEST(Hip, AttributesOfDevicesAndPointers) {
  const auto attributes = [] {
    const Api& api = hip_library().api;
    std::string text;
    for (const DevicePointer pointer : {DevicePointer{0x1000}, DevicePointer{0x2000}, DevicePointer{0x3000}}) {
      unsigned type = 0;
      unsigned managed = 9;
      int device = -1;
      void* at = nullptr;
      if (api.pointer_attribute(&type, pointer_memory_type, pointer) != success) text += "!";
      if (api.pointer_attribute(&managed, pointer_is_managed, pointer) != success) text += "!";
      if (api.pointer_attribute(&device, pointer_device_ordinal, pointer) != success) text += "!";
      if (api.pointer_attribute(static_cast<void*>(&at), pointer_device_pointer, pointer) != success) text += "!";
      text += std::to_string(type) + std::to_string(managed) + std::to_string(device) +
              (reinterpret_cast<uintptr_t>(at) == pointer ? " " : "? ");
    }
    unsigned type = 0;
    text += std::to_string(api.pointer_attribute(&type, pointer_memory_type, 0x9000)) + " ";
    size_t range = 0;
    text += std::to_string(api.pointer_attribute(&range, pointer_range_size, 0x2000)) + " ";
    int value = 0;
    text += std::to_string(api.device_attribute(&value, attribute_warp_size, 0)) + " ";
    text += std::to_string(range) + " " + std::to_string(value) + " ";
    return text + std::to_string(api.device_attribute(&value, 12345, 0));
  };
  EXPECT_EQ(in_child(faked_hip, attributes), "101 201 211 1 0 0 4096 64 1");
  EXPECT_EQ(in_child(with(faked_hip, "FAKE_HIP", "version=50221153"), attributes), "101 201 211 1 0 0 4096 64 1");
}

// Debian's, as `apt-get install libamdhip64-5` brings it: version 5.2 on Debian 12, 5.7 on Debian 13 and Ubuntu 24.04.
class DebianHip : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(folder_ + "/libamdhip64.so.5"))
      GTEST_SKIP() << "Debian package libamdhip64-5 is not installed";
    if (std::filesystem::exists("/dev/kfd") || has_nvidia_node()) GTEST_SKIP() << "this machine has a GPU";
  }
  const std::string folder_ = "/usr/lib/x86_64-linux-gnu";
  const Environment environment_{{"ANYACCEL_CUDA_LIBRARY_PATH", folder_}};
};

TEST_F(DebianHip, NothingIsOpenedWithoutADevice) {
  EXPECT_EQ(in_child({},
                     [] {
                       const std::string text = text_of(discover());
                       return (mapped("libamdhip64") ? "LOADED " : "") + text;
                     })
                .substr(0, 18),
            "absent 0 cuda: no ");
}

TEST_F(DebianHip, SaysThatThereIsNoGpu) {
  const std::string text = discovered(environment_);
  EXPECT_TRUE(text.starts_with("unusable 0 hip: ROCm is there (" + folder_ + "/libamdhip64.so.5), but no AMD GPU"))
      << text;
  EXPECT_TRUE(contains(text, "hipInit gives hipErrorInvalidDevice (101)") ||  // 5.2
              contains(text, "hipInit gives hipErrorNoDevice (100)"))
      << text;
  EXPECT_CONTAINS(text, "there is no /dev/kfd");
  EXPECT_CONTAINS(in_child(environment_, [] { return std::to_string(start_platform().devices.size()); }),
                  "failure " + std::to_string(AA_UNAVAILABLE) + ": ROCm is there");
}

TEST_F(DebianHip, HasEveryFunctionOfTheTable) {
  const std::string found = in_child(environment_, [] {
    const GpuLibrary& library = hip_library();
    return library.problem + std::to_string(library.version) + " " + std::to_string(library.api.has_graphs) +
           std::to_string(library.api.has_host_call) + std::to_string(library.api.has_peer) +
           std::to_string(library.api.has_dynamic_shared);
  });
  // hipLaunchHostFunc came after 5.2.
  EXPECT_TRUE(found == "50221153 1011" || (found.starts_with("507") && found.ends_with(" 1111"))) << found;
}

TEST_F(DebianHip, AdaptersAnswerWithoutADevice) {
  const std::string found = in_child(environment_, [] {
    const Api& api = hip_library().api;
    int count = 7;
    std::string text = std::to_string(api.device_count(&count));
    DevicePointer pointer = 0;
    text += " " + std::to_string(api.memory_alloc(&pointer, 64));
    return text + " " + result_text(api, error_out_of_memory);
  });
  EXPECT_TRUE(found == "100 101 hipErrorOutOfMemory (2): hipErrorOutOfMemory" ||
              found == "100 100 hipErrorOutOfMemory (2): out of memory")
      << found;
}

TEST_F(DebianHip, CompilesByHipRtc) {
  const std::string text = in_child(environment_, [] {
    DeviceFacts facts;
    facts.name = "a device";
    facts.arch = "gfx90a";
    const abi::CompileOutput output =
        compile(facts, "k.hip", "extern \"C\" __global__ void k(int* x) { *x = 3; }\n", {});
    return compiler_fingerprint(facts) + "|" + (output.succeeded ? output.format : "failed: " + output.log);
  });
  EXPECT_TRUE(text.starts_with("hiprtc ")) << text;
  if (text.find("|hsaco") == std::string::npos) GTEST_SKIP() << "hipRTC does not compile here: " << text;
  EXPECT_CONTAINS(text, " gfx90a|hsaco");
}

}  // namespace
}  // namespace anyaccel::loading_test
