// Cases of threads: concurrent calls with separate handles, and the functions that may be called from any thread.
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "conformance/context.h"

namespace anyaccel::conformance {
namespace thread_group {
namespace {

constexpr int thread_total = 4;

// Runs `body(number)` on several threads at once; the first failure is the case's.
void on_threads(const std::function<void(int)>& body) {
  std::mutex mutex;
  std::string failure;
  std::string missing;
  const auto keep = [&](std::string& text, const std::string& message) {
    std::lock_guard lock(mutex);
    if (text.empty()) text = message;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < thread_total; ++t) {
    threads.emplace_back([&, t] {
      try {
        body(t);
      } catch (const Failed& failed) {
        keep(failure, failed.message);
      } catch (const Unavailable& unavailable) {
        keep(failure, unavailable.message);
      } catch (const Unsupported& unsupported) {
        keep(missing, unsupported.message);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!failure.empty()) throw Failed{"on one of " + std::to_string(thread_total) + " threads: " + failure};
  if (!missing.empty()) throw Unsupported{missing};
}

void own_streams_and_memory(const Context& c) {
  on_threads([&](int t) {
    for (unsigned round = 0; round < 10; ++round) {
      const size_t size = 5000 + 3001 * static_cast<size_t>(t);
      Stream stream(c);
      Memory first(c, size);
      Memory second(c, size);
      const Bytes data = pattern(size, 100 * static_cast<unsigned>(t) + round);
      Bytes found(size);
      c.ok(c.driver.copy_async(stream, first.data(), data.data(), size, AA_COPY_HOST_TO_DEVICE), "copy_async");
      c.ok(c.driver.copy_async(stream, second.data(), first.data(), size, AA_COPY_DEVICE_TO_DEVICE), "copy_async");
      c.ok(c.driver.copy_async(stream, found.data(), second.data(), size, AA_COPY_DEVICE_TO_HOST), "copy_async");
      c.ok(c.driver.stream_synchronize(stream), "stream_synchronize");
      expect_equal(found, data, "what a thread copied through its own memory on its own stream");
    }
  });
}

void own_events(const Context& c) {
  on_threads([&](int t) {
    Bytes data(40000);
    Bytes found(data.size());
    Memory memory(c, data.size());
    Stream producer(c);
    Stream consumer(c);
    for (unsigned round = 0; round < 5; ++round) {
      Event event(c);
      data = pattern(data.size(), 10 * static_cast<unsigned>(t) + round);
      c.ok(c.driver.copy_async(producer, memory.data(), data.data(), data.size(), AA_COPY_HOST_TO_DEVICE),
           "copy_async");
      c.ok(c.driver.event_record(event, producer), "event_record");
      c.ok_or_unsupported(c.driver.stream_wait_event(consumer, event), "stream_wait_event");
      c.ok(c.driver.copy_async(consumer, found.data(), memory.data(), data.size(), AA_COPY_DEVICE_TO_HOST),
           "copy_async");
      c.ok(c.driver.stream_synchronize(consumer), "stream_synchronize");
      expect_equal(found, data, "what a thread's stream reads after its event");
      c.ok(c.driver.stream_synchronize(producer), "stream_synchronize");
    }
  });
}

void queries_while_work_runs(const Context& c) {
  // One stream with work, queried from every thread at once; mem_query too.
  const Bytes data = pattern(size_t{4} << 20, 1);  // outlives the stream's work, however the case ends
  Memory memory(c, data.size());
  Stream stream(c);
  for (int i = 0; i < 4; ++i) {
    c.ok(c.driver.copy_async(stream, memory.data(), data.data(), data.size(), AA_COPY_HOST_TO_DEVICE), "copy_async");
  }
  on_threads([&](int) {
    for (size_t i = 0; i < 100; ++i) {
      int32_t done = -1;
      c.ok_or_unsupported(c.driver.stream_query(stream, &done), "stream_query");
      c.expect(done == 0 || done == 1, "stream_query gave neither 0 nor 1");
      aa_memory_info info{};
      info.struct_size = sizeof(info);
      c.ok_or_unsupported(c.driver.mem_query(c.instance, memory.data() + 1000 * i, &info), "mem_query");
      c.expect(info.base == memory.data(), "mem_query gave a wrong base");
    }
  });
  c.ok(c.driver.stream_synchronize(stream), "stream_synchronize");
}

void objects_cross_threads(const Context& c) {
  // Objects are created on one thread, used on a second and destroyed on a third: no thread is special.
  aa_stream* stream = nullptr;
  void* pointer = nullptr;
  constexpr size_t size = 70000;
  const Bytes data = pattern(size, 2);
  Bytes found(size);
  std::string failure;
  const auto on_another = [&](const std::function<void()>& body) {
    std::thread([&] {
      try {
        body();
      } catch (const Failed& failed) {
        failure = failed.message;
      } catch (const Unavailable& unavailable) {
        failure = unavailable.message;
      }
    }).join();
  };
  on_another([&] {
    c.ok(c.driver.stream_create(c.device, 0, AA_STREAM_NON_BLOCKING, &stream), "stream_create");
    c.ok(c.driver.mem_alloc(c.device, AA_MEMORY_DEVICE, size, &pointer), "mem_alloc");
  });
  if (failure.empty()) {
    on_another([&] {
      c.ok(c.driver.copy_async(stream, pointer, data.data(), size, AA_COPY_HOST_TO_DEVICE), "copy_async");
      c.ok(c.driver.copy_async(stream, found.data(), pointer, size, AA_COPY_DEVICE_TO_HOST), "copy_async");
      c.ok(c.driver.stream_synchronize(stream), "stream_synchronize");
    });
  }
  on_another([&] {
    if (stream) c.ok(c.driver.stream_destroy(stream), "stream_destroy");
    if (pointer) c.ok(c.driver.mem_free(c.device, AA_MEMORY_DEVICE, pointer, size), "mem_free");
  });
  c.expect(failure.empty(), "on another thread than its maker's: " + failure);
  expect_equal(found, data, "a copy on another thread than the stream's maker");
}

constexpr Case cases[] = {
    {"threads", "own_streams_and_memory", own_streams_and_memory},
    {"threads", "own_events", own_events},
    {"threads", "queries_while_work_runs", queries_while_work_runs},
    {"threads", "objects_cross_threads", objects_cross_threads},
};

}  // namespace
}  // namespace thread_group

std::span<const Case> thread_cases() { return thread_group::cases; }

}  // namespace anyaccel::conformance
