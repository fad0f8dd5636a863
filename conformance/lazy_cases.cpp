// Cases of drivers that defer work (extension "lazy"): which calls start it, in which order it runs, and steps. Host
// calls record that work has run, so that the driver is not queried meanwhile. If the work never runs, the watchdog
// ends the case.
#include <algorithm>
#include <functional>
#include <memory>

#include "anyaccel/abi/lazy.h"
#include "conformance/gate.h"

namespace anyaccel::conformance {
namespace lazy_group {
namespace {

constexpr size_t size = 20000;

// Counts the host calls that have run. Never deleted: a broken driver may run one at any later time.
class Calls {
 public:
  Calls() : state_(new_state()) {}

  void enqueue(const Context& c, aa_stream* stream) const {
    c.ok(c.driver.stream_host_call(
             stream,
             [](void* user) {
               auto* state = static_cast<State*>(user);
               const std::lock_guard lock(state->mutex);
               ++state->count;
               state->changed.notify_all();
             },
             state_),
         "stream_host_call");
  }
  int count() const {
    const std::lock_guard lock(state_->mutex);
    return state_->count;
  }
  void wait_for(int count) const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->count >= count; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int count = 0;
  };
  static State* new_state() {
    static auto& all = *new std::vector<State*>;
    all.push_back(new State);
    return all.back();
  }

