// The cuda driver on the simulated libcuda: devices, memory, modules, errors that stay, processes and threads.
#include <atomic>
#include <thread>

#include "cuda/simulated_test_support.h"

namespace anyaccel::cuda_test {
namespace {

class CudaDriver : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = simulator_missing(); !missing.empty()) GTEST_SKIP() << missing;
  }
};

aa_device_props props_of(Opened& d, int32_t index = 0) {
  aa_device_props props{};
  props.struct_size = sizeof(props);
  ok(d.table.device_props(d.instance, index, &props), "device_props");
  return props;
}

// ---- devices ---------------------------------------------------------------------------------------------------------

TEST_F(CudaDriver, NumberFormatsFollowTheComputeCapability) {
  struct Row {
    const char *arch, *allowed;
    bool f16, bf16, f8, f16_matrix, bf16_matrix, triton;
  };
  for (const Row& row :
       {Row{"61", "0", false, false, false, false, false, false},
        Row{"61", "1", true, false, false, false, false, false},
        Row{"52", "1", false, false, false, false, false, false},
        Row{"70", "0", true, false, false, true, false, false}, Row{"80", "0", true, true, false, true, true, true},
        Row{"89", "0", true, true, true, true, true, true}, Row{"100", "0", true, true, true, true, true, true}}) {
    Simulated({{"SIM_CUDA_ARCH", row.arch}, {"DS_ALLOW_DEPRECATED_FP16", row.allowed}}, [&] {
      Opened d;
      const aa_device_props props = props_of(d);
      const auto has = [](uint64_t set, aa_dtype dtype) { return (set >> dtype & 1) != 0; };
      EXPECT_EQ(has(props.dtypes_computable, AA_DTYPE_F16), row.f16) << row.arch;
      EXPECT_EQ(has(props.dtypes_computable, AA_DTYPE_BF16), row.bf16) << row.arch;
      EXPECT_EQ(has(props.dtypes_computable, AA_DTYPE_F8_E4M3), row.f8) << row.arch;
      EXPECT_EQ(has(props.dtypes_matrix, AA_DTYPE_F16), row.f16_matrix) << row.arch;
      EXPECT_EQ(has(props.dtypes_matrix, AA_DTYPE_BF16), row.bf16_matrix) << row.arch;
      EXPECT_TRUE(has(props.dtypes_computable, AA_DTYPE_F64));
      EXPECT_EQ((props.caps & AA_CAP_TRITON) != 0, row.triton) << row.arch;
      EXPECT_EQ(props.dlpack_device_type, 2);
      EXPECT_EQ(std::string(props.arch), std::string("sm_") + row.arch);
    }).clean();
  }
}

TEST_F(CudaDriver, ABusyDeviceIsUnavailableAndSaysWhy) {
  Simulated({{"SIM_FAULT", "busy"}}, [] {
    Opened d;
    aa_device* device = nullptr;
    const std::string text = refused(d.table.device_open(d.instance, 0, &device), AA_UNAVAILABLE);
    EXPECT_SAYS(text, "CUDA_ERROR_DEVICE_UNAVAILABLE (46)");
    EXPECT_SAYS(text, "nvidia-smi");
    EXPECT_EQ(device, nullptr);
  }).clean();
}

// ---- memory ----------------------------------------------------------------------------------------------------------

TEST_F(CudaDriver, LargeBlocksAreMappedAndSmallOnesAreNot) {
  const Simulated run({}, [] {
    Opened d;
    char* small = d.memory(mebibyte);
    char* large = d.memory(4 * mebibyte + 1);
    const aa_memory_info found = d.query(large + 4 * mebibyte);
    EXPECT_EQ(found.base, large);
    EXPECT_EQ(found.size, 6 * mebibyte);  // whole granules
    EXPECT_EQ(found.kind, AA_MEMORY_DEVICE);
    aa_stream* stream = d.stream();
    std::vector<unsigned char> bytes(4 * mebibyte + 1, 7);
    d.upload(stream, large, bytes.data(), bytes.size());
    EXPECT_EQ(d.download(stream, large, bytes.size()), bytes);
    d.free(large, 4 * mebibyte + 1);
    d.free(small, mebibyte);
    EXPECT_SAYS(refused(d.table.mem_free(d.device(), AA_MEMORY_DEVICE, small, mebibyte), AA_INVALID_ARGUMENT),
                "freed before");
    ok(d.table.stream_destroy(stream));
  });
  run.clean();
  EXPECT_EQ(run.calls("cuMemCreate"), 1);
  EXPECT_EQ(run.calls("cuMemUnmap"), 1);
  EXPECT_GE(run.calls("cuMemAlloc_v2"), 1);
}

