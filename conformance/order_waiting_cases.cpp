// Cases of calls that wait for work, and of what they must not wait for. As in order_cases.cpp, gates hold the streams.
#include <atomic>
#include <exception>
#include <functional>

#include "conformance/gate.h"
#include "conformance/order_calls.h"

namespace anyaccel::conformance {
namespace order_waiting_group {
namespace {

using namespace order_calls;

void synchronizing_waits(const Context& c) {
  needs_gates(c);
  Memory memory(c, size);
  for (const char* function : {"stream_synchronize", "event_synchronize", "device_synchronize"}) {
    Stream stream(c);
    Event event(c, function[0] == 'e' ? AA_EVENT_BLOCKING_SYNC : AA_EVENT_DEFAULT);
    // What is done already must not count for what follows.
    fill(c, stream, memory.data(), 1);
    synchronize(c, stream);
    Gate gate(c, stream);
    record(c, event, stream);
    const LaterOpened later(gate);
    if (function[0] == 's') synchronize(c, stream);
    if (function[0] == 'e') c.ok(c.driver.event_synchronize(event), function);
    if (function[0] == 'd') c.ok(c.driver.device_synchronize(c.device), function);
    c.expect(gate.is_open(), std::string(function) + " returned though a host call still held the stream");
    c.expect(done(c, event), std::string("an event is not complete after ") + function);
  }
}

// Streams of every priority, and all of them where one has failed is a case of "fault".
void synchronizing_the_device_waits_for_every_stream(const Context& c) {
  needs_gates(c);
  Memory memory(c, size);
  for (const int32_t priority : {0, -1, 1, -1000, 1000}) {
    Stream stream(c, priority);
    Stream last(c);
    fill(c, last, memory.data(), 1);
    Gate gate(c, stream);
    const LaterOpened later(gate);
    c.ok(c.driver.device_synchronize(c.device), "device_synchronize");
    c.expect(gate.is_open(), "device_synchronize returned though a host call still held a stream of priority " +
                                 std::to_string(priority));
  }
}

// A thread whose call waits for a gate. In its destructor it opens the gate, for a case that fails before that, and joins.
class ThreadBehind {
 public:
  ThreadBehind(Gate& gate, std::function<void()> call) : gate_(gate), thread_(std::move(call)) {}
  ~ThreadBehind() {
    gate_.open();
    thread_.join();
  }
  ThreadBehind(const ThreadBehind&) = delete;
  ThreadBehind& operator=(const ThreadBehind&) = delete;

 private:
  Gate& gate_;
  std::thread thread_;
};

// A call that waits on another thread, and what it must not wait for: work that was enqueued after it began. Nobody sees
// when it has begun, so it is given more time in each attempt, and has to return in one of them.
void waits_for_no_later_work(const Context& c, const char* function,
                             const std::function<void(aa_stream* stream, aa_event* event)>& call) {
  needs_gates(c);
  for (const int milliseconds : {10, 50, 250, 1000}) {
    Stream stream(c);
    Event event(c);
    std::atomic<bool> returned{false};
    bool in_time = false;
    Gate first(c, stream);
    record(c, event, stream);
    aa_status* status = nullptr;
    std::exception_ptr caught;
    {
      const ThreadBehind thread(first, [&] {
        try {
          call(stream, event);
        } catch (...) {
          caught = std::current_exception();
        }
        returned = true;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      const Gate second(c, stream);
      status = c.driver.event_record(event, stream);
      first.open();
      for (int i = 0; i < 100 && !returned; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds / 10));
      in_time = returned;
    }
    c.ok(status, "event_record");
    if (caught) std::rethrow_exception(caught);
    if (in_time) return;
  }
  c.expect(false, std::string(function) + " waits for work that was enqueued after it had begun");
}

void synchronizing_a_stream_waits_for_no_later_work(const Context& c) {
  waits_for_no_later_work(c, "stream_synchronize", [&](aa_stream* stream, aa_event*) { synchronize(c, stream); });
}

void synchronizing_an_event_waits_for_no_later_record(const Context& c) {
  waits_for_no_later_work(c, "event_synchronize", [&](aa_stream*, aa_event* event) {
    c.ok(c.driver.event_synchronize(event), "event_synchronize");
  });
}

void destroying_a_stream_waits(const Context& c) {
  needs_gates(c);
  Memory memory(c, size);
  fill(c, c.stream, memory.data(), 1);
  c.synchronize();
  Event event(c);
  Event waited(c);
  std::atomic<int> calls{0};
  Stream waiting(c);
  {
    Stream stream(c);
    Gate gate(c, stream);
    fill(c, stream, memory.data(), 2);
    c.ok(c.driver.stream_host_call(
             stream, [](void* user) { ++*static_cast<std::atomic<int>*>(user); }, &calls),
         "stream_host_call");
    record(c, event, stream);
    wait(c, waiting, event);
    record(c, waited, waiting);
    const LaterOpened later(gate);
    stream.destroy();
    c.expect(gate.is_open(), "stream_destroy returned though a host call still held the stream");
    c.expect(calls == 1, "a host call had run " + std::to_string(calls) + " times, not once, when its stream was gone");
  }
  c.expect(done(c, event), "an event is not complete though its stream is gone");
  c.ok(c.driver.event_synchronize(event), "event_synchronize after the stream was destroyed");
  synchronize(c, waiting);
  c.expect(done(c, waited), "a stream that waited for an event of a stream which is gone did not end");
  expect_all(c, memory.data(), 2, "what a stream wrote before it was destroyed");
}

// A wait is work too.
void destroying_a_stream_waits_for_its_waits(const Context& c) {
  needs_gates_and_free_streams(c);
  Stream held(c);
  Event event(c);
  Event behind(c);
  {
    Stream waiting(c);
    Gate gate(c, held);
    record(c, event, held);
    wait(c, waiting, event);
    record(c, behind, waiting);
    const LaterOpened later(gate);
    waiting.destroy();
    c.expect(gate.is_open(), "stream_destroy returned though the stream still waited for a held event");
  }
  c.expect(done(c, behind), "an event behind a wait is not complete though its stream is gone");
  synchronize(c, held);
}

constexpr Case cases[] = {
    {"order", "synchronizing_waits", synchronizing_waits},
    {"order", "synchronizing_the_device_waits_for_every_stream", synchronizing_the_device_waits_for_every_stream},
    {"order", "synchronizing_a_stream_waits_for_no_later_work", synchronizing_a_stream_waits_for_no_later_work},
    {"order", "synchronizing_an_event_waits_for_no_later_record", synchronizing_an_event_waits_for_no_later_record},
    {"order", "destroying_a_stream_waits", destroying_a_stream_waits},
    {"order", "destroying_a_stream_waits_for_its_waits", destroying_a_stream_waits_for_its_waits},
};

}  // namespace
}  // namespace order_waiting_group

std::span<const Case> order_waiting_cases() { return order_waiting_group::cases; }

}  // namespace anyaccel::conformance