  State* state_;
};

abi::Calls<aa_lazy_table> lazy(const Context& c) {
  const auto table = c.extension<aa_lazy_table>(AA_LAZY_EXTENSION, AA_LAZY_VERSION);
  if (!c.has(AA_CAP_HOST_CALL)) c.unsupported("without AA_CAP_HOST_CALL work cannot tell that it has run");
  return table;
}

void fill(const Context& c, aa_stream* stream, void* to, unsigned char value) {
  c.ok_or_unsupported(c.driver.fill_async(stream, to, &value, 1, size), "fill_async");
}

void copy(const Context& c, aa_stream* stream, void* to, const void* from) {
  c.ok(c.driver.copy_async(stream, to, from, size, AA_COPY_DEVICE_TO_DEVICE), "copy_async within the device");
}

void synchronize(const Context& c, aa_stream* stream) {
  c.ok(c.driver.stream_synchronize(stream), "stream_synchronize");
}

void expect_all(const Context& c, const void* memory, unsigned char value, const std::string& what) {
  expect_equal(c.download(memory, size), Bytes(size, value), what);
}

// For drivers that lack the extension.
void work_runs_by_itself(const Context& c) {
  const void* table = nullptr;
  if (c.drop(c.driver.query_extension(c.instance, AA_LAZY_EXTENSION, AA_LAZY_VERSION, &table))) {
    c.unsupported("the driver has the extension \"lazy\"");
  }
  if (!c.has(AA_CAP_HOST_CALL)) c.unsupported("without AA_CAP_HOST_CALL work cannot tell that it has run");
  Memory memory(c, size);
  Stream stream(c);
  const Calls calls;
  fill(c, stream, memory.data(), 1);
  calls.enqueue(c, stream);
  calls.wait_for(1);
}

void flush_releases_and_does_not_wait(const Context& c) {
  const auto table = lazy(c);
  needs_gates(c);
  Memory memory(c, size);
  Stream stream(c);
  const Calls calls;
  Gate gate(c, stream);
  fill(c, stream, memory.data(), 1);
  calls.enqueue(c, stream);
  c.ok(table.flush(stream), "flush");
  c.ok(table.flush(stream), "flush of a stream that holds nothing back");
  gate.until_entered();
  const int early = calls.count();
  gate.open();
  calls.wait_for(1);
  c.expect(early == 0, "a host call ran before the one in front of it returned");
  synchronize(c, stream);
  expect_all(c, memory.data(), 1, "what was filled after flush");
}

// Calls each function that starts deferred work once, and nothing else.
void what_asks_releases(const Context& c, const char* function,
                        const std::function<void(aa_stream*, aa_event*)>& call) {
  lazy(c);
  Memory memory(c, size);
  Stream stream(c);
  Event event(c);
  const Calls calls;
  fill(c, stream, memory.data(), 1);
  calls.enqueue(c, stream);
  c.ok(c.driver.event_record(event, stream), "event_record");
  call(stream, event);
  calls.wait_for(1);
  synchronize(c, stream);
  c.note = function;
}

void stream_query_releases(const Context& c) {
  what_asks_releases(c, "stream_query", [&](aa_stream* stream, aa_event*) {
    int32_t done = 0;
    c.ok(c.driver.stream_query(stream, &done), "stream_query");
  });
}

void event_query_releases(const Context& c) {
  what_asks_releases(c, "event_query", [&](aa_stream*, aa_event* event) {
    int32_t done = 0;
    c.ok(c.driver.event_query(event, &done), "event_query");
  });
}

void event_synchronize_releases(const Context& c) {
  what_asks_releases(c, "event_synchronize", [&](aa_stream*, aa_event* event) {
    c.ok(c.driver.event_synchronize(event), "event_synchronize");
  });
}

void device_synchronize_releases(const Context& c) {
  Stream other(c);  // not the last one, nor the first
  what_asks_releases(c, "device_synchronize",
                     [&](aa_stream*, aa_event*) { c.ok(c.driver.device_synchronize(c.device), "device_synchronize"); });
}

void stream_destroy_releases(const Context& c) {
  lazy(c);
  const Calls calls;
  {
    Stream stream(c);
    calls.enqueue(c, stream);
  }
  c.expect(calls.count() == 1, "a host call had not run when its stream was destroyed");
}

// Only the last of three streams is queried.
void releasing_reaches_what_is_waited_for(const Context& c) {
  const auto table = lazy(c);
  if (!c.has(AA_CAP_CONCURRENT_STREAMS)) c.unsupported("AA_CAP_CONCURRENT_STREAMS is clear");
  for (const bool flushes : {true, false}) {
    const Calls calls;
    Stream first(c);
    Stream second(c);
    Stream third(c);
    Event one(c);
    Event two(c);
    Event three(c);
    calls.enqueue(c, first);
    c.ok(c.driver.event_record(one, first), "event_record");
    c.ok(c.driver.stream_wait_event(second, one), "stream_wait_event");
    calls.enqueue(c, second);
    c.ok(c.driver.event_record(two, second), "event_record");
    c.ok(c.driver.stream_wait_event(third, two), "stream_wait_event");
    calls.enqueue(c, third);
    c.ok(c.driver.event_record(three, third), "event_record");
    if (flushes) {
      c.ok(table.flush(third), "flush");
    } else {
      int32_t done = 0;
      c.ok(c.driver.event_query(three, &done), "event_query");
    }
    calls.wait_for(3);
    synchronize(c, third);
  }
}

void a_full_queue_releases(const Context& c) {
  const auto table = lazy(c);
  const int depth = queue_depth(c);
  const Calls calls;
  Stream stream(c);
  for (int i = 0; i < 4 * depth; ++i) calls.enqueue(c, stream);
  // At most one queue depth of them is still deferred.
  calls.wait_for(3 * depth);
  c.ok(table.flush(stream), "flush");
  calls.wait_for(4 * depth);
  synchronize(c, stream);
  c.expect(calls.count() == 4 * depth,
           "of " + std::to_string(4 * depth) + " host calls " + std::to_string(calls.count()) + " have run");
}

// The addresses used by deferred work are reused for something else.
void overlapping_work_keeps_its_order(const Context& c) {
  const auto table = lazy(c);
  Memory used_again(c, size);
  Memory first(c, size);
  Memory second(c, size);
  Memory third(c, size);
  Stream stream(c);
  for (const unsigned char value : {10, 20, 30}) {
    fill(c, stream, used_again.data(), value);
    copy(c, stream, first.data(), used_again.data());
    fill(c, stream, used_again.data(), static_cast<unsigned char>(value + 1));
    copy(c, stream, second.data(), used_again.data());
    copy(c, stream, third.data(), first.data());
    fill(c, stream, first.data(), static_cast<unsigned char>(value + 2));
    c.ok(table.flush(stream), "flush");
    synchronize(c, stream);
    expect_all(c, second.data(), static_cast<unsigned char>(value + 1), "a copy of memory that was written twice");
    expect_all(c, third.data(), value, "a copy of what memory held before it was used again");
    expect_all(c, first.data(), static_cast<unsigned char>(value + 2), "memory that was copied, and written then");
  }
}

aa_step step(uint64_t key) {
  aa_step step{};
  step.struct_size = sizeof(step);
  step.key = key;
  return step;
}

// Steps of the same key, and of others, with the same calls and with others.
void steps_run_what_was_enqueued(const Context& c) {
  const auto table = lazy(c);
  Memory from(c, size);
  Memory to(c, size);
  Stream stream(c);
  const Calls calls;
  int expected = 0;
  for (const uint64_t key : {1, 1, 2, 1, 0, 0}) {
    const aa_step begun = step(key);
    c.ok(table.step_begin(stream, &begun), "step_begin");
    fill(c, stream, from.data(), static_cast<unsigned char>(++expected));
    copy(c, stream, to.data(), from.data());
    calls.enqueue(c, stream);
    c.ok(table.step_end(stream), "step_end");
    calls.wait_for(expected);
    synchronize(c, stream);
    expect_all(c, to.data(), static_cast<unsigned char>(expected),
               "what step " + std::to_string(expected) + ", of key " + std::to_string(key) + ", wrote");
  }
  const aa_step empty = step(1);
  c.ok(table.step_begin(stream, &empty), "step_begin");
  c.ok(table.step_end(stream), "step_end of an empty step");
  synchronize(c, stream);
  c.expect(calls.count() == expected, "an empty step ran something");
}

void steps_do_not_nest(const Context& c) {
  const auto table = lazy(c);
  Stream stream(c);
  aa_step begun = step(1);
  c.error(table.step_end(stream), {AA_FAILED_PRECONDITION}, "step_end without step_begin");
  c.ok(table.step_begin(stream, &begun), "step_begin");
  c.error(table.step_begin(stream, &begun), {AA_FAILED_PRECONDITION}, "step_begin inside of a step");
  c.ok(table.step_end(stream), "step_end");
  begun.flags = 1u << 31;
  c.error(table.step_begin(stream, &begun), {AA_UNIMPLEMENTED}, "step_begin with an unknown flag");
  c.error(table.step_end(stream), {AA_FAILED_PRECONDITION}, "step_end after a step_begin that was refused");
}

constexpr Case cases[] = {
    {"order", "work_runs_by_itself", work_runs_by_itself},
    {"lazy", "flush_releases_and_does_not_wait", flush_releases_and_does_not_wait},
    {"lazy", "stream_query_releases", stream_query_releases},
    {"lazy", "event_query_releases", event_query_releases},
    {"lazy", "event_synchronize_releases", event_synchronize_releases},
    {"lazy", "device_synchronize_releases", device_synchronize_releases},
    {"lazy", "stream_destroy_releases", stream_destroy_releases},
    {"lazy", "releasing_reaches_what_is_waited_for", releasing_reaches_what_is_waited_for},
    {"lazy", "a_full_queue_releases", a_full_queue_releases},
    {"lazy", "overlapping_work_keeps_its_order", overlapping_work_keeps_its_order},
    {"lazy", "steps_run_what_was_enqueued", steps_run_what_was_enqueued},
    {"lazy", "steps_do_not_nest", steps_do_not_nest},
};

}  // namespace
}  // namespace lazy_group

std::span<const Case> lazy_cases() { return lazy_group::cases; }

}  // namespace anyaccel::conformance