TEST_F(CudaDriver, WithoutVirtualMemoryTheDriverAllocatesAll) {
  const Simulated run({{"SIM_FAULT", "hide:cuMemCreate"}}, [] {
    Opened d;
    char* large = d.memory(4 * mebibyte);
    EXPECT_EQ(d.query(large + 5).base, large);
    d.free(large, 4 * mebibyte);
  });
  run.clean();
  EXPECT_GE(run.calls("cuMemAlloc_v2"), 1);
}

TEST_F(CudaDriver, AFailedMappingLeavesNothingBehind) {
  for (const std::string call : {"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    Simulated({{"SIM_FAULT", "fail:" + call + ",call=1"}}, [&] {
      Opened d;
      void* pointer = nullptr;
      const StatusRef status(d.table.mem_alloc(d.device(), AA_MEMORY_DEVICE, 4 * mebibyte, &pointer));
      EXPECT_FALSE(status.ok());
      EXPECT_SAYS(std::string(status.message()), call);
      EXPECT_EQ(pointer, nullptr);
      char* again = d.memory(4 * mebibyte);
      d.free(again, 4 * mebibyte);
    }).clean();
  }
}

TEST_F(CudaDriver, OutOfMemoryIsToldWithFiguresAndSurvived) {
  Simulated({{"SIM_MEMORY", "32m"}}, [] {
    Opened d;
    char* first = d.memory(20 * mebibyte);
    for (const size_t size : {20 * mebibyte, size_t{1} << 40, SIZE_MAX - 5}) {
      void* pointer = nullptr;
      const std::string text =
          refused(d.table.mem_alloc(d.device(), AA_MEMORY_DEVICE, size, &pointer), AA_RESOURCE_EXHAUSTED);
      EXPECT_SAYS(text, "bytes are free");
      EXPECT_SAYS(text, std::to_string(size));
      EXPECT_EQ(pointer, nullptr);
    }
    char* second = d.memory(10 * mebibyte);
    d.free(second, 10 * mebibyte);
    d.free(first, 20 * mebibyte);
  }).clean();
}

TEST_F(CudaDriver, EveryKindOfMemoryIsKnown) {
  Simulated({}, [] {
    Opened d;
    const auto& host = d.extension<aa_host_memory_table>(AA_HOST_MEMORY_EXTENSION);
    char* pinned = d.memory(5000, AA_MEMORY_PINNED);
    char* managed = d.memory(5000, AA_MEMORY_MANAGED);
    auto on_a_node = abi::sized<aa_alloc>();
    on_a_node.kind = AA_MEMORY_PINNED;
    on_a_node.numa_node = 0;
    on_a_node.size = 5000;
    auto given = abi::sized<aa_allocation>();
    ok(d.table.mem_alloc(d.device(), &on_a_node, &given), "mem_alloc on a NUMA node");
    void* const placed = given.pointer;
    std::memset(pinned, 1, 5000);
    std::memset(managed, 2, 5000);
    std::memset(placed, 3, 5000);
    EXPECT_EQ(d.query(pinned + 4999).kind, AA_MEMORY_PINNED);
    EXPECT_EQ(d.query(pinned).device_index, -1);
    EXPECT_EQ(d.query(managed + 4999).kind, AA_MEMORY_MANAGED);
    EXPECT_EQ(d.query(managed).device_index, 0);
    EXPECT_EQ(d.query(placed).kind, AA_MEMORY_PINNED);
    std::vector<char> pages(mebibyte);
    ok(host.register_range(d.device(), pages.data(), pages.size()), "register_range");
    EXPECT_EQ(d.query(&pages[77]).base, pages.data());
    EXPECT_EQ(d.query(&pages[77]).device_address, &pages[77]);
    refused(host.register_range(d.device(), pages.data(), 4096), AA_ALREADY_EXISTS);
    // Registered memory belongs to the caller and is not freed here.
    refused(d.table.mem_free(d.device(), AA_MEMORY_PINNED, pages.data(), pages.size()), AA_INVALID_ARGUMENT);
    ok(host.unregister_range(d.device(), pages.data()), "unregister_range");
    refused(host.unregister_range(d.device(), pages.data()), AA_NOT_FOUND);
    d.free(placed, 5000, AA_MEMORY_PINNED);
    d.free(managed, 5000, AA_MEMORY_MANAGED);
    d.free(pinned, 5000, AA_MEMORY_PINNED);
  });
}

