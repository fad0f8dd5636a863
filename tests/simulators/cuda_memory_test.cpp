// The simulated CUDA driver: memory, copies, virtual memory, default streams and events.
#include "tests/simulators/cuda_face.h"

namespace {

using namespace cuda_face;  // NOLINT

const auto per_thread_stream = reinterpret_cast<StreamHandle>(2);  // NOLINT: CUDA's number for it

TEST_F(CudaFace, PageableMemoryIsTakenAtTheCallAndPinnedMemoryLater) {
  const auto report = run([] {
    Program p;
    const auto stream = p.stream();
    const auto a = p.allocate(12);
    int pageable = 1, registered = 1;
    auto* pinned = p.pinned<int>(1);
    *pinned = 1;
    CU_OK(api().host_register(&registered, sizeof registered, host_register_portable));
    Gate gate(stream);
    CU_OK(p.copy(a, &pageable, 4, stream));
    CU_OK(p.copy(a + 4, pinned, 4, stream));
    CU_OK(p.copy(a + 8, &registered, 4, stream));
    pageable = *pinned = registered = 2;
    gate.open();
    int seen[3] = {};
    CU_OK(p.copy(seen, a, 12, stream));  // to pageable memory: has ended when the call returns
    CHECK(seen[0] == 1 && seen[1] == 2 && seen[2] == 2);
    CU_OK(api().host_unregister(&registered));
    CU_OK(api().host_free(pinned));
    CU_OK(api().memory_free(a));
    CU_OK(api().stream_destroy(stream));
  });
  EXPECT_EQ(kinds(report), "");
  EXPECT_EQ(report.at("leaks"), nlohmann::json::array());
}

TEST_F(CudaFace, CopiesAndFillsAreChecked) {
  const auto report = run([] {
    Program p;
    const auto stream = p.stream();
    const auto a = p.allocate(64), freed = p.allocate(64);
    char host[64] = {};
    CU_OK(api().memory_free(freed));
    CU_IS(error_invalid_value, p.copy(a, host, 65, stream));
    CU_IS(error_invalid_value, p.copy(a, nullptr, 1, stream));
    CU_IS(error_invalid_value, p.copy(freed, host, 1, stream));
    CU_IS(error_invalid_value, p.copy(a + (1 << 20), host, 1, stream));
    CU_IS(error_invalid_value, api().copy_async(a, a + 8, 16, stream));
    CU_IS(error_invalid_value, api().fill_32_async(a + 2, 0, 1, stream));
    CU_IS(error_invalid_value, api().fill_16_async(a + 1, 0, 1, stream));
    CU_IS(error_invalid_value, api().fill_32_async(a, 0, 17, stream));
    CU_IS(error_invalid_value, api().fill_8_async(device_address(host), 0, 1, stream));
    CU_IS(error_invalid_value, api().fill_2d_32_async(a, 4, 0, 2, 2, stream));
    CU_OK(api().fill_8_async(a, 0x11, 64, stream));
    CU_OK(api().fill_16_async(a + 2, 0x2222, 3, stream));
    CU_OK(api().fill_2d_32_async(a + 16, 16, 0x33333333, 2, 3, stream));
    CU_OK(p.copy(host, a, 64, stream));
    std::string text;
    for (const char c : host) text += "01234"[c & 0xf];
    CHECK(text ==
          "1122222211111111"
          "3333333311111111"
          "3333333311111111"
          "3333333311111111");
    auto* to_device = symbol<int(DevicePointer, const void*, std::size_t, StreamHandle)>("cuMemcpyHtoDAsync_v2");
    CU_OK(to_device(a, host, 64, stream));
    CU_IS(error_invalid_value, to_device(device_address(host), host, 8, stream));
  });
  EXPECT_EQ(kinds(report),
            "out-of-bounds,bad-argument,use-after-free,bad-pointer,bad-argument,bad-argument,bad-argument,"
            "out-of-bounds,bad-pointer,bad-argument,bad-pointer");
}

TEST_F(CudaFace, MemoryIsGivenBackOnceAndWhenItIsNotUsed) {
  const auto report = run([] {
    Program p;
    const auto stream = p.stream();
    const auto a = p.allocate(64), used = p.allocate(64);
    auto* host = p.pinned(64);
    CU_IS(error_invalid_value, api().memory_free(a + 8));
    CU_OK(api().memory_free(a));
    CU_IS(error_invalid_value, api().memory_free(a));
    CU_IS(error_invalid_value, api().memory_free(device_address(&stream)));
    CU_IS(error_invalid_value, api().memory_free(device_address(host)));
    CU_OK(p.copy(used, host, 64, stream));
    const auto event = p.event();
    CU_OK(api().event_record(event, stream));
    while (api().event_query(event) == error_not_ready) std::this_thread::yield();
    CU_OK(api().memory_free(used));  // the query has seen the end
    const auto again = p.allocate(64);
    CU_OK(p.copy(again, host, 64, stream));
    while (api().stream_query(stream) == error_not_ready) std::this_thread::yield();
    CU_OK(api().host_free(host));
    CU_OK(api().fill_8_async(again, 0, 64, stream));
    static std::atomic<bool> ran = false;
    CU_OK(api().launch_host_function(
        stream, [](void*) { ran = true; }, nullptr));
    while (!ran) std::this_thread::yield();
    CU_OK(api().memory_free(again));  // it has run, but nothing of CUDA's said so
    CU_OK(api().stream_synchronize(stream));
  });
  EXPECT_EQ(kinds(report), "bad-free,double-free,bad-free,wrong-owner,free-while-in-use");
}

// Opens a gate from another thread a little later; a call that does not wait for the held stream returns before.
class LaterOpened {
 public:
  explicit LaterOpened(StreamHandle stream)
      : gate_(stream), thread_([this] {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          open_ = true;
          gate_.open();
        }) {}
  ~LaterOpened() { thread_.join(); }
  bool open() const { return open_; }

