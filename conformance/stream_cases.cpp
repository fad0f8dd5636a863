// Cases of streams, host calls, and the promises about when work runs.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "conformance/context.h"

namespace anyaccel::conformance {
namespace stream_group {
namespace {

constexpr size_t size = size_t{2} << 20;

bool is_done(const Context& c, aa_stream* stream) {
  int32_t done = -1;
  c.ok_or_unsupported(c.driver.stream_query(stream, &done), "stream_query");
  c.expect(done == 0 || done == 1, "stream_query gave " + std::to_string(done) + ", not 0 or 1");
  return done == 1;
}

void any_priority_and_flag(const Context& c) {
  for (const int32_t priority : {0, -1, 1, -1000, 1000}) {
    for (const uint32_t flags : {AA_STREAM_DEFAULT, AA_STREAM_NON_BLOCKING}) {
      Stream stream(c, priority, flags);
      c.ok(c.driver.stream_synchronize(stream),
           "stream_synchronize of a stream of priority " + std::to_string(priority));
    }
  }
}

void destroy_reports_success(const Context& c) {
  aa_stream* stream = nullptr;
  c.ok(c.driver.stream_create(c.device, 0, AA_STREAM_DEFAULT, &stream), "stream_create");
  c.ok(c.driver.stream_destroy(stream), "stream_destroy");
}

void query_tells_completion(const Context& c) {
  Stream stream(c);
  c.expect(is_done(c, stream), "a new stream has work to do");
  Memory memory(c, size);
  const Bytes data = pattern(size, 1);
  c.ok(c.driver.copy_async(stream, memory.data(), data.data(), size, AA_COPY_HOST_TO_DEVICE), "copy_async");
  c.ok(c.driver.stream_synchronize(stream), "stream_synchronize");
  c.expect(is_done(c, stream), "a stream is not done after stream_synchronize");
}

void query_becomes_done_by_itself(const Context& c) {
  const Bytes data = pattern(size, 2);
  Memory memory(c, size);
  Stream stream(c);  // last, so that it has completed before the case ends and the copy's memory is freed
  c.ok(c.driver.copy_async(stream, memory.data(), data.data(), size, AA_COPY_HOST_TO_DEVICE), "copy_async");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!is_done(c, stream)) {
    c.expect(std::chrono::steady_clock::now() < end, "a copy did not complete in 10 seconds without a wait");
    std::this_thread::yield();
  }
}

void destroy_waits_for_work(const Context& c) {
  Memory memory(c, size);
  const Bytes data = pattern(size, 3);
  c.upload(memory.data(), data.data(), size);
  Bytes found(size);
  Stream stream(c);
  c.ok(c.driver.copy_async(stream, found.data(), memory.data(), size, AA_COPY_DEVICE_TO_HOST), "copy_async");
  stream.destroy();
  expect_equal(found, data, "a copy whose stream was destroyed");
}

void device_synchronize_waits_for_all(const Context& c) {
  Memory first(c, size);
  Memory second(c, size);
  const Bytes data = pattern(size, 4);
  c.upload(first.data(), data.data(), size);
  c.upload(second.data(), data.data(), size);
  Bytes a(size);
  Bytes b(size);
  Stream one(c);
  Stream two(c);
  c.ok(c.driver.copy_async(one, a.data(), first.data(), size, AA_COPY_DEVICE_TO_HOST), "copy_async");
  c.ok(c.driver.copy_async(two, b.data(), second.data(), size, AA_COPY_DEVICE_TO_HOST), "copy_async");
  c.ok(c.driver.device_synchronize(c.device), "device_synchronize");
  expect_equal(a, data, "work of the first stream");
  expect_equal(b, data, "work of the second stream");
}

void native_handle_answers(const Context& c) {
  void* handle = nullptr;
  c.ok_or_unsupported(c.driver.stream_native(c.stream, &handle), "stream_native");
}

void streams_on_threads(const Context& c) {
  constexpr int count = 4;
  constexpr size_t bytes = 100000;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Memory>> memories;
  for (int i = 0; i < count; ++i) {
    streams.push_back(std::make_unique<Stream>(c));
    memories.push_back(std::make_unique<Memory>(c, bytes));
  }
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned round = 0; round < 20; ++round) {
        const Bytes data = pattern(bytes, static_cast<unsigned>(t) * 100 + round);
        Bytes found(bytes);
        unsigned char* memory = memories[static_cast<size_t>(t)]->data();
        aa_stream* stream = *streams[static_cast<size_t>(t)];
        if (!c.drop(c.driver.copy_async(stream, memory, data.data(), bytes, AA_COPY_HOST_TO_DEVICE)) ||
            !c.drop(c.driver.copy_async(stream, found.data(), memory, bytes, AA_COPY_DEVICE_TO_HOST)) ||
            !c.drop(c.driver.stream_synchronize(stream)) || found != data) {
          ++failures;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  c.expect(failures == 0, std::to_string(failures) + " of 80 copies on four streams and threads were wrong");
}

struct Observation {
  const Bytes* found;
  const Bytes* expected;
  int calls = 0;
  bool in_order = false;
};

void observe(void* user) {
  auto* observation = static_cast<Observation*>(user);
  observation->in_order = *observation->found == *observation->expected;
  ++observation->calls;
}

void host_calls(const Context& c) {
  if (!c.has(AA_CAP_HOST_CALL)) {
    const Bytes none;
    Observation observation{&none, &none};
    c.error(c.driver.stream_host_call(c.stream, observe, &observation), {AA_UNIMPLEMENTED},
            "stream_host_call, whose flag is clear,");
    c.synchronize();
    c.expect(observation.calls == 0, "stream_host_call is unimplemented but called the function");
    c.unsupported("the flag is clear, and stream_host_call says so");
  }
  Memory memory(c, size);
  // A driver that calls the function too early may be lucky once.
  for (unsigned round = 0; round < 10; ++round) {
    Bytes found(size);
    const Bytes data = pattern(size, 5 + round);
    Observation observation{&found, &data};
    c.ok(c.driver.copy_async(c.stream, memory.data(), data.data(), size, AA_COPY_HOST_TO_DEVICE), "copy_async");
    c.ok(c.driver.copy_async(c.stream, found.data(), memory.data(), size, AA_COPY_DEVICE_TO_HOST), "copy_async");
    c.ok(c.driver.stream_host_call(c.stream, observe, &observation), "stream_host_call");
    c.synchronize();
    c.expect(observation.calls == 1, "the function ran " + std::to_string(observation.calls) + " times, not once");
    c.expect(observation.in_order, "the function ran before the copies that were enqueued before it");
  }
}

// A host call that ends when it is run on the thread that enqueued it, when that thread has gone on, or, for a driver that
// runs it on another thread and waits for it, after a while.
class HostCallThatWaits {
 public:
  void enqueue(const Context& c, aa_stream* stream) {
    state_->caller = std::this_thread::get_id();
    c.ok(c.driver.stream_host_call(stream, run, state_), "stream_host_call");
    const std::lock_guard lock(state_->mutex);
    ended_in_time_ = state_->ended;
    state_->has_returned = true;
    state_->changed.notify_all();
  }
  // Returns whether it had ended when the call that enqueued it returned.
  bool ended_in_time() const { return ended_in_time_; }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::thread::id caller;
    bool has_returned = false;
    bool ended = false;
  };
  static void run(void* user) {
    auto* state = static_cast<State*>(user);
    std::unique_lock lock(state->mutex);
    if (std::this_thread::get_id() != state->caller) {
      state->changed.wait_for(lock, std::chrono::seconds(1), [&] { return state->has_returned; });
    }
    state->ended = true;
  }

  // Never deleted: a broken driver may call the function at any later time.
  static State* new_state() {
    static auto& all = *new std::vector<State*>;
    all.push_back(new State);
    return all.back();
  }

  State* state_ = new_state();
  bool ended_in_time_ = false;
};

void synchronous_promise(const Context& c) {
  if (!c.has(AA_CAP_SYNCHRONOUS)) c.unsupported("the flag is clear");
  if (c.has(AA_CAP_HOST_CALL)) {
    HostCallThatWaits call;
    call.enqueue(c, c.stream);
    c.expect(call.ended_in_time(),
             "stream_host_call returned before its function had run though the device is synchronous");
  }
  Memory memory(c, size);
  const Bytes data = pattern(size, 6);
  Bytes found(size);
  c.ok(c.driver.copy_async(c.stream, memory.data(), data.data(), size, AA_COPY_HOST_TO_DEVICE), "copy_async");
  c.ok(c.driver.copy_async(c.stream, found.data(), memory.data(), size, AA_COPY_DEVICE_TO_HOST), "copy_async");
  expect_equal(found, data, "a copy, before any wait");
  int32_t done = 1;
  aa_status* status = c.driver.stream_query(c.stream, &done);
  if (status && c.host.status_code(&c.host, status) == AA_UNIMPLEMENTED) {
    c.drop(status);
  } else {
    c.ok(status, "stream_query");
  }
  c.expect(done == 1, "the stream has work to do though the device is synchronous");
}

void dependency_promise(const Context& c) {
  if (!c.has(AA_CAP_RESOLVES_DEPENDENCIES)) c.unsupported("the flag is clear");
  Memory memory(c, size);
  Stream other(c);
  for (unsigned round = 0; round < 10; ++round) {
    const Bytes data = pattern(size, 10 + round);
    Bytes found(size);
    c.ok(c.driver.copy_async(c.stream, memory.data(), data.data(), size, AA_COPY_HOST_TO_DEVICE), "copy_async");
    c.ok(c.driver.copy_async(other, found.data(), memory.data(), size, AA_COPY_DEVICE_TO_HOST), "copy_async");
    c.ok(c.driver.stream_synchronize(other), "stream_synchronize");
    expect_equal(found, data, "what another stream reads without a wait");
  }
}

constexpr Case cases[] = {
    {"streams", "any_priority_and_flag", any_priority_and_flag},
    {"streams", "destroy_reports_success", destroy_reports_success},
    {"streams", "query_tells_completion", query_tells_completion},
    {"streams", "query_becomes_done_by_itself", query_becomes_done_by_itself},
    {"streams", "destroy_waits_for_work", destroy_waits_for_work},
    {"streams", "device_synchronize_waits_for_all", device_synchronize_waits_for_all},
    {"streams", "native_handle_answers", native_handle_answers},
    {"streams", "on_threads", streams_on_threads},
    {"streams", "host_calls", host_calls},
    {"streams", "synchronous_promise", synchronous_promise},
    {"streams", "dependency_promise", dependency_promise},
};

}  // namespace
}  // namespace stream_group

std::span<const Case> stream_cases() { return stream_group::cases; }

}  // namespace anyaccel::conformance