TEST_F(CudaDriver, MemoryOfAnotherLibraryIsFound) {
  Simulated({}, [] {
    Opened d;
    d.device(1);
    const cuda::Api& api = *cuda::start_platform().api;
    cuda::DevicePointer foreign = 0;
    ASSERT_EQ(api.memory_alloc(&foreign, 10000), cuda::success);  // device 1 is current
    const aa_memory_info info = d.query(reinterpret_cast<char*>(foreign) + 9000);
    EXPECT_EQ(info.kind, AA_MEMORY_DEVICE);
    EXPECT_EQ(info.device_index, 1);
    EXPECT_EQ(info.base, reinterpret_cast<void*>(foreign));
    EXPECT_GE(info.size, 10000u);
    EXPECT_EQ(api.memory_free(foreign), cuda::success);
  }).clean();
}

TEST_F(CudaDriver, VirtualDevicesHaveTheirShare) {
  Simulated({{"SIM_DEVICES", "1"}, {"SIM_MEMORY", "64m"}, {"ANYACCEL_CUDA_DEVICES", "4"}}, [] {
    Opened d;
    ASSERT_EQ(d.count(), 4u);
    std::vector<char*> blocks;
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_LE(props_of(d, static_cast<int32_t>(i)).total_memory, static_cast<int64_t>(16 * mebibyte));
      blocks.push_back(d.memory(12 * mebibyte, AA_MEMORY_DEVICE, i));
      EXPECT_EQ(d.query(blocks[i]).device_index, static_cast<int32_t>(i));
      int64_t free = 0, total = 0;
      ok(d.table.device_memory_info(d.device(i), &free, &total), "device_memory_info");
      EXPECT_LE(total, static_cast<int64_t>(16 * mebibyte));
      EXPECT_LE(free, total - static_cast<int64_t>(12 * mebibyte));
      // 8 MiB more: the GPU has them as long as the others have not taken their share, and this device may not.
      void* pointer = nullptr;
      EXPECT_SAYS(
          refused(d.table.mem_alloc(d.device(i), AA_MEMORY_DEVICE, 8 * mebibyte, &pointer), AA_RESOURCE_EXHAUSTED),
          "ANYACCEL_CUDA_DEVICES");
    }
    // They share a context; work of one is ordered after another's by events as between any devices.
    aa_stream *first = d.stream(0), *second = d.stream(3);
    const std::vector<unsigned char> bytes(1000, 9);
    d.upload(first, blocks[0], bytes.data(), bytes.size());
    aa_event* event = d.event(0);
    ok(d.table.event_record(event, first));
    ok(d.table.stream_wait_event(second, event));
    ok(d.table.copy_async(second, blocks[3], blocks[0], bytes.size(), AA_COPY_DEVICE_TO_DEVICE));
    EXPECT_EQ(d.download(second, blocks[3], bytes.size()), bytes);
    ok(d.table.event_destroy(event));
    ok(d.table.stream_destroy(first));
    ok(d.table.stream_destroy(second));
    for (size_t i = 0; i < 4; ++i) d.free(blocks[i], 12 * mebibyte, AA_MEMORY_DEVICE, i);
  }).clean();
}

TEST_F(CudaDriver, DevicesReachEachOthersMemory) {
  for (const char* fault : {"", "no_peer"}) {
    const Simulated run({{"SIM_DEVICES", "2"}, {"SIM_FAULT", fault}}, [] {
      Opened d;
      char* before = d.memory(4 * mebibyte, AA_MEMORY_DEVICE, 0);  // mapped before the other device is opened
      char* other = d.memory(4 * mebibyte, AA_MEMORY_DEVICE, 1);
      char* small = d.memory(5000, AA_MEMORY_DEVICE, 0);
      aa_stream *near = d.stream(0), *far = d.stream(1);
      const std::vector<unsigned char> bytes(5000, 42);
      d.upload(near, before, bytes.data(), bytes.size());
      ok(d.table.copy_async(far, other, before, bytes.size(), AA_COPY_DEVICE_TO_DEVICE));
      EXPECT_EQ(d.download(far, other, bytes.size()), bytes);
      ok(d.table.copy_async(near, small, other, bytes.size(), AA_COPY_DEVICE_TO_DEVICE));
      EXPECT_EQ(d.download(near, small, bytes.size()), bytes);
      ok(d.table.stream_destroy(near));
      ok(d.table.stream_destroy(far));
      d.free(small, 5000);
      d.free(other, 4 * mebibyte, AA_MEMORY_DEVICE, 1);
      d.free(before, 4 * mebibyte);
    });
    run.clean();
    EXPECT_EQ(run.calls("cuCtxEnablePeerAccess"), *fault ? 0 : 2);
  }
}

