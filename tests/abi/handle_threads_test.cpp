// Functions that the headers mark T: several threads inside one device, one stream and one event at once. Run with the thread
// sanitizer, on the CPU's driver and on the asynchronous reference driver.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "accelerators/cpu/cpu_driver.h"
#include "anyaccel/detection.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"
#include "this_build.h"

namespace anyaccel {
namespace {

void many_threads_in_one_handle(const abi::DriverCalls& table) {
  const auto ok = [](aa_status* status) {
    const StatusRef owner(status);
    EXPECT_TRUE(owner.ok() || owner.code() == AA_UNIMPLEMENTED) << owner.text();
  };
  auto params = abi::sized<aa_initialize_params>();
  aa_instance* instance = nullptr;
  aa_device* device = nullptr;
  aa_stream* stream = nullptr;
  aa_event* shared = nullptr;
  ok(table.initialize(&params, &instance));
  ok(table.device_open(instance, 0, &device));
  ok(table.stream_create(device, 0, 0, &stream));
  ok(table.event_create(device, 0, &shared));
  std::atomic<int> calls{0};
  constexpr int thread_count = 4, rounds = 60;
  std::vector<std::thread> threads;
  for (int t = 0; t < thread_count; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < rounds; ++i) {
        const size_t size = 4096;
        void *from = nullptr, *to = nullptr;
        ok(table.mem_alloc(device, AA_MEMORY_DEVICE, size, &from));
        ok(table.mem_alloc(device, AA_MEMORY_DEVICE, size, &to));
        const auto value = static_cast<unsigned char>(t * rounds + i);
        ok(table.fill_async(stream, from, &value, 1, size));
        ok(table.copy_async(stream, to, from, size, AA_COPY_DEVICE_TO_DEVICE));
        ok(table.stream_host_call(
            stream, [](void* user) { ++*static_cast<std::atomic<int>*>(user); }, &calls));
        aa_event* own = nullptr;
        int32_t done = 0;
        ok(table.event_create(device, 0, &own));
        ok(table.event_record(own, stream));
        ok(table.event_record(shared, stream));
        ok(table.event_query(shared, &done));
        ok(table.stream_wait_event(stream, shared));
        ok(table.stream_query(stream, &done));
        if (i % 8 == 0) ok(table.device_synchronize(device));
        std::vector<unsigned char> found(size);
        ok(table.copy_async(stream, found.data(), to, size, AA_COPY_DEVICE_TO_HOST));
        ok(table.stream_synchronize(stream));
        EXPECT_EQ(found, std::vector<unsigned char>(size, value));
        ok(table.event_synchronize(own));
        ok(table.event_synchronize(shared));
        ok(table.event_destroy(own));
        auto info = abi::sized<aa_memory_info>();
        ok(table.mem_query(instance, from, &info));
        int64_t free = 0, total = 0;
        ok(table.device_memory_info(device, &free, &total));
        ok(table.mem_free(device, AA_MEMORY_DEVICE, from, size));
        ok(table.mem_free(device, AA_MEMORY_DEVICE, to, size));
        aa_stream* second = nullptr;
        ok(table.stream_create(device, 0, AA_STREAM_NON_BLOCKING, &second));
        ok(table.stream_destroy(second));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(calls, thread_count * rounds);
  ok(table.event_destroy(shared));
  ok(table.stream_destroy(stream));
  ok(table.device_close(device));
  ok(table.shutdown(instance));
}

TEST(HandleThreads, Cpu) {
  many_threads_in_one_handle(*complete_table(
      anyaccel_cpu_driver_query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services()), "built in"));
}

TEST(HandleThreads, AsynchronousReferenceDriver) {
  many_threads_in_one_handle(*load_plugin(test::built("tests/plugins/reference_async.so")).table);
}

}  // namespace
}  // namespace anyaccel
