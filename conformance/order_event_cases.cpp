// Cases of order by events: what a record covers, which record a wait is for, and the times between records. As in
// order_cases.cpp, gates hold the streams.
#include <atomic>
#include <cmath>

#include "conformance/gate.h"
#include "conformance/order_calls.h"

namespace anyaccel::conformance {
namespace order_event_group {
namespace {

using namespace order_calls;

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

constexpr Case cases[] = {
    {"order", "a_record_covers_what_is_before_it", a_record_covers_what_is_before_it},
    {"order", "a_fresh_event_holds_nothing", a_fresh_event_holds_nothing},
    {"order", "the_latest_record_counts", the_latest_record_counts},
    {"order", "a_wait_keeps_its_record", a_wait_keeps_its_record},
    {"order", "a_later_record_holds_no_earlier_wait", a_later_record_holds_no_earlier_wait},
    {"order", "a_wait_holds_only_its_stream", a_wait_holds_only_its_stream},
    {"order", "a_wait_holds_every_kind_of_item", a_wait_holds_every_kind_of_item},
    {"order", "events_may_go_first", events_may_go_first},
    {"order", "elapsed_time_is_the_hosts", elapsed_time_is_the_hosts},
};

}  // namespace
}  // namespace order_event_group

std::span<const Case> order_event_cases() { return order_event_group::cases; }

}  // namespace anyaccel::conformance