// ---- modules ---------------------------------------------------------------------------------------------------------

StatusRef load(Opened& d, const std::string& image, const char* format, aa_module** module) {
  return StatusRef(d.table.module_load(d.device(), image.data(), image.size(), format, module));
}

TEST_F(CudaDriver, ModulesThatDoNotFitAreRefused) {
  Simulated({}, [] {
    Opened d;
    aa_module* module = nullptr;
    std::string cut("\177ELF", 4);
    for (const std::string& image : {std::string(), cut, cut + std::string(36, '\0') + std::string(24, '\377')}) {
      EXPECT_EQ(load(d, image, "cubin", &module).code(), AA_INVALID_ARGUMENT);
    }
    EXPECT_EQ(load(d, "nonsense", "cubin", &module).code(), AA_INVALID_ARGUMENT);
    EXPECT_EQ(load(d, "anything", "hsaco", &module).code(), AA_UNIMPLEMENTED);
    const StatusRef other = load(d, "SIMCUBIN\narch sm_80\nkernel nothing\n", "cubin", &module);
    EXPECT_EQ(other.code(), AA_INVALID_ARGUMENT) << other.text();
    EXPECT_SAYS(std::string(other.message()), "compile it again");
    EXPECT_SAYS(std::string(other.message()), "sm_90");
    EXPECT_EQ(module, nullptr);
  }).clean();
}

TEST_F(CudaDriver, KernelsRunAndTheirLimitsAreTold) {
  Simulated({}, [] {
    Opened d;
    aa_module* module = nullptr;
    const StatusRef loaded = load(d, "SIMCUBIN\narch sm_90\nkernel nothing\nkernel ceiling_fill\n", "cubin", &module);
    ASSERT_TRUE(loaded.ok()) << loaded.text();
    aa_kernel *nothing = nullptr, *fill = nullptr, *none = nullptr;
    aa_kernel_info info{};
    info.struct_size = sizeof(info);
    ok(d.table.kernel_get(module, "nothing", &nothing, &info));
    EXPECT_GT(info.max_threads_per_block, 0);
    EXPECT_EQ(info.argument_count, -1);
    ok(d.table.kernel_get(module, "ceiling_fill", &fill, nullptr));
    refused(d.table.kernel_get(module, "no_such_kernel", &none, nullptr), AA_NOT_FOUND);

    constexpr size_t size = 65536;
    char* memory = d.memory(size);
    aa_stream* stream = d.stream();
    const int64_t pieces = 1;
    const int32_t numbers = 0;
    const void* arguments[] = {&memory, &pieces, &numbers};
    const uint32_t sizes[] = {sizeof(memory), sizeof(pieces), sizeof(numbers)};
    const uint8_t kinds[] = {AA_ARGUMENT_POINTER, AA_ARGUMENT_VALUE, AA_ARGUMENT_VALUE};
    aa_launch launch{};
    launch.struct_size = sizeof(launch);
    launch.grid[0] = launch.grid[1] = launch.grid[2] = launch.block[1] = launch.block[2] = 1;
    launch.block[0] = 512;
    launch.argument_count = 3;
    launch.arguments = arguments;
    launch.argument_sizes = sizes;
    launch.argument_kinds = kinds;
    ok(d.table.kernel_launch(stream, fill, &launch), "kernel_launch");
    const std::vector<unsigned char> bytes = d.download(stream, memory, size);
    size_t ones = 0;
    for (const unsigned char byte : bytes) ones += static_cast<size_t>(__builtin_popcount(byte));
    EXPECT_NEAR(static_cast<double>(ones), 4.0 * size, 0.01 * 4.0 * size);  // random bits

    launch.shared_bytes = 1u << 30;
    EXPECT_SAYS(refused(d.table.kernel_launch(stream, fill, &launch), AA_INVALID_ARGUMENT), "shared memory");
    launch.shared_bytes = 64 << 10;  // more than without asking
    ok(d.table.kernel_launch(stream, fill, &launch), "kernel_launch with 64 KiB of shared memory");
    launch.shared_bytes = 0;
    launch.block[0] = 4096;
    EXPECT_SAYS(refused(d.table.kernel_launch(stream, fill, &launch), AA_INVALID_ARGUMENT), "ceiling_fill");
    ok(d.table.stream_destroy(stream));
    ok(d.table.module_unload(module));
    d.free(memory, size);
  });
}