 private:
  Gate gate_;
  std::atomic<bool> open_ = false;
  std::thread thread_;
};

TEST_F(CudaFace, FreeingWaitsForTheContext) {
  EXPECT_EQ(kinds_of([] {
              Program p;
              const auto held = p.stream();
              const auto a = p.allocate(64);
              auto* host = p.pinned(64);
              for (const bool of_host : {false, true}) {
                const LaterOpened later(held);
                CU_OK(of_host ? api().host_free(host) : api().memory_free(a));
                CHECK(later.open());
              }
              CU_OK(api().stream_synchronize(held));
            }),
            "");
}

TEST_F(CudaFace, KernelsAreLoadedAtTheFirstLaunch) {
  const auto program = [](bool lazy) {
    Program p;
    const auto held = p.stream(), free = p.stream();
    const auto a = p.allocate(64);
    CU_OK(api().fill_8_async(a, 0, 64, free));
    const auto function = p.function(p.module());
    if (lazy) {
      const LaterOpened later(held);
      CU_OK(p.scale(function, free, a, a, 2, 8));
      CHECK(later.open());
    }
    Gate gate(held);
    CU_OK(p.scale(function, free, a, a, 2, 8));  // hangs if it waits
    gate.open();
    CU_OK(api().stream_synchronize(held));
    CU_OK(api().stream_synchronize(free));
  };
  EXPECT_EQ(kinds_of([&] { program(true); }), "");
  EXPECT_EQ(kinds_of([&] { program(false); }, {{"CUDA_MODULE_LOADING", "EAGER"}}), "");
  EXPECT_EQ(kinds_of([&] { program(false); }, {{"SIM_CUDA_VERSION", "12010"}}), "");
}

TEST_F(CudaFace, HostMemoryIsRegisteredOnce) {
  const auto report = run([] {
    Program p;
    static char bytes[64];
    CU_OK(api().host_register(bytes + 16, 32, 0));
    CU_IS(error_host_memory_already_registered, api().host_register(bytes, 17, 0));
    CU_IS(error_host_memory_already_registered, api().host_register(bytes + 47, 1, 0));
    CU_OK(api().host_register(bytes + 48, 16, 0));
    CU_IS(error_host_memory_not_registered, api().host_unregister(bytes + 17));
    CU_IS(error_invalid_value, api().host_free(bytes + 16));
    unsigned type = 0;
    CU_OK(api().pointer_attribute(&type, pointer_memory_type, device_address(bytes + 20)));
    CHECK(type == 1);
    // A copy that goes beyond what is registered.
    const auto a = p.allocate(64);
    CU_IS(error_invalid_value, p.copy(a, bytes + 16, 33, p.stream()));
    CU_OK(api().host_unregister(bytes + 16));
    CU_OK(api().host_unregister(bytes + 48));
    CU_IS(error_host_memory_not_registered, api().host_unregister(bytes + 16));
    CU_IS(error_invalid_value, api().pointer_attribute(&type, pointer_memory_type, device_address(bytes + 20)));
    CU_OK(api().memory_free(a));
  });
  EXPECT_EQ(kinds(report), "bad-free,out-of-bounds");
}

TEST_F(CudaFace, PointersTellWhatTheyAre) {
  EXPECT_EQ(kinds_of([] {
              Program p;
              const auto a = p.allocate(1000);
              DevicePointer managed = 0;
              CU_OK(api().memory_alloc_managed(&managed, 64, mem_attach_global));
              *reinterpret_cast<int*>(managed) = 5;  // the host may
              unsigned type = 0, is_managed = 9;
              int ordinal = -1;
              DevicePointer start = 0;
              std::size_t bytes = 0;
              CU_OK(api().pointer_attribute(&type, pointer_memory_type, a + 100));
              CU_OK(api().pointer_attribute(&ordinal, pointer_device_ordinal, a + 100));
              CU_OK(api().pointer_attribute(&start, pointer_range_start, a + 100));
              CU_OK(api().pointer_attribute(&bytes, pointer_range_size, a + 100));
              CU_OK(api().pointer_attribute(&is_managed, pointer_is_managed, a));
              CHECK(type == 2 && ordinal == 0 && start == a && bytes == 1000 && is_managed == 0);
              CU_OK(api().pointer_attribute(&is_managed, pointer_is_managed, managed));
              CHECK(is_managed == 1);
              CU_IS(error_invalid_value, api().pointer_attribute(&type, pointer_memory_type, a + 1000));
              CU_IS(error_invalid_value, api().pointer_attribute(&type, pointer_memory_type, device_address(&type)));
            }),
            "");
}

TEST_F(CudaFace, TheHostCannotTouchDeviceMemory) {
  EXPECT_DEATH(
      {
        const Program p;
        *reinterpret_cast<volatile char*>(p.allocate(64)) = 1;
      },
      "");
}

// ---- virtual memory ----------------------------------------------------------------------------------------------------

constexpr std::size_t kGrain = std::size_t{2} << 20;
AllocationProperties on_device(int device) {
  AllocationProperties properties{};
  properties.type = 1;
  properties.location = {1, device};
  return properties;
}
AllocationHandle create(std::size_t bytes, int device = 0) {
  const auto properties = on_device(device);
  AllocationHandle handle = 0;
  CU_OK(api().allocation_create(&handle, bytes, &properties, 0));
  return handle;
}
DevicePointer reserve(std::size_t bytes) {
  DevicePointer pointer = 0;
  CU_OK(api().address_reserve(&pointer, bytes, 0, 0, 0));
  return pointer;
}
int set_access(DevicePointer pointer, std::size_t bytes, int device = 0, int flags = 3) {
  const AccessDescription description = {{1, device}, flags};
  return api().memory_set_access(pointer, bytes, &description, 1);
}

TEST_F(CudaFace, VirtualMemoryGrowsInPlace) {
  const auto report = run([] {
    Program p;
    const auto stream = p.stream();
    const auto properties = on_device(0);
    std::size_t grain = 0, free = 0, total = 0;
    CU_OK(api().allocation_granularity(&grain, &properties, 0));
    CHECK(grain == kGrain);
    const auto base = reserve(8 * kGrain);
    const auto first = create(kGrain), second = create(2 * kGrain);
    CU_OK(api().memory_info(&free, &total));
    CHECK(total - free == 3 * kGrain);
    CU_OK(api().memory_map(base, kGrain, 0, first, 0));
    CU_OK(set_access(base, kGrain));
    CU_OK(api().fill_8_async(base, 1, kGrain, stream));
    CU_OK(api().memory_map(base + kGrain, 2 * kGrain, 0, second, 0));
    CU_OK(set_access(base + kGrain, 2 * kGrain));
    CU_OK(api().allocation_release(second));  // lives on behind its mapping
    // Over the seam, with a kernel too.
    CU_OK(api().fill_8_async(base + kGrain - 128, 2, 256, stream));
    const auto module = p.module();
    CU_OK(p.scale(p.function(module), stream, base + kGrain - 64, base + kGrain - 64, 1.0f, 32));
    char seen[4] = {};
    CU_OK(p.copy(seen, base + kGrain - 2, 4, stream));
    CHECK(seen[0] == 2 && seen[3] == 2);
    int ordinal = -1;
    CU_OK(api().pointer_attribute(&ordinal, pointer_device_ordinal, base + kGrain));
    CHECK(ordinal == 0);
    CU_OK(api().stream_synchronize(stream));

    // The same memory at another address keeps what is in it.
    CU_OK(api().memory_unmap(base, kGrain));
    CU_OK(api().memory_map(base + 4 * kGrain, kGrain, 0, first, 0));
    CU_OK(set_access(base + 4 * kGrain, kGrain));
    CU_OK(p.copy(seen, base + 4 * kGrain, 4, stream));
    CHECK(seen[0] == 1);
    CU_OK(api().memory_unmap(base + kGrain, 2 * kGrain));
    CU_OK(api().memory_info(&free, &total));
    CHECK(total - free == kGrain);
    CU_OK(api().memory_unmap(base + 4 * kGrain, kGrain));
    CU_OK(api().allocation_release(first));
    CU_OK(api().address_free(base, 8 * kGrain));
    CU_OK(api().memory_info(&free, &total));
    CHECK(total == free);
    CU_OK(api().module_unload(module));
    CU_OK(api().stream_destroy(stream));
  });
  EXPECT_EQ(kinds(report), "");
  EXPECT_EQ(report.at("leaks"), nlohmann::json::array());
}

TEST_F(CudaFace, VirtualMemoryHasItsRules) {
  const auto report = run([] {
    Program p;
    const auto stream = p.stream();
    auto properties = on_device(0);
    AllocationHandle handle = 0;
    DevicePointer pointer = 0;
    CU_IS(error_invalid_value, api().allocation_create(&handle, kGrain + 1, &properties, 0));
    CU_IS(error_invalid_value, api().address_reserve(&pointer, 4096, 0, 0, 0));
    properties.location.id = 7;
    CU_IS(error_invalid_device, api().allocation_create(&handle, kGrain, &properties, 0));
    const auto base = reserve(4 * kGrain);
    const auto memory = create(2 * kGrain);
    CU_IS(error_invalid_value, api().memory_map(base, kGrain, 0, memory, 0));  // a part of it
    CU_IS(error_invalid_value, api().memory_map(base + 4096, 2 * kGrain, 0, memory, 0));
    CU_IS(error_invalid_value, api().memory_map(base + 3 * kGrain, 2 * kGrain, 0, memory, 0));
    CU_IS(error_invalid_value, set_access(base, 2 * kGrain));  // nothing is mapped
    CU_OK(api().memory_map(base, 2 * kGrain, 0, memory, 0));
    CU_IS(error_invalid_value, api().memory_map(base + kGrain, 2 * kGrain, 0, memory, 0));
    CU_IS(error_invalid_value, api().memory_unmap(base, kGrain));  // a part of it
    CU_IS(error_invalid_value, api().address_free(base, 4 * kGrain));
    CU_IS(error_invalid_value, api().fill_8_async(base, 0, 64, stream));  // no access was given
    CU_OK(set_access(base, 2 * kGrain));
    CU_OK(api().fill_8_async(base, 0, 64, stream));
    CU_IS(error_invalid_value, api().fill_8_async(base, 0, 2 * kGrain + 1, stream));
    CU_OK(api().stream_synchronize(stream));
    CU_OK(api().fill_8_async(base, 0, 64, stream));
    static std::atomic<bool> ran = false;
    CU_OK(api().launch_host_function(
        stream, [](void*) { ran = true; }, nullptr));
    while (!ran) std::this_thread::yield();
    CU_OK(api().memory_unmap(base, 2 * kGrain));
    CU_IS(error_invalid_value, api().memory_unmap(base, 2 * kGrain));
    CU_OK(api().allocation_release(memory));
    CU_IS(error_invalid_value, api().allocation_release(memory));
    CU_OK(api().address_free(base, 4 * kGrain));
    CU_IS(error_invalid_value, api().address_free(base, 4 * kGrain));
    CU_OK(api().stream_synchronize(stream));
  });
  EXPECT_EQ(kinds(report),
            "bad-argument,bad-argument,bad-argument,mapping-state,bad-argument,mapping-state,mapping-state,"
            "mapping-state,mapping-state,mapping-state,out-of-bounds,out-of-bounds,free-while-in-use,mapping-state,"
            "bad-handle,mapping-state");
}

TEST_F(CudaFace, AKernelNeedsAccessToVirtualMemory) {
  // Access of the other device only: a copy may (any device's), this device's kernel may not.
  const auto report = run([] {
    Program p;
    const auto stream = p.stream();
    const auto base = reserve(kGrain);
    const auto memory = create(kGrain);
    CU_OK(api().memory_map(base, kGrain, 0, memory, 0));
    CU_OK(set_access(base, kGrain, 1));
    CU_OK(p.scale(p.function(p.module()), stream, base, base, 1.0f, 32));
    CU_IS(700, api().stream_synchronize(stream));
  });
  EXPECT_EQ(kinds(report), "out-of-bounds");
}

// ---- streams -----------------------------------------------------------------------------------------------------------

TEST_F(CudaFace, TheLegacyStreamAndBlockingOnesWaitForEachOther) {
  const auto report = run([] {
    Program p;
    const auto a = p.allocate(64);
    const auto one = p.stream(true), two = p.stream(true), free_running = p.stream();
    Gate gate(one);
    CU_OK(api().fill_8_async(a, 1, 64, one));
    CU_OK(api().fill_8_async(a, 2, 64, nullptr));  // after `one`
    CU_OK(api().fill_8_async(a, 3, 64, two));      // after the legacy stream
    CU_OK(api().stream_synchronize(free_running));
    CU_IS(error_not_ready, api().stream_query(one));
    CU_IS(error_not_ready, api().stream_query(nullptr));
    CU_IS(error_not_ready, api().stream_query(two));
    gate.open();
    CU_OK(api().fill_8_async(a, 4, 64, per_thread_stream));
    CU_OK(api().fill_8_async(a, 5, 64, reinterpret_cast<StreamHandle>(1)));
    char seen = 0;
    CU_OK(p.copy(&seen, a, 1, nullptr));
    CHECK(seen == 5);
    CU_OK(api().memory_free(a));
  });
  EXPECT_EQ(kinds(report), "race");  // between `two` and the per-thread stream, which nothing orders
}

TEST_F(CudaFace, NonBlockingStreamsRaceWithTheLegacyOne) {
  const auto program = [](bool blocking) {
    Program p;
    const auto a = p.allocate(64);
    const auto stream = p.stream(blocking);
    CU_OK(api().fill_8_async(a, 1, 64, stream));
    CU_OK(api().fill_8_async(a, 2, 64, nullptr));
    CU_OK(api().context_synchronize());
    CU_OK(api().stream_destroy(stream));
    CU_OK(api().memory_free(a));
  };
  EXPECT_EQ(kinds_of([&] { program(true); }), "");
  EXPECT_EQ(kinds_of([&] { program(false); }), "race");
}

TEST_F(CudaFace, ADestroyedStreamRunsItsWorkToTheEnd) {
  EXPECT_EQ(kinds_of([] {
              Program p;
              const auto a = p.allocate(64);
              const auto stream = p.stream(true);
              Gate gate(stream);
              CU_OK(api().fill_8_async(a, 7, 64, stream));
              CU_OK(api().stream_destroy(stream));
              char seen = 0;
              gate.open();
              CU_OK(p.copy(&seen, a, 1, nullptr));  // the legacy stream waits for blocking ones, destroyed or not
              CHECK(seen == 7);
              CU_OK(api().memory_free(a));
            }),
            "");
}

TEST_F(CudaFace, HostFunctionsMayNotCallTheDriver) {
  EXPECT_EQ(kinds_of([] {
              Program p;
              const auto stream = p.stream();
              static int result = -1;
              CU_OK(api().launch_host_function(
                  stream, [](void*) { result = api().stream_query(nullptr); }, nullptr));
              CU_OK(api().stream_synchronize(stream));
              CHECK(result == error_not_permitted);
            }),
            "callback");
}

// ---- events ------------------------------------------------------------------------------------------------------------

TEST_F(CudaFace, EventsFollowTheirRules) {
  const auto report = run([] {
    Program p;
    const auto stream = p.stream(), other = p.stream();
    const auto start = p.event(0), end = p.event(0), untimed = p.event(), fresh = p.event(0);
    float milliseconds = 0;
    CU_OK(api().event_query(fresh));  // never recorded: nothing to wait for
    CU_OK(api().event_synchronize(fresh));
    CU_OK(api().stream_wait_event(stream, fresh, 0));
    CU_OK(api().event_record(start, stream));
    Gate gate(stream);
    CU_OK(api().event_record(end, stream));
    CU_OK(api().event_record(untimed, stream));
    CU_IS(error_not_ready, api().event_query(end));
    CU_IS(error_not_ready, api().event_elapsed(&milliseconds, start, end));
    CU_IS(error_invalid_handle, api().event_elapsed(&milliseconds, start, untimed));
    CU_IS(error_invalid_handle, api().event_elapsed(&milliseconds, start, fresh));
    CU_OK(api().stream_wait_event(other, end, 0));
    CU_OK(api().event_record(end, p.stream()));  // recorded anew: who waits already still waits for the first time
    CU_OK(api().event_synchronize(end));
    CU_IS(error_not_ready, api().stream_query(other));
    gate.open();
    CU_OK(api().stream_synchronize(other));
    CU_OK(api().event_destroy(end));
    CU_IS(error_invalid_handle, api().event_query(end));
    EventHandle shared = nullptr;
    CU_IS(error_not_supported, api().event_create(&shared, 6));
  });
  EXPECT_EQ(kinds(report), "event-state,event-state,bad-handle,bad-argument");
}

TEST_F(CudaFace, EventsOrderDevices) {
  const auto program = [](bool wait) {
    Program p;
    const auto a = p.allocate(64);
    const auto stream = p.stream();
    const auto event = p.event();
    ContextHandle second = nullptr;
    CU_OK(api().primary_context_retain(&second, 1));
    CU_OK(api().context_set_current(second));
    const auto b = p.allocate(64);
    const auto other = p.stream();
    CU_OK(api().context_set_current(p.context));
    CU_OK(api().fill_8_async(a, 6, 64, stream));
    CU_OK(api().event_record(event, stream));
    CU_OK(api().context_set_current(second));
    if (wait) CU_OK(api().stream_wait_event(other, event, 0));
    CU_OK(api().copy_async(b, a, 64, other));
    char seen = 0;
    CU_OK(p.copy(&seen, b, 1, other));
    CHECK(!wait || seen == 6);
    CU_OK(api().stream_synchronize(stream));
  };
  EXPECT_EQ(kinds_of([&] { program(true); }), "");
  EXPECT_EQ(kinds_of([&] { program(false); }), "race");
}

}  // namespace
