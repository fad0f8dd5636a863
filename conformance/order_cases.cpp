// Cases of order and forward progress: work that must not have run yet, work that must be able to run, and which calls
// may wait. Streams are held by gates (gate.h), so nothing here depends on how fast a device is. While a gate is shut,
// no function is called that may wait for all work of the device.
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>

#include "anyaccel/abi/ops.h"
#include "conformance/gate.h"
#include "conformance/graph_objects.h"

namespace anyaccel::conformance {
namespace order_group {
namespace {

constexpr size_t size = 70000;

bool done(const Context& c, aa_stream* stream) {
  int32_t answer = -1;
  c.ok(c.driver.stream_query(stream, &answer), "stream_query");
  c.expect(answer == 0 || answer == 1, "stream_query gave " + std::to_string(answer) + ", not 0 or 1");
  return answer == 1;
}

bool done(const Context& c, aa_event* event) {
  int32_t answer = -1;
  c.ok(c.driver.event_query(event, &answer), "event_query");
  c.expect(answer == 0 || answer == 1, "event_query gave " + std::to_string(answer) + ", not 0 or 1");
  return answer == 1;
}

void fill(const Context& c, aa_stream* stream, void* to, unsigned char value, size_t bytes = size) {
  c.ok_or_unsupported(c.driver.fill_async(stream, to, &value, 1, bytes), "fill_async");
}

void copy(const Context& c, aa_stream* stream, void* to, const void* from, size_t bytes = size) {
  c.ok(c.driver.copy_async(stream, to, from, bytes, AA_COPY_DEVICE_TO_DEVICE), "copy_async within the device");
}

void record(const Context& c, aa_event* event, aa_stream* stream) {
  c.ok(c.driver.event_record(event, stream), "event_record");
}

void wait(const Context& c, aa_stream* stream, aa_event* event) {
  c.ok(c.driver.stream_wait_event(stream, event), "stream_wait_event");
}

void synchronize(const Context& c, aa_stream* stream) {
  c.ok(c.driver.stream_synchronize(stream), "stream_synchronize");
}

void expect_all(const Context& c, const void* memory, unsigned char value, const std::string& what,
                size_t bytes = size) {
  expect_equal(c.download(memory, bytes), Bytes(bytes, value), what);
}

// ---- order within a stream, and none between streams ----

void work_waits_for_what_is_before_it(const Context& c) {
  needs_gates_and_free_streams(c);
  Memory first(c, size);
  Memory second(c, size);
  Memory seen_first(c, size);
  Memory seen(c, size);
  fill(c, c.stream, first.data(), 1);
  fill(c, c.stream, second.data(), 2);
  c.synchronize();
  Stream held(c);
  Stream free(c);
  Watch watch(c);
  Gate gate(c, held);
  fill(c, held, first.data(), 3);
  copy(c, held, second.data(), first.data());
  copy(c, free, seen_first.data(), first.data());
  copy(c, free, seen.data(), second.data());
  synchronize(c, free);
  const bool early = watch.gets_done(held);
  gate.open();
  synchronize(c, held);
  c.expect(!early, "stream_query says that a stream is done which a host call holds");
  c.expect(done(c, held), "a stream is not done after stream_synchronize");
  expect_all(c, seen_first.data(), 1, "memory that is to be filled behind a host call, before that returned");
  expect_all(c, seen.data(), 2, "memory that is to be copied to behind a host call, before that returned");
  expect_all(c, second.data(), 3, "memory that was written behind a host call, after that returned");
}

void items_keep_their_order(const Context& c) {
  needs_gates(c);
  constexpr int rounds = 100;
  constexpr size_t piece = 1000;
  Memory source(c, piece);
  Memory slots(c, piece * rounds);
  Stream stream(c);
  for (int attempt = 0; attempt < 2; ++attempt) {
    Gate gate(c, stream);
    // All at once behind a gate, up to the depth that every driver must accept; the second time without a gate.
    if (attempt == 1) gate.open();
    for (int i = 0; i < (attempt == 0 ? 60 : rounds); ++i) {
      fill(c, stream, source.data(), static_cast<unsigned char>(i + attempt + 1), piece);
      copy(c, stream, slots.data() + piece * static_cast<size_t>(i), source.data(), piece);
    }
    gate.open();
    synchronize(c, stream);
    for (int i = 0; i < (attempt == 0 ? 60 : rounds); ++i) {
      expect_all(c, slots.data() + piece * static_cast<size_t>(i), static_cast<unsigned char>(i + attempt + 1),
                 "copy " + std::to_string(i) + " of fills and copies in turns", piece);
    }
  }
}

void overlapping_fills_keep_their_order(const Context& c) {
  Memory memory(c, size);
  Stream stream(c);
  fill(c, stream, memory.data(), 0);
  for (unsigned i = 1; i <= 200; ++i) {
    // A large one and a small one take turns in being last.
    fill(c, stream, memory.data(), static_cast<unsigned char>(i), i % 2 ? size : 100);
  }
  synchronize(c, stream);
  expect_all(c, memory.data(), 200, "where 200 fills overlap", 100);
  expect_all(c, memory.data() + 100, 199, "where 100 of 200 fills overlap", size - 100);
}

// ---- records ----

void a_record_covers_what_is_before_it(const Context& c) {
  needs_gates(c);
  Stream stream(c);
  Event event(c);
  Gate first(c, stream);
  record(c, event, stream);
  const bool early = done(c, event);
  first.open();
  c.ok(c.driver.event_synchronize(event), "event_synchronize");
  const bool late = done(c, event);
  Gate second(c, stream);
  const bool after = done(c, event);
  c.ok(c.driver.event_synchronize(event), "event_synchronize of a complete event while its stream is held");
  second.open();
  synchronize(c, stream);
  c.expect(!early, "an event is complete though its stream is held before the record");
  c.expect(late, "an event is not complete after event_synchronize");
  c.expect(after, "an event that was complete is not any more, since later work was enqueued");
}

void a_fresh_event_holds_nothing(const Context& c) {
  needs_gates_and_free_streams(c);
  Event event(c);
  c.expect(done(c, event), "an event that was never recorded is not complete");
  Stream held(c);
  Stream waiting(c);
  wait(c, waiting, event);
  Gate gate(c, held);
  record(c, event, held);
  synchronize(c, waiting);  // the wait was a no-op, although the event has been recorded since
  const bool early = done(c, event);
  gate.open();
  synchronize(c, held);
  c.expect(!early, "an event is complete though its stream is held before the record");
}

void the_latest_record_counts(const Context& c) {
  needs_gates_and_free_streams(c);
  Stream held(c);
  Stream free(c);
  Event event(c);
  Gate gate(c, held);
  record(c, event, held);
  const bool first = done(c, event);
  record(c, event, free);
  synchronize(c, free);
  const bool second = done(c, event);
  c.ok(c.driver.event_synchronize(event), "event_synchronize after a record on a free stream");
  record(c, event, held);
  const bool third = done(c, event);
  gate.open();
  synchronize(c, held);
  c.expect(!first, "an event is complete though its stream is held");
  c.expect(second, "an event that was recorded again on a free stream is not complete");
  c.expect(!third, "an event that was recorded again on a held stream is complete");
}

void a_wait_keeps_its_record(const Context& c) {
  needs_gates_and_free_streams(c);
  Memory memory(c, size);
  Memory copied(c, size);
  fill(c, c.stream, memory.data(), 1);
  c.synchronize();
  Stream held(c);
  Stream waiting(c);
  Stream free(c);
  Event event(c);
  Watch watch(c);
  Gate gate(c, held);
  fill(c, held, memory.data(), 2);
  record(c, event, held);
  Gate late(c, waiting);  // so that the stream reaches the wait only after the event was recorded again
  wait(c, waiting, event);
  copy(c, waiting, copied.data(), memory.data());
  record(c, event, free);
  synchronize(c, free);
  late.open();
  const bool early = watch.gets_done(waiting);
  gate.open();
  synchronize(c, waiting);
  c.expect(!early,
           "a stream goes on though the record that it waits for is held; the event was recorded elsewhere since");
  expect_all(c, copied.data(), 2, "what a stream copies after the record that it waited for");
}

void a_later_record_holds_no_earlier_wait(const Context& c) {
  needs_gates_and_free_streams(c);
  Stream recording(c);
  Stream waiting(c);
  Event event(c);
  record(c, event, recording);
  wait(c, waiting, event);
  synchronize(c, recording);
  Gate gate(c, recording);
  record(c, event, recording);
  synchronize(c, waiting);  // hangs if the wait applies to the new record
  const bool early = done(c, event);
  gate.open();
  synchronize(c, recording);
  c.expect(!early, "an event is complete though its latest record is held");
}

void a_wait_holds_only_its_stream(const Context& c) {
  needs_gates_and_free_streams(c);
  Memory memory(c, size);
  Stream held(c);
  Stream waiting(c);
  Stream free(c);
  Event event(c);
  Watch watch(c);
  Gate gate(c, held);
  record(c, event, held);
  wait(c, waiting, event);
  fill(c, waiting, memory.data(), 1);
  fill(c, free, memory.data(), 2);
  synchronize(c, free);
  const bool early = watch.gets_done(waiting);
  gate.open();
  synchronize(c, waiting);
  c.expect(!early, "a stream that waits for a held event says that it is done");
  expect_all(c, memory.data(), 1, "what a stream wrote after its wait");
}

// Each kind of item behind a wait, on a stream of its own: a driver may have a queue or a thread for some of them.
void a_wait_holds_every_kind_of_item(const Context& c) {
  needs_gates_and_free_streams(c);
  Memory ones(c, size);
  Memory copied(c, size);
  Memory filled(c, size);
  Memory seen_copied(c, size);
  Memory seen_filled(c, size);
  for (const auto& [memory, value] : {std::pair{&ones, 1}, {&copied, 2}, {&filled, 2}}) {
    fill(c, c.stream, memory->data(), static_cast<unsigned char>(value));
  }
  c.synchronize();
  static std::atomic<int> calls{0};  // a broken driver may call the function at any later time
  calls = 0;
  Stream held(c), copies(c), fills(c), calling(c), recording(c), free(c);
  Event event(c);
  Event behind(c);
  aa_stream* const waiting[] = {copies, fills, calling, recording};
  Watch watch(c);
  Gate gate(c, held);
  record(c, event, held);
  for (aa_stream* stream : waiting) wait(c, stream, event);
  copy(c, copies, copied.data(), ones.data());
  fill(c, fills, filled.data(), 1);
  c.ok(c.driver.stream_host_call(
           calling, [](void*) { ++calls; }, nullptr),
       "stream_host_call");
  record(c, behind, recording);
  std::string early;
  if (watch.gets_done(calling)) early = "a host call";
  if (done(c, copies)) early = "a copy";
  if (done(c, fills)) early = "a fill";
  if (done(c, recording) || done(c, behind)) early = "a record";
  if (calls != 0) early = "a host call";
  copy(c, free, seen_copied.data(), copied.data());
  copy(c, free, seen_filled.data(), filled.data());
  synchronize(c, free);
  gate.open();
  for (aa_stream* stream : waiting) synchronize(c, stream);
  c.expect(early.empty(), early + " behind a wait for a held event is done");
  c.expect(calls == 1, "a host call behind a wait ran " + std::to_string(calls) + " times");
  c.expect(done(c, behind), "a record behind a wait is not complete after its stream was synchronized");
  expect_all(c, seen_copied.data(), 2, "memory that a copy behind a wait is to write, before the event");
  expect_all(c, seen_filled.data(), 2, "memory that a fill behind a wait is to write, before the event");
  expect_all(c, copied.data(), 1, "what a copy behind a wait wrote");
  expect_all(c, filled.data(), 1, "what a fill behind a wait wrote");
}

// ---- progress ----

void a_chain_of_streams_ends(const Context& c) {
  needs_gates_and_free_streams(c);
  constexpr size_t length = 32;
  constexpr size_t piece = 4096;
  Memory memory(c, piece * (length + 1));
  fill(c, c.stream, memory.data(), 9, piece * (length + 1));
  c.synchronize();
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Event>> events;
  for (size_t i = 0; i < length; ++i) {
    streams.push_back(std::make_unique<Stream>(c));
    events.push_back(std::make_unique<Event>(c));
  }
  Watch watch(c);
  Gate gate(c, *streams[0]);
  fill(c, *streams[0], memory.data(), 5, piece);
  for (size_t i = 0; i < length; ++i) {
    if (i > 0) wait(c, *streams[i], *events[i - 1]);
    copy(c, *streams[i], memory.data() + piece * (i + 1), memory.data() + piece * i, piece);
    record(c, *events[i], *streams[i]);
  }
  int early = watch.gets_done(*streams[length - 1]);
  for (size_t i = 0; i < length; ++i) early += done(c, *events[i]) || done(c, *streams[i]);
  gate.open();
  for (size_t i = length; i-- > 0;) synchronize(c, *streams[i]);
  c.expect(early == 0, std::to_string(early) + " of 32 streams were done though the first of their chain is held");
  expect_all(c, memory.data() + piece * length, 5, "what went through a chain of 32 streams", piece);
}

void enqueueing_does_not_wait(const Context& c) {
  needs_gates_and_free_streams(c);
  Memory memory(c, size);
  Memory other(c, size);
  std::atomic<int> calls{0};
  Stream held(c);
  Stream free(c);
  Event event(c);
  fill(c, free, other.data(), 1);  // a driver may load code at the first call
  copy(c, free, memory.data(), other.data());
  synchronize(c, free);
  Memory own(c, size);
  Gate gate(c, held);
  const auto count = [](void* user) { ++*static_cast<std::atomic<int>*>(user); };
  c.ok(c.driver.stream_host_call(held, count, &calls), "stream_host_call");
  copy(c, held, other.data(), memory.data());
  record(c, event, held);
  wait(c, held, event);
  const int depth = queue_depth(c);
  for (int i = 5; i < depth; ++i) fill(c, held, memory.data(), static_cast<unsigned char>(i), 1000);
  const bool early = done(c, held) || done(c, event);
  {  // Other streams proceed, and waits for them return.
    Stream brief(c);
    Event reached(c);
    fill(c, brief, own.data(), 3);
    record(c, reached, brief);
    c.ok(c.driver.event_synchronize(reached), "event_synchronize of a free stream's event");
    synchronize(c, brief);
    c.expect(done(c, brief) && done(c, reached), "a free stream is not done after it was synchronized");
    brief.destroy();
    synchronize(c, free);
  }
  const int before = calls;
  gate.open();
  synchronize(c, held);
  c.expect(!early, "a held stream or its event says that it is done");
  c.expect(before == 0, "a host call ran before the one in front of it returned");
  c.expect(calls == 1, "a host call ran " + std::to_string(calls) + " times, not once");
  expect_all(c, memory.data(), static_cast<unsigned char>(depth - 1), "the last of many fills", 1000);
  c.note = std::to_string(depth) + " items";
}

// ---- calls that wait ----

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

void events_may_go_first(const Context& c) {
  needs_gates_and_free_streams(c);
  Memory memory(c, size);
  Memory copied(c, size);
  fill(c, c.stream, memory.data(), 1);
  c.synchronize();
  Stream held(c);
  Stream waiting(c);
  Event event(c);
  Watch watch(c);
  Gate gate(c, held);
  fill(c, held, memory.data(), 2);
  record(c, event, held);
  wait(c, waiting, event);
  copy(c, waiting, copied.data(), memory.data());
  event.destroy();
  // Another one in its place.
  Event next(c);
  const bool fresh = done(c, next);
  const bool early = watch.gets_done(waiting);
  gate.open();
  synchronize(c, waiting);
  c.expect(fresh, "a new event is not complete, since one that was destroyed is not");
  c.expect(!early, "a stream does not wait any more, since the event was destroyed");
  expect_all(c, copied.data(), 2, "what a stream copies after its wait for an event that is gone");
}

// ---- host calls ----

void host_calls_run_once_and_in_order(const Context& c) {
  if (!c.has(AA_CAP_HOST_CALL)) c.unsupported("AA_CAP_HOST_CALL is clear");
  struct Log {
    std::vector<int> order;
  } log;
  struct Call {
    Log* log;
    int number;
  };
  constexpr int total = 1000;
  std::vector<Call> calls(total);
  Memory memory(c, 1000);
  {
    Stream stream(c);
    for (int i = 0; i < total; ++i) {
      calls[static_cast<size_t>(i)] = {&log, i};
      c.ok(c.driver.stream_host_call(
               stream,
               [](void* user) {
                 const auto* call = static_cast<Call*>(user);
                 call->log->order.push_back(call->number);
               },
               &calls[static_cast<size_t>(i)]),
           "stream_host_call");
      if (i % 3 == 0) fill(c, stream, memory.data(), 1, 1000);
    }
    synchronize(c, stream);
  }
  c.expect(log.order.size() == total, std::to_string(log.order.size()) + " host calls ran, not 1000");
  for (int i = 0; i < total; ++i) {
    c.expect(log.order[static_cast<size_t>(i)] == i, "host call " + std::to_string(i) + " did not run in its order");
  }
}

// ---- times ----

void elapsed_time_is_the_hosts(const Context& c) {
  needs_gates(c);
  if (!c.has(AA_CAP_EVENT_TIMING)) c.unsupported("AA_CAP_EVENT_TIMING is clear");
  using Clock = Gate::Clock;
  constexpr double resolution = 1;
  Stream stream(c);
  Event start(c, AA_EVENT_TIMING);
  Event middle(c, AA_EVENT_TIMING);
  Event end(c, AA_EVENT_TIMING);
  const auto begin = Clock::now();
  record(c, start, stream);
  Gate gate(c, stream);
  record(c, middle, stream);
  record(c, end, stream);
  double early = -5;
  c.error(c.driver.event_elapsed(start, middle, &early), {AA_FAILED_PRECONDITION},
          "event_elapsed to an event that is not complete");
  c.expect(early == -5, "event_elapsed failed but wrote a time");
  done(c, end);  // starts deferred work
  gate.until_entered();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  gate.open();
  c.ok(c.driver.event_synchronize(end), "event_synchronize");
  const double most = std::chrono::duration<double, std::milli>(Clock::now() - begin).count() + resolution;
  const double least = gate.milliseconds() - resolution;
  double forward = 0;
  double backward = 0;
  double behind = 0;
  c.ok(c.driver.event_elapsed(start, end, &forward), "event_elapsed");
  c.ok(c.driver.event_elapsed(end, start, &backward), "event_elapsed of swapped events");
  c.ok(c.driver.event_elapsed(middle, end, &behind), "event_elapsed");
  c.expect(forward >= least && forward <= most, "event_elapsed gave " + std::to_string(forward) +
                                                    " ms, and by the host's clock it was between " +
                                                    std::to_string(least) + " and " + std::to_string(most));
  c.expect(std::fabs(forward + backward) <= 0.01, "event_elapsed of swapped events gave " + std::to_string(backward) +
                                                      " ms, which is not the negative of " + std::to_string(forward));
  c.expect(behind >= 0 && behind <= most - gate.milliseconds() + resolution,
           "event_elapsed gave " + std::to_string(behind) + " ms for what lies behind a host call");
  c.note = std::to_string(forward) + " ms, between " + std::to_string(least) + " and " + std::to_string(most);
}

// ---- host memory ----

void host_memory_changes_in_order(const Context& c) {
  needs_gates_and_free_streams(c);
  if (!c.has(AA_CAP_PINNED_HOST)) c.unsupported("AA_CAP_PINNED_HOST is clear");
  // A driver may take another way for a few bytes.
  for (const size_t bytes : {size_t{1}, size_t{8}, size_t{64}, size_t{1000}, size}) {
    const std::string text = std::to_string(bytes) + " bytes of ";
    Memory device(c, bytes);
    Memory written(c, bytes);
    Memory looked_at(c, bytes);
    Memory to(c, bytes, AA_MEMORY_PINNED);
    Memory from(c, bytes, AA_MEMORY_PINNED);
    const Bytes data = pattern(bytes, 1);
    const Bytes old = pattern(bytes, 2);
    c.upload(device.data(), data.data(), bytes);
    c.upload(written.data(), data.data(), bytes);
    std::memcpy(to.data(), old.data(), bytes);
    std::memcpy(from.data(), old.data(), bytes);
    Stream held(c);
    Stream free(c);
    Gate gate(c, held);
    c.ok(c.driver.copy_async(held, to.data(), device.data(), bytes, AA_COPY_DEVICE_TO_HOST), "copy_async");
    c.ok(c.driver.copy_async(held, written.data(), from.data(), bytes, AA_COPY_HOST_TO_DEVICE), "copy_async");
    copy(c, free, looked_at.data(), written.data(), bytes);
    synchronize(c, free);
    const Bytes seen(to.data(), to.data() + bytes);
    gate.open();
    synchronize(c, held);
    expect_equal(seen, old, text + "host memory that are to be written behind a host call, before that returned");
    expect_equal(c.download(looked_at.data(), bytes), data,
                 text + "device memory that are to be written behind a host call, before that returned");
    expect_equal({to.data(), bytes}, data, text + "host memory that were written behind a host call");
    expect_equal(c.download(written.data(), bytes), old, text + "a copy from host memory behind a host call");
  }
}

// ---- errors of enqueuing calls ----

void refused_items_leave_the_stream_usable(const Context& c) {
  Memory memory(c, 1000);
  Memory slots(c, 10);
  fill(c, c.stream, slots.data(), 0, 10);
  fill(c, c.stream, memory.data(), 7, 1000);
  const unsigned char value[16] = {};
  c.error(c.driver.copy_async(c.stream, memory.data(), slots.data(), 10, 77), {AA_INVALID_ARGUMENT},
          "copy_async in an unknown direction");
  c.error(c.driver.fill_async(c.stream, memory.data(), value, 3, 999), {AA_INVALID_ARGUMENT},
          "fill_async with a pattern of 3 bytes");
  c.error(c.driver.fill_async(c.stream, memory.data(), value, 4, 998), {AA_INVALID_ARGUMENT},
          "fill_async of a size that is not a multiple of the pattern's");
  for (unsigned char i = 0; i < 10; ++i) fill(c, c.stream, slots.data() + i, static_cast<unsigned char>(i + 1), 1);
  c.synchronize();
  expect_all(c, memory.data(), 7, "memory that only refused items were to write", 1000);
  const Bytes found = c.download(slots.data(), 10);
  for (unsigned i = 0; i < 10; ++i) c.expect(found[i] == i + 1, "an item after refused ones did not run");
}

// ---- the same for graphs and ops, and for streams that see each other's work ----

void graphs_run_in_order(const Context& c) {
  needs_gates_and_free_streams(c);
  const abi::Calls<aa_graph_table> table = graphs(c);
  Memory first(c, size);
  Memory second(c, size);
  Memory seen(c, size);
  fill(c, c.stream, first.data(), 1);
  fill(c, c.stream, second.data(), 2);
  c.synchronize();
  Stream held(c);
  Stream free(c);
  Capture capture(c, table, held);
  copy(c, held, second.data(), first.data());
  const Graph graph(c, table, capture.end());
  graph.launch(held);  // a driver may load code at the first launch
  fill(c, held, second.data(), 2);
  synchronize(c, held);
  Watch watch(c);
  Gate gate(c, held);
  fill(c, held, first.data(), 3);
  graph.launch(held);
  fill(c, held, first.data(), 4);
  copy(c, free, seen.data(), second.data());
  synchronize(c, free);
  const bool early = watch.gets_done(held);
  gate.open();
  synchronize(c, held);
  c.expect(!early, "a stream is done though a host call holds it before a graph");
  expect_all(c, seen.data(), 2, "memory that a graph behind a host call is to write, before that returned");
  expect_all(c, second.data(), 3, "memory that a graph wrote between two fills");
}

// Host calls are recorded as other work is: they run at each launch, in their place.
void graphs_run_host_calls(const Context& c) {
  needs_gates(c);
  const abi::Calls<aa_graph_table> table = graphs(c);
  struct Log {
    unsigned char* memory;
    size_t calls = 0;
    unsigned char found = 0;
  };
  Memory pinned(c, size, c.has(AA_CAP_PINNED_HOST) ? AA_MEMORY_PINNED : AA_MEMORY_DEVICE);
  Bytes own(size);
  Log log{c.has(AA_CAP_PINNED_HOST) ? pinned.data() : own.data()};
  Memory memory(c, size);
  Stream stream(c);
  Capture capture(c, table, stream);
  c.ok(c.driver.copy_async(stream, log.memory, memory.data(), size, AA_COPY_DEVICE_TO_HOST), "copy_async");
  c.ok(c.driver.stream_host_call(
           stream,
           [](void* user) {
             auto* const written = static_cast<Log*>(user);
             ++written->calls;
             written->found = written->memory[size - 1];
           },
           &log),
       "stream_host_call on a stream that captures");
  const Graph graph(c, table, capture.end());
  c.synchronize();
  c.expect(log.calls == 0, "a host call ran while it was recorded");
  for (unsigned char round = 1; round <= 3; ++round) {
    fill(c, stream, memory.data(), round);
    graph.launch(stream);
    synchronize(c, stream);
    c.expect(log.calls == round, "a recorded host call ran " + std::to_string(log.calls) + " times in " +
                                     std::to_string(round) + " launches");
    c.expect(log.found == round, "a recorded host call ran before the copy that was recorded before it");
  }
}

// "If an earlier launch has not completed, the two run one after another", whatever their streams.
void launches_do_not_overlap(const Context& c) {
  needs_gates_and_free_streams(c);
  const abi::Calls<aa_graph_table> table = graphs(c);
  Stream first(c);
  Stream second(c);
  Memory counter(c, size);
  Memory seen(c, size);
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int entered = 0;
    bool open = false;
  };
  // Never deleted: a broken driver may call the function at any later time.
  static auto& states = *new std::vector<State*>;
  states.push_back(new State);
  State& state = *states.back();
  Capture capture(c, table, first);
  c.ok(c.driver.stream_host_call(
           first,
           [](void* user) {
             auto* const all = static_cast<State*>(user);
             std::unique_lock lock(all->mutex);
             ++all->entered;
             all->changed.wait(lock, [&] { return all->open; });
           },
           &state),
       "stream_host_call on a stream that captures");
  copy(c, first, seen.data(), counter.data());
  const Graph graph(c, table, capture.end());
  Watch watch(c);
  struct Opens {
    ~Opens() { open(); }
    void open() const {
      const std::lock_guard lock(state.mutex);
      state.open = true;
      state.changed.notify_all();
    }
    State& state;
  } const gate{state};
  graph.launch(first);
  graph.launch(second);
  const bool early = watch.gets_done(second);
  int entered = 0;
  {
    const std::lock_guard lock(state.mutex);
    entered = state.entered;
  }
  gate.open();
  synchronize(c, first);
  synchronize(c, second);
  c.expect(!early, "the second launch of a graph is done while the first is held");
  c.expect(entered <= 1, "the second launch of a graph, on another stream, began while the first was held");
  c.expect(state.entered == 2, "two launches ran a recorded host call " + std::to_string(state.entered) + " times");
}

// Calls behind a gate run later, and must use the arguments that were passed, not what their memory holds by then.
void ops_run_in_order(const Context& c) {
  needs_gates_and_free_streams(c);
  const auto table = c.extension<aa_ops_table>(AA_OPS_EXTENSION, AA_OPS_VERSION);
  int32_t op = -1;
  aa_status* found = table.find(c.instance, "increment", &op);
  if (found && c.host.status_code(&c.host, found) == AA_NOT_FOUND) {
    c.drop(found);
    c.unsupported("the driver has no \"increment\"");
  }
  c.ok(found, "find of \"increment\"");
  constexpr int64_t count = 100;
  Memory numbers(c, count * sizeof(int32_t));
  Memory seen(c, count * sizeof(int32_t));
  fill(c, c.stream, numbers.data(), 0, numbers.size());
  c.synchronize();
  Stream held(c);
  Stream free(c);
  aa_tensor tensor{};
  aa_increment_params params{};
  aa_op_call call{};
  const auto set = [&](int64_t amount) {
    tensor = aa_tensor{};
    tensor.data = numbers.data();
    tensor.dtype = AA_DTYPE_I32;
    tensor.ndim = 1;
    for (int64_t& length : tensor.shape) length = 1;
    tensor.shape[0] = count;
    tensor.strides[0] = 1;
    params = {sizeof(params), 0, amount};
    call = aa_op_call{};
    call.struct_size = sizeof(call);
    call.op = op;
    call.tensors = &tensor;
    call.tensor_count = 1;
    call.params = &params;
    call.params_size = sizeof(params);
  };
  Watch watch(c);
  Gate gate(c, held);
  for (int64_t i = 1; i <= 3; ++i) {
    set(i);
    c.ok(table.enqueue(held, &call), "enqueue of \"increment\"");
    params.amount = 1000;
    tensor.shape[0] = 1;
  }
  copy(c, free, seen.data(), numbers.data(), numbers.size());
  synchronize(c, free);
  const bool early = watch.gets_done(held);
  gate.open();
  synchronize(c, held);
  c.expect(!early, "a stream is done though a host call holds it before ops");
  expect_all(c, seen.data(), 0, "numbers that ops behind a host call are to change, before that returned",
             numbers.size());
  std::vector<int32_t> values(count);
  c.download(values.data(), numbers.data(), numbers.size());
  for (const int32_t value : values) {
    c.expect(value == 6, "numbers that three calls of \"increment\" change by 1, 2 and 3 are " + std::to_string(value) +
                             ", though the structs of the calls were changed after them");
  }
}

void dependencies_are_seen(const Context& c) {
  if (!c.has(AA_CAP_RESOLVES_DEPENDENCIES)) c.unsupported("AA_CAP_RESOLVES_DEPENDENCIES is clear");
  needs_gates(c);
  Memory memory(c, size);
  Memory copied(c, size);
  fill(c, c.stream, memory.data(), 1);
  fill(c, c.stream, copied.data(), 1);
  c.synchronize();
  Stream held(c);
  Stream other(c);
  Watch watch(c);
  Gate gate(c, held);
  fill(c, held, memory.data(), 2);
  copy(c, other, copied.data(), memory.data());
  const bool early = watch.gets_done(other);
  gate.open();
  synchronize(c, other);
  c.expect(!early, "a stream does not wait for the work of another one, though the flag says so");
  expect_all(c, copied.data(), 2, "what a stream copies of another one's work");
}

// For drivers without host calls: long copies hold the stream. An observation counts only if the last copy is still
// incomplete afterwards; otherwise the next attempt uses more of them.
void long_work_holds_its_stream(const Context& c) {
  if (c.promises(AA_CAP_SYNCHRONOUS)) c.unsupported("work is complete when the enqueuing call returns");
  if (c.promises(AA_CAP_HOST_CALL)) c.unsupported("the other cases hold streams by host calls");
  constexpr size_t large = size_t{16} << 20;
  Memory from(c, large);
  Memory to(c, large);
  Memory first(c, size);
  Memory second(c, size);
  Memory seen(c, size);
  const Bytes ones(size, 1);
  const Bytes twos(size, 2);
  const Bytes old(size, 9);
  Stream held(c);
  Stream waiting(c);
  Event event(c);
  int32_t nothing = 0;
  c.ok_or_unsupported(c.driver.stream_query(held, &nothing), "stream_query");
  c.ok_or_unsupported(c.driver.event_query(event, &nothing), "event_query");
  for (int copies = 8; copies <= 128; copies *= 2) {
    c.upload(first.data(), ones.data(), size);
    c.upload(second.data(), old.data(), size);
    c.upload(seen.data(), twos.data(), size);
    for (int i = 0; i < copies; ++i) copy(c, held, to.data(), from.data(), large);
    copy(c, held, second.data(), first.data());
    record(c, event, held);
    c.ok_or_unsupported(c.driver.stream_wait_event(waiting, event), "stream_wait_event");
    copy(c, waiting, seen.data(), second.data());
    const bool waiting_done = done(c, waiting);
    const bool held_done = done(c, held);
    const bool judged = !done(c, event);  // every query was made while the stream was held
    synchronize(c, waiting);
    const Bytes found = c.download(seen.data(), size);
    const bool event_done = done(c, event);
    synchronize(c, held);
    expect_equal(found, ones, "what a stream copies after its wait for a copy behind long ones");
    c.expect(event_done, "a stream that waited for an event is done before the event");
    if (!judged) continue;
    c.expect(!held_done, "a stream is done though an event on it is not complete");
    c.expect(!waiting_done, "a stream that waits for an event is done before the event");
    c.note = std::to_string(copies) + " copies of 16 MiB";
    c.has(AA_CAP_CONCURRENT_STREAMS);
    return;
  }
  c.unavailable("not tested: copies of 2 GiB did not hold a stream long enough");
}

constexpr Case cases[] = {
    {"order", "long_work_holds_its_stream", long_work_holds_its_stream},
    {"order", "graphs_run_in_order", graphs_run_in_order},
    {"order", "graphs_run_host_calls", graphs_run_host_calls},
    {"order", "launches_do_not_overlap", launches_do_not_overlap},
    {"order", "ops_run_in_order", ops_run_in_order},
    {"order", "dependencies_are_seen", dependencies_are_seen},
    {"order", "work_waits_for_what_is_before_it", work_waits_for_what_is_before_it},
    {"order", "items_keep_their_order", items_keep_their_order},
    {"order", "overlapping_fills_keep_their_order", overlapping_fills_keep_their_order},
    {"order", "a_record_covers_what_is_before_it", a_record_covers_what_is_before_it},
    {"order", "a_fresh_event_holds_nothing", a_fresh_event_holds_nothing},
    {"order", "the_latest_record_counts", the_latest_record_counts},
    {"order", "a_wait_keeps_its_record", a_wait_keeps_its_record},
    {"order", "a_later_record_holds_no_earlier_wait", a_later_record_holds_no_earlier_wait},
    {"order", "a_wait_holds_only_its_stream", a_wait_holds_only_its_stream},
    {"order", "a_wait_holds_every_kind_of_item", a_wait_holds_every_kind_of_item},
    {"order", "a_chain_of_streams_ends", a_chain_of_streams_ends},
    {"order", "enqueueing_does_not_wait", enqueueing_does_not_wait},
    {"order", "synchronizing_waits", synchronizing_waits},
    {"order", "synchronizing_the_device_waits_for_every_stream", synchronizing_the_device_waits_for_every_stream},
    {"order", "synchronizing_a_stream_waits_for_no_later_work", synchronizing_a_stream_waits_for_no_later_work},
    {"order", "synchronizing_an_event_waits_for_no_later_record", synchronizing_an_event_waits_for_no_later_record},
    {"order", "destroying_a_stream_waits", destroying_a_stream_waits},
    {"order", "destroying_a_stream_waits_for_its_waits", destroying_a_stream_waits_for_its_waits},
    {"order", "events_may_go_first", events_may_go_first},
    {"order", "host_calls_run_once_and_in_order", host_calls_run_once_and_in_order},
    {"order", "elapsed_time_is_the_hosts", elapsed_time_is_the_hosts},
    {"order", "host_memory_changes_in_order", host_memory_changes_in_order},
    {"order", "refused_items_leave_the_stream_usable", refused_items_leave_the_stream_usable},
};

}  // namespace
}  // namespace order_group

std::span<const Case> order_cases() { return order_group::cases; }

}  // namespace anyaccel::conformance