// ---- errors that stay ------------------------------------------------------------------------------------------------

TEST_F(CudaDriver, ALostContextIsReportedAlwaysInTheSameWords) {
  struct Row {
    const char *fault, *text;
  };
  for (const Row& row :
       {Row{"sticky:command=2", "CUDA_ERROR_ILLEGAL_ADDRESS (700)"},
        Row{"launch_failed:command=2", "CUDA_ERROR_LAUNCH_FAILED (719)"}, Row{"device_lost:command=2", "CUDA_ERROR"}}) {
    const Simulated run({{"SIM_FAULT", row.fault}}, [&] {
      Opened d;
      char* memory = d.memory(4 * mebibyte);
      char* pinned = d.memory(1000, AA_MEMORY_PINNED);
      aa_stream *stream = d.stream(), *other = d.stream();
      aa_event* event = d.event();
      const uint32_t value = 5;
      ok(d.table.fill_async(stream, memory, &value, 4, 4000));
      ok(d.table.stream_synchronize(stream));
      ok(d.table.fill_async(stream, memory, &value, 4, 4000));  // fails on the device
      release_status(d.table.event_record(event, stream));      // may be the first to hear of it
      const std::string first = refused(d.table.stream_synchronize(stream), AA_DEVICE_LOST);
      EXPECT_SAYS(first, row.text);
      EXPECT_SAYS(first, "cuda:0");
      int32_t done = 0;
      void* pointer = nullptr;
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(refused(d.table.stream_query(stream, &done), AA_DEVICE_LOST), first);
        EXPECT_EQ(refused(d.table.stream_synchronize(other), AA_DEVICE_LOST), first);
        EXPECT_EQ(refused(d.table.event_query(event, &done), AA_DEVICE_LOST), first);
        EXPECT_EQ(refused(d.table.event_synchronize(event), AA_DEVICE_LOST), first);
        EXPECT_EQ(refused(d.table.device_synchronize(d.device()), AA_DEVICE_LOST), first);
        EXPECT_EQ(refused(d.table.mem_alloc(d.device(), AA_MEMORY_DEVICE, 1000, &pointer), AA_DEVICE_LOST), first);
        EXPECT_EQ(refused(d.table.fill_async(other, memory, &value, 4, 4000), AA_DEVICE_LOST), first);
      }
      // Everything can be freed and closed.
      ok(d.table.event_destroy(event));
      ok(d.table.stream_destroy(stream));
      ok(d.table.stream_destroy(other));
      d.free(pinned, 1000, AA_MEMORY_PINNED);
      d.free(memory, 4 * mebibyte);
    });
    EXPECT_TRUE(run.report["violations"].empty()) << run.report["violations"].dump(1);
  }
}

// ---- processes and threads -------------------------------------------------------------------------------------------

TEST_F(CudaDriver, AForkedChildIsToldWhatIsWrong) {
  Simulated({}, [] {
    Opened d;
    aa_stream* stream = d.stream();
    char* memory = d.memory(1000);
    EXPECT_TRUE(forked([&] {
      void* pointer = nullptr;
      int32_t done = 0;
      const uint32_t value = 0;
      for (const std::string& text :
           {refused(d.table.mem_alloc(d.device(), AA_MEMORY_DEVICE, 1000, &pointer), AA_FAILED_PRECONDITION),
            refused(d.table.stream_query(stream, &done), AA_FAILED_PRECONDITION),
            refused(d.table.fill_async(stream, memory, &value, 4, 1000), AA_FAILED_PRECONDITION),
            refused(d.table.stream_synchronize(stream), AA_FAILED_PRECONDITION)}) {
        EXPECT_SAYS(text, "fork()");
      }
      aa_device* device = nullptr;
      EXPECT_SAYS(refused(d.table.device_open(d.instance, 1, &device), AA_FAILED_PRECONDITION), "fork()");
      aa_memory_info info{};
      info.struct_size = sizeof(info);
      refused(d.table.mem_query(d.instance, memory, &info), AA_NOT_FOUND);
    }));
    // The parent can still use the driver.
    const uint32_t value = 0x01010101;
    ok(d.table.fill_async(stream, memory, &value, 4, 1000));
    EXPECT_EQ(d.download(stream, memory, 1000), std::vector<unsigned char>(1000, 1));
    ok(d.table.stream_destroy(stream));
    d.free(memory, 1000);
  }).clean();
}

