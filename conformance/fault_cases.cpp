// Cases of work that fails while it runs (extension "fault"): which calls report the failure, which do not, and for how
// long.
#include <atomic>

#include "anyaccel/abi/fault.h"
#include "conformance/gate.h"
#include "conformance/graph_objects.h"

namespace anyaccel::conformance {
namespace fault_group {
namespace {

constexpr size_t size = 5000;
constexpr aa_code injected = AA_DATA_LOSS;  // a code that no driver reports by chance

abi::Calls<aa_fault_table> faults(const Context& c) {
  return c.extension<aa_fault_table>(AA_FAULT_EXTENSION, AA_FAULT_VERSION);
}

// Returns the code of a status and releases it.
int32_t code_of(const Context& c, aa_status* status) {
  const int32_t code = c.host.status_code(&c.host, status);
  c.drop(status);
  return code;
}

aa_status* fill(const Context& c, aa_stream* stream, void* to, unsigned char value) {
  return c.driver.fill_async(stream, to, &value, 1, size);
}

void fills(const Context& c, aa_stream* stream, void* to, int count) {
  for (int i = 0; i < count; ++i) c.ok_or_unsupported(fill(c, stream, to, 1), "fill_async");
}

// Enqueues an item that fails when it runs.
void enqueue_failure(const Context& c, const abi::Calls<aa_fault_table>& table, aa_stream* stream, void* memory) {
  c.ok(table.inject(stream, injected, 4711), "inject");
  c.ok_or_unsupported(fill(c, stream, memory, 9), "fill_async of an item that will fail");
}

// Enqueueing on a failed stream returns success or the stream's error.
bool enqueued(const Context& c, aa_status* status, const std::string& what) {
  const int32_t code = code_of(c, status);
  c.expect(code == AA_OK || code == injected || code == AA_DEVICE_LOST,
           what + " of a stream that failed gave code " + std::to_string(code) + ", neither success nor its failure");
  return code == AA_OK;
}

// The stream's error, or AA_DEVICE_LOST if the device is lost.
void expect_failed(const Context& c, aa_status* status, const std::string& what) {
  c.error(status, {injected, AA_DEVICE_LOST}, what);
}

int64_t executed(const Context& c, const abi::Calls<aa_fault_table>& table, aa_stream* stream) {
  int64_t items = -1;
  c.ok(table.executed(stream, &items), "executed");
  c.expect(items >= 0, "executed gave " + std::to_string(items) + " items");
  return items;
}

void items_are_counted(const Context& c) {
  const auto table = faults(c);
  Memory memory(c, size);
  Stream stream(c);
  fills(c, stream, memory.data(), 3);
  c.ok(c.driver.stream_synchronize(stream), "stream_synchronize");
  const int64_t before = executed(c, table, stream);
  const unsigned char value[16] = {};
  // A rejected item never runs.
  c.any_error(c.driver.copy_async(stream, memory.data(), memory.data() + 100, 10, 77),
              "a copy in an unknown direction");
  c.any_error(c.driver.fill_async(stream, memory.data(), value, 3, 999), "a fill with a pattern of 3 bytes");
  fills(c, stream, memory.data(), 10);
  c.ok(c.driver.stream_synchronize(stream), "stream_synchronize");
  const int64_t after = executed(c, table, stream);
  c.expect(after - before == 10, "of 10 items " + std::to_string(after - before) + " have run");
}

void held_items_are_not_counted(const Context& c) {
  const auto table = faults(c);
  needs_gates(c);
  Memory memory(c, size);
  Stream stream(c);
  Gate gate(c, stream);
  fills(c, stream, memory.data(), 10);
  const int64_t early = executed(c, table, stream);
  gate.open();
  c.ok(c.driver.stream_synchronize(stream), "stream_synchronize");
  const int64_t late = executed(c, table, stream);
  c.expect(early == 0, std::to_string(early) + " items have run though the first one waits");
  c.expect(late == 11, "of 11 items " + std::to_string(late) + " have run");
}

void a_failure_sticks_to_its_stream(const Context& c) {
  const auto table = faults(c);
  Memory memory(c, size);
  Stream stream(c);
  Event event(c);
  fills(c, stream, memory.data(), 2);
  enqueue_failure(c, table, stream, memory.data());
  const bool recorded = enqueued(c, c.driver.event_record(event, stream), "event_record");
  for (int i = 0; i < 2; ++i) {
    expect_failed(c, c.driver.stream_synchronize(stream), "stream_synchronize of a stream that failed");
    int32_t done = 0;
    expect_failed(c, c.driver.stream_query(stream, &done), "stream_query of a stream that failed");
    expect_failed(c, c.driver.device_synchronize(c.device), "device_synchronize with a stream that failed");
    if (recorded) {
      expect_failed(c, c.driver.event_query(event, &done), "event_query of a record after what failed");
      expect_failed(c, c.driver.event_synchronize(event), "event_synchronize of a record after what failed");
    }
    enqueued(c, fill(c, stream, memory.data(), 1), "fill_async");
  }
}

// The first failure of a stream is the one that it reports, and no host function runs after it. What follows a failed
// stream in device_synchronize is waited for all the same.
void the_first_failure_counts(const Context& c) {
  const auto table = faults(c);
  Memory memory(c, size);
  Stream stream(c);
  enqueue_failure(c, table, stream, memory.data());
  const bool injected_again = c.drop(table.inject(stream, AA_ABORTED, 1));
  const bool filled = enqueued(c, fill(c, stream, memory.data(), 9), "fill_async");
  expect_failed(c, c.driver.stream_synchronize(stream), "stream_synchronize of a stream that failed twice");
  if (injected_again && filled) {
    expect_failed(c, c.driver.stream_synchronize(stream), "a second stream_synchronize of a stream that failed twice");
  }
}

void no_host_function_follows_a_failure(const Context& c) {
  const auto table = faults(c);
  if (!c.has(AA_CAP_HOST_CALL)) c.unsupported("AA_CAP_HOST_CALL is clear");
  Memory memory(c, size);
  static std::atomic<int> calls{0};  // a broken driver may call the function at any later time
  calls = 0;
  {
    Stream stream(c);
    enqueue_failure(c, table, stream, memory.data());
    enqueued(c,
             c.driver.stream_host_call(
                 stream, [](void*) { ++calls; }, nullptr),
             "stream_host_call");
    expect_failed(c, c.driver.stream_synchronize(stream), "stream_synchronize of a stream that failed");
  }
  c.expect(calls == 0, "a host function ran after the stream had failed");
}

void synchronizing_the_device_waits_beside_a_failure(const Context& c) {
  const auto table = faults(c);
  needs_gates_and_free_streams(c);
  Memory memory(c, size);
  for (const bool failing_first : {true, false}) {
    Stream one(c);
    Stream two(c);
    aa_stream* const failing = failing_first ? one : two;
    aa_stream* const held = failing_first ? two : one;
    enqueue_failure(c, table, failing, memory.data());
    const int32_t code = code_of(c, c.driver.stream_synchronize(failing));
    if (code == AA_DEVICE_LOST) c.unsupported("a failure loses the device");
    Gate gate(c, held);
    const LaterOpened later(gate);
    expect_failed(c, c.driver.device_synchronize(c.device), "device_synchronize with a stream that failed");
    c.expect(gate.is_open(),
             "device_synchronize returned the failure of one stream while a host call still held another");
  }
}

// Destroying the failed stream ends the failure, unless the device is lost for good.
void a_new_stream_is_a_new_start(const Context& c) {
  const auto table = faults(c);
  Memory memory(c, size);
  {
    Stream stream(c);
    enqueue_failure(c, table, stream, memory.data());
    expect_failed(c, c.driver.stream_synchronize(stream), "stream_synchronize of a stream that failed");
  }
  const int32_t device = code_of(c, c.driver.device_synchronize(c.device));
  if (device == AA_DEVICE_LOST) {
    aa_stream* refused = nullptr;
    c.error(c.driver.stream_create(c.device, 0, 0, &refused), {AA_DEVICE_LOST}, "stream_create on a lost device");
    return;
  }
  c.expect(device == AA_OK,
           "device_synchronize gives code " + std::to_string(device) + " though the stream that failed was destroyed");
  Stream next(c);
  c.ok(fill(c, next, memory.data(), 5), "fill_async");
  c.ok(c.driver.stream_synchronize(next), "stream_synchronize of a new stream after another one failed");
  expect_equal(c.download(memory.data(), size), Bytes(size, 5), "what a new stream wrote after another one failed");
}

void what_is_before_it_is_done(const Context& c) {
  const auto table = faults(c);
  Memory memory(c, size);
  Memory other(c, size);
  Stream stream(c);
  Event event(c);
  c.ok_or_unsupported(fill(c, stream, memory.data(), 7), "fill_async");
  c.ok(c.driver.event_record(event, stream), "event_record");
  enqueue_failure(c, table, stream, other.data());
  const int32_t failed = code_of(c, c.driver.stream_synchronize(stream));
  if (failed == AA_DEVICE_LOST) return;
  int32_t done = 0;
  c.ok(c.driver.event_query(event, &done), "event_query of a record before what failed");
  c.expect(done == 1, "a record before what failed is not complete");
  c.ok(c.driver.event_synchronize(event), "event_synchronize of a record before what failed");
  expect_equal(c.download(memory.data(), size), Bytes(size, 7), "what was written before the item that failed");
}

// While a host call holds the stream, the item that is going to fail has not failed.
void nothing_fails_before_it_runs(const Context& c) {
  const auto table = faults(c);
  needs_gates(c);
  Memory memory(c, size);
  Stream stream(c);
  Event event(c);
  Gate gate(c, stream);
  enqueue_failure(c, table, stream, memory.data());
  c.ok(c.driver.event_record(event, stream), "event_record behind an item that has not run");
  int32_t stream_done = -1;
  int32_t event_done = -1;
  c.ok(c.driver.stream_query(stream, &stream_done), "stream_query before the item that fails has run");
  c.ok(c.driver.event_query(event, &event_done), "event_query before the item that fails has run");
  gate.open();
  expect_failed(c, c.driver.stream_synchronize(stream), "stream_synchronize of a stream that failed");
  expect_failed(c, c.driver.event_synchronize(event), "event_synchronize of a record after what failed");
  c.expect(stream_done == 0 && event_done == 0, "a held stream or its event says that it is done");
}

void who_waits_for_it_fails_too(const Context& c) {
  const auto table = faults(c);
  needs_gates_and_free_streams(c);
  Memory memory(c, size);
  Memory other(c, size);
  Stream failing(c);
  Stream waiting(c);
  Stream free(c);
  Event event(c);
  Gate gate(c, failing);  // so that the wait comes before the failure
  enqueue_failure(c, table, failing, memory.data());
  c.ok(c.driver.event_record(event, failing), "event_record");
  c.ok(c.driver.stream_wait_event(waiting, event), "stream_wait_event");
  c.ok(fill(c, waiting, memory.data(), 3), "fill_async");
  gate.open();
  expect_failed(c, c.driver.stream_synchronize(waiting), "stream_synchronize of a stream that waited for what failed");
  const int32_t first = code_of(c, c.driver.stream_synchronize(failing));
  aa_status* status = fill(c, free, other.data(), 4);
  if (!status) status = c.driver.stream_synchronize(free);
  if (first == AA_DEVICE_LOST) {
    c.error(status, {AA_DEVICE_LOST}, "work of another stream on a lost device");
    return;
  }
  c.ok(status, "work of a stream that has nothing to do with one that failed");
  expect_equal(c.download(other.data(), size), Bytes(size, 4), "what a stream wrote beside one that failed");
}

// The failure is known when the wait is enqueued. The wait may report it, and then the stream does not wait; otherwise nothing
// that the stream does counts as done.
void who_waits_for_a_known_failure_fails_too(const Context& c) {
  const auto table = faults(c);
  Memory memory(c, size);
  Memory other(c, size);
  Stream failing(c);
  Stream waiting(c);
  Event event(c);
  enqueue_failure(c, table, failing, memory.data());
  if (!enqueued(c, c.driver.event_record(event, failing), "event_record")) {
    c.unsupported("the driver reports a failure at once, so that no event can be recorded behind it");
  }
  expect_failed(c, c.driver.event_synchronize(event), "event_synchronize of a record after what failed");
  if (!enqueued(c, c.driver.stream_wait_event(waiting, event), "stream_wait_event")) return;
  enqueued(c, fill(c, waiting, other.data(), 3), "fill_async");
  for (int i = 0; i < 2; ++i) {
    expect_failed(c, c.driver.stream_synchronize(waiting), "stream_synchronize of a stream that waits for what failed");
  }
}

// After its stream was destroyed an event is complete, or tells of the failure.
void an_event_outlives_its_failed_stream(const Context& c) {
  const auto table = faults(c);
  Memory memory(c, size);
  Event event(c);
  {
    Stream stream(c);
    enqueue_failure(c, table, stream, memory.data());
    if (!enqueued(c, c.driver.event_record(event, stream), "event_record")) return;
    expect_failed(c, c.driver.stream_synchronize(stream), "stream_synchronize of a stream that failed");
  }
  for (int i = 0; i < 2; ++i) {
    int32_t done = -1;
    if (enqueued(c, c.driver.event_query(event, &done), "event_query of a record whose stream was destroyed,")) {
      c.expect(done == 1, "the event of a stream that failed and was destroyed is not complete");
    }
    enqueued(c, c.driver.event_synchronize(event), "event_synchronize of a record whose stream was destroyed,");
  }
}

// Launches of a graph follow each other on all streams, but a launch that has failed must not take others with it: neither while
// its stream is there nor after that.
void a_launch_does_not_follow_a_failed_one(const Context& c) {
  const auto table = faults(c);
  const auto graph_table = graphs(c);
  Memory memory(c, size);
  Memory other(c, size);
  Stream first(c);
  Capture capture(c, graph_table, first);
  fills(c, first, memory.data(), 1);
  const Graph graph(c, graph_table, capture.end());
  const auto launch_on_a_new_stream = [&](const std::string& when) {
    Stream next(c);
    c.ok(fill(c, next, memory.data(), 2), "fill_async");
    c.ok(graph_table.launch(graph.get(), next), "a launch on a new stream " + when);
    c.ok(c.driver.stream_synchronize(next), "stream_synchronize of a new stream with a launch " + when);
    expect_equal(c.download(memory.data(), size), Bytes(size, 1), "what a graph wrote on a new stream " + when);
  };
  {
    Stream failing(c);
    enqueue_failure(c, table, failing, other.data());
    enqueued(c, graph_table.launch(graph.get(), failing), "a launch");
    const int32_t code = code_of(c, c.driver.stream_synchronize(failing));
    if (code == AA_DEVICE_LOST) c.unsupported("a failure loses the device");
    c.expect(code == injected, "stream_synchronize of a stream that failed gave code " + std::to_string(code));
    launch_on_a_new_stream("after a launch failed on another one");
    enqueued(c, graph_table.launch(graph.get(), failing), "a launch");
  }
  launch_on_a_new_stream("after a launch failed on another one, which was destroyed");
}

constexpr Case cases[] = {
    {"fault", "items_are_counted", items_are_counted},
    {"fault", "held_items_are_not_counted", held_items_are_not_counted},
    {"fault", "a_failure_sticks_to_its_stream", a_failure_sticks_to_its_stream},
    {"fault", "the_first_failure_counts", the_first_failure_counts},
    {"fault", "no_host_function_follows_a_failure", no_host_function_follows_a_failure},
    {"fault", "synchronizing_the_device_waits_beside_a_failure", synchronizing_the_device_waits_beside_a_failure},
    {"fault", "a_new_stream_is_a_new_start", a_new_stream_is_a_new_start},
    {"fault", "what_is_before_it_is_done", what_is_before_it_is_done},
    {"fault", "nothing_fails_before_it_runs", nothing_fails_before_it_runs},
    {"fault", "who_waits_for_it_fails_too", who_waits_for_it_fails_too},
    {"fault", "who_waits_for_a_known_failure_fails_too", who_waits_for_a_known_failure_fails_too},
    {"fault", "an_event_outlives_its_failed_stream", an_event_outlives_its_failed_stream},
    {"fault", "a_launch_does_not_follow_a_failed_one", a_launch_does_not_follow_a_failed_one},
};

}  // namespace
}  // namespace fault_group

std::span<const Case> fault_cases() { return fault_group::cases; }

}  // namespace anyaccel::conformance
