// Finding NVIDIA's driver: what the probe answers and what it leaves alone, with fake libraries, with the toolkit's stub, and
// with nothing.
#include <dlfcn.h>

#include <chrono>

#include "accelerators/cuda/libraries/loading.h"
#include "accelerators/cuda/libraries/nvml.h"
#include "base/files/files.h"
#include "base/process/child_count.h"
#include "cuda/loading_test_support.h"

namespace anyaccel::loading_test {
namespace {

using namespace cuda;

const std::string both = fake_driver + ":" + fake_nvml;
const Environment faked{{"ANYACCEL_CUDA_LIBRARY_PATH", both}};
const Environment driver_11{{"ANYACCEL_CUDA_LIBRARY_PATH", fake_driver + "_11:" + fake_nvml}};
const Environment driver_10{{"ANYACCEL_CUDA_LIBRARY_PATH", fake_driver + "_10:" + fake_nvml}};

TEST(CudaProbe, NothingIsOpenedWithoutADevice) {
  if (has_nvidia_node() || std::filesystem::exists("/dev/kfd")) GTEST_SKIP() << "this machine has a GPU";
  const std::string text = in_child({}, [] {
    const std::string answer = text_of(discover());
    for (const char* library : {"libcuda", "libnvidia", "libamdhip"}) {
      if (mapped(library)) return "LOADED " + std::string(library);
    }
    return answer;
  });
  EXPECT_EQ(text,
            "absent 0 cuda: no NVIDIA GPU (looked for /dev/nvidiactl, /dev/nvidia0 to 7 and /dev/dxg; "
            "ANYACCEL_CUDA_LIBRARY_PATH is not set); no AMD GPU (looked for /dev/kfd)");
}

TEST(CudaProbe, GoodDriver) {
  EXPECT_EQ(discovered(faked), "usable 2 cuda: 2 device(s), NVIDIA driver 580.65.06 for CUDA 13.0");
  EXPECT_EQ(discovered(with(faked, "CUDA_VISIBLE_DEVICES", "1")),
            "usable 1 cuda: 1 device(s), NVIDIA driver 580.65.06 for CUDA 13.0");
  // A driver of CUDA 11 has the first form of cuGetProcAddress only.
  EXPECT_EQ(discovered(with(driver_11, "FAKE_CUDA", "version=11040")),
            "usable 2 cuda: 2 device(s), NVIDIA driver 580.65.06 for CUDA 11.4");
  EXPECT_CONTAINS(discovered(with(faked, "CUDA_VISIBLE_DEVICES", "0,9")),
                  "usable 1 cuda: 1 device(s), NVIDIA driver 580.65.06 for CUDA 13.0; CUDA_VISIBLE_DEVICES=\"0,9\": "
                  "reading stopped at \"9\"");
}

TEST(CudaProbe, DriverTooOld) {
  for (const std::string& folder : {fake_driver, fake_driver + "_11", fake_driver + "_10"}) {
    const Environment environment{{"ANYACCEL_CUDA_LIBRARY_PATH", folder}, {"FAKE_CUDA", "version=10020"}};
    EXPECT_CONTAINS(discovered(environment),
                    "unusable 0 cuda: the driver supports CUDA 10.2; anyaccel needs 11.4 or newer: update the NVIDIA "
                    "driver");
  }
  EXPECT_CONTAINS(discovered(with(faked, "FAKE_CUDA", "version=11030")), "supports CUDA 11.3; anyaccel needs 11.4");
  // Version and functions do not agree.
  EXPECT_CONTAINS(discovered(driver_10), "has no cuGetProcAddress");
}

TEST(CudaProbe, MissingFunctions) {
  EXPECT_CONTAINS(discovered(with(faked, "FAKE_CUDA", "hide=cuMemAlloc")),
                  "lacks the function cuMemAlloc, which drivers");
  EXPECT_CONTAINS(discovered(with(faked, "FAKE_CUDA", "hide=cuLaunchKernelEx")), "usable 2");
  const auto features = [] {
    const Api& api = cuda_library().api;
    return std::to_string(api.has_graphs) + std::to_string(api.has_host_call) +
           std::to_string(api.has_launch_attributes) + std::to_string(api.has_dynamic_shared) +
           std::to_string(api.has_peer) + std::to_string(api.has_virtual_memory);
  };
  EXPECT_EQ(in_child(faked, features), "111111");
  EXPECT_EQ(in_child(driver_11, features), "111111");
  EXPECT_EQ(in_child(with(faked, "FAKE_CUDA", "hide=cuLaunchKernelEx"), features), "110111");
  EXPECT_EQ(in_child(with(faked, "FAKE_CUDA", "hide=cuGraphLaunch"), features), "011111");
  EXPECT_EQ(in_child(with(faked, "FAKE_CUDA", "hide=cuMemMap"), features), "111110");
  EXPECT_EQ(in_child(with(faked, "FAKE_CUDA", "hide=cuLaunchHostFunc"), features), "101111");
  EXPECT_EQ(in_child(with(faked, "FAKE_CUDA", "hide=cuFuncSetAttribute"), features), "111011");
  EXPECT_EQ(in_child(with(faked, "FAKE_CUDA", "hide=cuCtxEnablePeerAccess"), features), "111101");
}

// Each function is looked up in the version that the table names, in the form for the legacy default stream.
TEST(CudaProbe, AsksForFunctionsByVersion) {
  for (const Environment& environment : {faked, driver_11}) {
    const std::string asked = in_child(environment, [&] {
      cuda_library();
      const std::string folder = environment.at("ANYACCEL_CUDA_LIBRARY_PATH");
      void* library = dlopen((folder.substr(0, folder.find(':')) + "/libcuda.so.1").c_str(), RTLD_NOW | RTLD_NOLOAD);
      return std::string(reinterpret_cast<const char* (*)()>(dlsym(library, "fake_cuda_requests"))());
    });
    std::string expected;
#define ANYACCEL_NAME(need, member, cuda_name, since, hip_name, parameters) \
  expected += std::string(cuda_name) + " " + std::to_string(since) + " 1\n";
    ANYACCEL_GPU_FUNCTIONS(ANYACCEL_NAME)
#undef ANYACCEL_NAME
    EXPECT_EQ(asked, expected);
  }
}

TEST(CudaProbe, VisibleDevices) {
  EXPECT_CONTAINS(discovered(with(faked, "CUDA_VISIBLE_DEVICES", "")),
                  "unusable 0 cuda: CUDA_VISIBLE_DEVICES is set and empty");
  EXPECT_CONTAINS(
      discovered(with(faked, "CUDA_VISIBLE_DEVICES", "5")),
      "CUDA_VISIBLE_DEVICES=\"5\": reading stopped at \"5\", but the driver lists 2 GPUs, 0 to 1, so no device "
      "is visible");
  EXPECT_CONTAINS(discovered(with(faked, "CUDA_VISIBLE_DEVICES", "GPU-dead")),
                  "\"GPU-dead\", with which no device's UUID begins");
  EXPECT_CONTAINS(discovered(with(faked, "CUDA_VISIBLE_DEVICES", "GPU-0010")), "usable 1");
  EXPECT_CONTAINS(discovered(with(faked, "FAKE_NVML", "mig")), "usable 1");
  EXPECT_CONTAINS(discovered(with(with(faked, "FAKE_NVML", "mig"), "CUDA_VISIBLE_DEVICES", "MIG-0919")), "usable 1");
  EXPECT_CONTAINS(discovered(with(with(faked, "FAKE_NVML", "mig"), "CUDA_VISIBLE_DEVICES", "MIG-ff")), "unusable 0");
}

TEST(CudaProbe, NoDevice) {
  EXPECT_CONTAINS(discovered(with(faked, "FAKE_NVML", "count=0")),
                  "unusable 0 cuda: the NVIDIA driver 580.65.06 for CUDA 13.0 is loaded but lists no GPU");
}

TEST(CudaProbe, KernelModule) {
  EXPECT_CONTAINS(discovered(with(faked, "FAKE_NVML", "init=18")),
                  "the NVIDIA driver's libraries and its loaded kernel module are of different versions: NVML error 18 "
                  "(Driver/library version mismatch)");
  EXPECT_CONTAINS(discovered(with(faked, "FAKE_NVML", "init=9")), "the NVIDIA kernel module is not loaded");
  EXPECT_CONTAINS(discovered(with(faked, "FAKE_NVML", "init=4")), "may not talk to the NVIDIA driver");
}

TEST(CudaProbe, VirtualDevices) {
  EXPECT_EQ(discovered(with(faked, "ANYACCEL_CUDA_DEVICES", "5")),
            "usable 5 cuda: 5 device(s), NVIDIA driver 580.65.06 for CUDA 13.0; 5 virtual ones on 2 "
            "(ANYACCEL_CUDA_DEVICES)");
  for (const char* wrong : {"x", "0", "-1", "2x", "1e3", "99999999999", " 2"}) {
    EXPECT_CONTAINS(discovered(with(faked, "ANYACCEL_CUDA_DEVICES", wrong)),
                    std::string("unusable 0 cuda: ANYACCEL_CUDA_DEVICES=\"") + wrong + "\" is not a number of devices");
  }
}

// Without NVML a child process starts the driver and counts.
TEST(CudaProbe, ChildCounts) {
  // NVML's name is there and nothing behind it, so that none other is found.
  const TemporaryFolder temporary("no-nvml");
  const std::string folder = temporary.path().string();
  std::ofstream(folder + "/libnvidia-ml.so.1") << "no library";
  const Environment environment{{"ANYACCEL_CUDA_LIBRARY_PATH", fake_driver + ":" + folder}};
  if (in_child(environment, [] { return ask_nvml().problem; }).empty()) GTEST_SKIP() << "this machine has an NVML";
  EXPECT_EQ(discovered(environment), "usable 2 cuda: 2 device(s), NVIDIA driver for CUDA 13.0");
  EXPECT_CONTAINS(discovered(with(environment, "FAKE_CUDA", "init=803")),
                  "different versions (cuInit gives CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): words)");
  EXPECT_CONTAINS(discovered(with(environment, "FAKE_CUDA", "init=100")), "shows no device");
  EXPECT_CONTAINS(discovered(with(environment, "FAKE_CUDA", "count=0")), "shows no device");
  EXPECT_CONTAINS(discovered(with(environment, "FAKE_CUDA", "init=34")), "stub library");
  EXPECT_CONTAINS(discovered(with(environment, "FAKE_CUDA", "crash")),
                  "the driver ended the child process that started it by signal 6; NVML gave no answer either: ");
  EXPECT_EQ(in_child(with(environment, "FAKE_CUDA", "hang"),
                     [] {
                       const auto ask = [](ChildCount& told) { told.init = cuda_library().api.init(0); };
                       return count_in_child(ask, std::chrono::milliseconds(50)).problem;
                     }),
            "starting the driver in a child process took longer than 50 ms");
  // A driver that was started here is not asked by a child any more.
  EXPECT_EQ(in_child(environment,
                     [] {
                       start_platform();
                       return text_of(discover());
                     }),
            "usable 2 cuda: 2 device(s), NVIDIA driver for CUDA 13.0");
  std::filesystem::remove_all(folder);
}

TEST(CudaProbe, BrokenLibrary) {
  const TemporaryFolder temporary("broken");
  const std::string folder = temporary.path().string();
  std::ofstream(folder + "/libcuda.so.1") << "no library";
  if (has_nvidia_node()) GTEST_SKIP() << "this machine has a driver of its own";
  const std::string text = in_child({{"ANYACCEL_CUDA_LIBRARY_PATH", folder}}, [] { return cuda_library().problem; });
  EXPECT_CONTAINS(text,
                  "no NVIDIA driver library: looked for libcuda.so.1 in " + folder + " (ANYACCEL_CUDA_LIBRARY_PATH), ");
  EXPECT_CONTAINS(text, folder + "/libcuda.so.1 cannot be opened (");
}

// A stub below a folder of that name is passed over however it is reached; elsewhere it gives itself away.
TEST(CudaProbe, StubLibrary) {
  EXPECT_CONTAINS(discovered(with(faked, "FAKE_CUDA", "stub")),
                  "unusable 0 cuda: " + fake_driver + "/libcuda.so.1 is the CUDA toolkit's stub library");
  const TemporaryFolder temporary("stub");
  const std::string folder = temporary.path().string();
  std::filesystem::create_directories(folder + "/stubs");
  std::filesystem::create_directories(folder + "/linked");
  std::filesystem::copy_file(fake_driver + "/libcuda.so.1", folder + "/stubs/libcuda.so.1");
  std::filesystem::create_symlink(folder + "/stubs/libcuda.so.1", folder + "/linked/libcuda.so.1");
  if (!has_nvidia_node()) {
    for (const char* place : {"/stubs", "/linked"}) {
      const std::string text = in_child({{"ANYACCEL_CUDA_LIBRARY_PATH", folder + place}},
                                        [&] { return (mapped(folder) ? "LOADED " : "") + cuda_library().problem; });
      EXPECT_CONTAINS(text, folder + place + "/libcuda.so.1 was passed over");
      EXPECT_FALSE(text.starts_with("LOADED"));
    }
  }
}

TEST(CudaProbe, ToolkitsOwnStub) {
  const std::string stub = "/usr/local/cuda/lib64/stubs/libcuda.so";
  if (!std::filesystem::exists(stub)) GTEST_SKIP() << "no CUDA toolkit in /usr/local/cuda";
  if (has_nvidia_node()) GTEST_SKIP() << "this machine has a driver of its own";
  const TemporaryFolder temporary("toolkit");
  const std::string folder = temporary.path().string();
  std::filesystem::copy_file(stub, folder + "/libcuda.so.1");
  EXPECT_CONTAINS(discovered({{"ANYACCEL_CUDA_LIBRARY_PATH", folder}}),
                  "unusable 0 cuda: " + folder + "/libcuda.so.1 is the CUDA toolkit's stub library");
}

std::string facts_text() {
  std::string text;
  for (const DeviceFacts& facts : start_platform().devices) {
    int64_t free = 0;
    int64_t total = 0;
    const bool told = nvml_memory_info(facts, free, total);
    text += std::to_string(facts.ordinal) + "/" + std::to_string(facts.shares) + " " + facts.name + " " + facts.arch +
            " " + facts.pci_bus_id + " " + std::to_string(facts.total_memory >> 30) + "G " +
            std::to_string(facts.shared_per_block_optin) + (facts.is_mig ? " mig" : "") + " nvml " +
            (told ? std::to_string((total - free) >> 20) : "silent") + "\n";
  }
  return text;
}

TEST(CudaPlatform, Facts) {
  EXPECT_EQ(in_child(with(faked, "FAKE_CUDA", "count=1"), facts_text),
            "0/1 Fake GPU 0 sm_90 0000:18:00.0 80G 232448 nvml 100\n");
  // NVML lists the slice of a device under a UUID of its own, which here it does not know.
  EXPECT_EQ(in_child(faked, facts_text),
            "0/1 Fake GPU 0 sm_90 0000:18:00.0 80G 232448 nvml 100\n"
            "1/1 Fake GPU 1 MIG 1g.10gb sm_90 0000:19:00.0 80G 232448 mig nvml silent\n");
}

TEST(CudaPlatform, VirtualDevicesShareMemory) {
  EXPECT_EQ(in_child(with(with(faked, "FAKE_CUDA", "count=1"), "ANYACCEL_CUDA_DEVICES", "2"), facts_text),
            "0/2 Fake GPU 0 sm_90 0000:18:00.0 40G 232448 nvml 100\n"
            "0/2 Fake GPU 0 sm_90 0000:18:00.0 40G 232448 nvml 100\n");
  EXPECT_EQ(in_child(with(faked, "ANYACCEL_CUDA_DEVICES", "3"),
                     [] {
                       std::string text;
                       for (const DeviceFacts& facts : start_platform().devices)
                         text += std::to_string(facts.ordinal) + "/" + std::to_string(facts.shares) + " " +
                                 std::to_string(facts.total_memory >> 30) + " ";
                       return text;
                     }),
            "0/2 40 1/1 80 0/2 40 ");
  EXPECT_EQ(in_child(with(faked, "ANYACCEL_CUDA_DEVICES", "1"),
                     [] { return std::to_string(start_platform().devices.size()); }),
            "1");
}

TEST(CudaPlatform, ErrorsOfTheStart) {
  const auto start = [] { return std::to_string(start_platform().devices.size()) + " devices"; };
  const std::string unavailable = "failure " + std::to_string(AA_UNAVAILABLE) + ": ";
  const auto starting = [&](const std::string& words) { return in_child(with(faked, "FAKE_CUDA", words), start); };
  EXPECT_EQ(starting(""), "2 devices");
  EXPECT_CONTAINS(starting("init=34"), unavailable + fake_driver + "/libcuda.so.1 is the CUDA toolkit's stub library");
  EXPECT_CONTAINS(starting("init=999"),
                  unavailable + "the NVIDIA driver cannot be started (cuInit gives CUDA_ERROR_999");
  EXPECT_CONTAINS(starting("init=999"), "nvidia_uvm");
  EXPECT_CONTAINS(starting("init=803"), "different versions");
  EXPECT_CONTAINS(starting("init=804"), "forward-compatibility");
  EXPECT_CONTAINS(starting("init=802"), "nvidia-fabricmanager");
  EXPECT_CONTAINS(starting("init=3"), "fork()");
  EXPECT_CONTAINS(starting("init=100"), "shows no device");
  EXPECT_CONTAINS(starting("count=0"), "shows no device");
  EXPECT_CONTAINS(starting("version=10020"), unavailable + "the driver supports CUDA 10.2");
  EXPECT_CONTAINS(in_child(with(faked, "CUDA_VISIBLE_DEVICES", ""), start),
                  unavailable + "CUDA_VISIBLE_DEVICES is set");
}

TEST(CudaPlatform, ForkAfterTheStartIsAnError) {
  EXPECT_EQ(in_child(faked,
                     [] {
                       discover();  // a probe leaves the process able to fork
                       const std::string before = in_child(faked, [] {
                         return std::to_string(start_platform().devices.size()) + (is_forked_child() ? " forked" : "");
                       });
                       start_platform();
                       const std::string probe = in_child(faked, [] { return text_of(discover()).substr(0, 41); });
                       const std::string after = in_child(faked, [] {
                         return std::to_string(start_platform().devices.size()) + (is_forked_child() ? " forked" : "");
                       });
                       return before + "\n" + probe + "\n" + after.substr(0, 42) + "\n" +
                              (is_forked_child() ? "forked" : "not forked");
                     }),
            "2\nunusable 0 cuda: this process was made by\nfailure " + std::to_string(AA_FAILED_PRECONDITION) +
                ": this process was made by fork()\nnot forked");
}

TEST(CudaPlatform, ResultTextsAndCodes) {
  EXPECT_EQ(in_child(faked, [] { return result_text(cuda_library().api, error_illegal_address); }),
            "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered");
  EXPECT_EQ(in_child(faked, [] { return result_text(cuda_library().api, 12345); }), "error 12345");
  EXPECT_EQ(result_text(Api(), 7), "error 7");
  EXPECT_EQ(code_of(success), AA_OK);
  EXPECT_EQ(code_of(error_out_of_memory), AA_RESOURCE_EXHAUSTED);
  for (const Result lost : {214, 700, 702, 714, 715, 716, 717, 718, 719})
    EXPECT_EQ(code_of(lost), AA_DEVICE_LOST) << lost;
  for (const Result capture : {900, 901, 906, 908}) EXPECT_EQ(code_of(capture), AA_FAILED_PRECONDITION) << capture;
  EXPECT_EQ(code_of(error_no_binary_for_gpu), AA_INCOMPATIBLE);
  EXPECT_EQ(code_of(error_not_supported), AA_UNIMPLEMENTED);
  EXPECT_EQ(code_of(error_stub_library), AA_UNAVAILABLE);
  EXPECT_EQ(code_of(909), AA_UNKNOWN);
}

// ANYACCEL_CUDA_LIBRARY_PATH comes before everything, all of its folders before anything else, and a name that is preferred
// before another.
TEST(OpenLibrary, OrderOfPlaces) {
  const auto opened = [](const std::vector<std::string>& names) {
    std::string tried;
    void* handle = open_library(Runtime::cuda, names, tried);
    return handle ? library_path(handle) : "nothing: " + tried;
  };
  EXPECT_EQ(in_child(faked, [&] { return opened({"libcuda.so.1"}); }), fake_driver + "/libcuda.so.1");
  EXPECT_EQ(in_child({{"ANYACCEL_CUDA_LIBRARY_PATH", ":" + fake_driver + "_11/::" + fake_driver}},
                     [&] { return opened({"libcuda.so.1"}); }),
            fake_driver + "_11/libcuda.so.1");
  EXPECT_EQ(in_child(faked,
                     [&] {
                       return opened({"libnothing.so.9", "libnvidia-ml.so.1"});
                     }),
            fake_nvml + "/libnvidia-ml.so.1");
  EXPECT_EQ(
      in_child({{"CUDA_HOME", "/nowhere/a"}, {"CUDA_PATH", "/nowhere/b"}},
               [&] {
                 return opened({"libnothing.so.9", "libnothing.so.8"});
               }),
      "nothing: looked for libnothing.so.9, libnothing.so.8 in /nowhere/a/lib64, /nowhere/a/lib, /nowhere/b/lib64, "
      "/nowhere/b/lib, LD_LIBRARY_PATH and the system's library folders");
}

}  // namespace
}  // namespace anyaccel::loading_test