TEST_F(CudaDriver, ThreadsWorkOnSeveralDevicesInTurns) {
  Simulated({{"SIM_DEVICES", "3"}}, [] {
    Opened d;
    for (size_t i = 0; i < 3; ++i) d.device(i);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        for (unsigned round = 0; round < 6; ++round) {
          const size_t index = (t + round) % 3;
          char* memory = d.memory(3000, AA_MEMORY_DEVICE, index);
          aa_stream* stream = d.stream(index);
          if (d.query(memory).device_index != static_cast<int32_t>(index)) ++wrong;
          const std::vector<unsigned char> bytes(3000, static_cast<unsigned char>(t * 16 + round));
          d.upload(stream, memory, bytes.data(), bytes.size());
          if (d.download(stream, memory, bytes.size()) != bytes) ++wrong;
          ok(d.table.stream_destroy(stream));
          d.free(memory, 3000, AA_MEMORY_DEVICE, index);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
  }).clean();
}

TEST_F(CudaDriver, OtherCodeMayChangeTheCurrentContext) {
  Simulated({{"SIM_DEVICES", "2"}}, [] {
    Opened d;
    const cuda::Api& api = *cuda::start_platform().api;
    cuda::ContextHandle second = nullptr;
    d.device(1);
    ASSERT_EQ(api.context_get_current(&second), cuda::success);
    aa_stream* stream = d.stream(0);
    char* memory = d.memory(1000);
    aa_event* event = d.event(0, AA_EVENT_TIMING);
    aa_module* module = nullptr;
    aa_kernel* kernel = nullptr;
    ASSERT_TRUE(load(d, "SIMCUBIN\narch sm_90\nkernel nothing\n", "cubin", &module).ok());
    ok(d.table.kernel_get(module, "nothing", &kernel, nullptr));
    const int32_t unused = 0;
    const void* arguments[] = {&unused};
    const uint32_t sizes[] = {sizeof(unused)};
    const uint8_t kinds[] = {AA_ARGUMENT_VALUE};
    auto launch = abi::sized<aa_launch>();
    for (size_t i = 0; i < 3; ++i) launch.grid[i] = launch.block[i] = 1;
    launch.argument_count = 1;
    launch.arguments = arguments;
    launch.argument_sizes = sizes;
    launch.argument_kinds = kinds;
    const uint32_t value = 7;
    int32_t done = 0;
    for (cuda::ContextHandle theirs : {cuda::ContextHandle{nullptr}, second}) {
      const auto meddle = [&] { ASSERT_EQ(api.context_set_current(theirs), cuda::success); };
      meddle();
      ok(d.table.kernel_launch(stream, kernel, &launch), "kernel_launch");
      meddle();
      ok(d.table.fill_async(stream, memory, &value, 4, 1000), "fill_async");
      meddle();
      ok(d.table.event_record(event, stream), "event_record");
      meddle();
      ok(d.table.stream_synchronize(stream), "stream_synchronize");
      meddle();
      ok(d.table.event_query(event, &done), "event_query");
      meddle();
      char* more = d.memory(1000);
      EXPECT_EQ(d.query(more).device_index, 0);
      meddle();
      d.free(more, 1000);
      meddle();
      aa_stream* another = d.stream(0);
      ok(d.table.stream_synchronize(another));
      ok(d.table.stream_destroy(another));
    }
    ok(d.table.event_destroy(event));
    ok(d.table.module_unload(module));
    ok(d.table.stream_destroy(stream));
    d.free(memory, 1000);
  });
}

}  // namespace
}  // namespace anyaccel::cuda_test
