// Cases of events.
#include <atomic>
#include <cmath>
#include <thread>

#include "conformance/context.h"

namespace anyaccel::conformance {
namespace event_group {
namespace {

constexpr size_t size = size_t{2} << 20;

bool is_done(const Context& c, aa_event* event) {
  int32_t done = -1;
  c.ok(c.driver.event_query(event, &done), "event_query");
  c.expect(done == 0 || done == 1, "event_query gave " + std::to_string(done) + ", not 0 or 1");
  return done == 1;
}

void never_recorded_is_complete(const Context& c) {
  { Event works(c); }  // else there are none
  for (const uint32_t flags :
       {AA_EVENT_DEFAULT, AA_EVENT_BLOCKING_SYNC, AA_EVENT_TIMING, AA_EVENT_TIMING | AA_EVENT_BLOCKING_SYNC}) {
    aa_event* other = nullptr;
    c.ok(c.driver.event_create(c.device, flags, &other), "event_create with flags " + std::to_string(flags));
    c.ok(c.driver.event_destroy(other), "event_destroy");
    Event event(c, flags);
    c.expect(is_done(c, event), "an event that was never recorded is not complete");
    c.ok(c.driver.event_synchronize(event), "event_synchronize of an event that was never recorded");
    c.ok(c.driver.stream_wait_event(c.stream, event), "stream_wait_event of an event that was never recorded");
    c.synchronize();
  }
}

void destroy_reports_success(const Context& c) {
  aa_event* event = nullptr;
  c.ok_or_unsupported(c.driver.event_create(c.device, AA_EVENT_DEFAULT, &event), "event_create");
  c.ok(c.driver.event_destroy(event), "event_destroy");
}

void marks_the_work_before_it(const Context& c) {
  for (const uint32_t flags : {AA_EVENT_DEFAULT, AA_EVENT_BLOCKING_SYNC}) {
    Event event(c, flags);
    Memory memory(c, size);
    const Bytes data = pattern(size, 1);
    Bytes found(size);
    c.upload(memory.data(), data.data(), size);
    c.ok(c.driver.copy_async(c.stream, found.data(), memory.data(), size, AA_COPY_DEVICE_TO_HOST), "copy_async");
    c.ok(c.driver.event_record(event, c.stream), "event_record");
    c.ok(c.driver.event_synchronize(event), "event_synchronize");
    const bool done = is_done(c, event);
    const Bytes seen = found;
    c.synchronize();
    expect_equal(seen, data, "a copy after event_synchronize");
    c.expect(done, "an event is not complete after event_synchronize");
  }
}

void recording_again_replaces(const Context& c) {
  Event event(c);
  Memory memory(c, size);
  Bytes found(size);
  for (unsigned round = 0; round < 5; ++round) {
    const Bytes data = pattern(size, round);
    c.upload(memory.data(), data.data(), size);
    c.ok(c.driver.copy_async(c.stream, found.data(), memory.data(), size, AA_COPY_DEVICE_TO_HOST), "copy_async");
    c.ok(c.driver.event_record(event, c.stream), "event_record");
    c.ok(c.driver.event_synchronize(event), "event_synchronize");
    expect_equal(found, data, "a copy after the event was recorded again");
  }
}

void streams_wait_for_events(const Context& c) {
  Bytes data(size);  // outlives the streams' work however the case ends
  Bytes found(size);
  Memory memory(c, size);
  Stream producer(c);
  Stream consumer(c);
  for (unsigned round = 0; round < 10; ++round) {
    Event event(c);
    data = pattern(size, round);
    c.ok(c.driver.copy_async(producer, memory.data(), data.data(), size, AA_COPY_HOST_TO_DEVICE), "copy_async");
    c.ok(c.driver.event_record(event, producer), "event_record");
    c.ok_or_unsupported(c.driver.stream_wait_event(consumer, event), "stream_wait_event");
    c.ok(c.driver.copy_async(consumer, found.data(), memory.data(), size, AA_COPY_DEVICE_TO_HOST), "copy_async");
    c.ok(c.driver.stream_synchronize(consumer), "stream_synchronize");
    expect_equal(found, data, "what a stream reads after waiting for another one's event");
    c.ok(c.driver.stream_synchronize(producer), "stream_synchronize");
  }
}

void destroyed_before_completion(const Context& c) {
  Memory memory(c, size);
  const Bytes data = pattern(size, 2);
  Stream producer(c);
  Stream consumer(c);
  Bytes found(size);
  {
    Event event(c);
    c.ok(c.driver.copy_async(producer, memory.data(), data.data(), size, AA_COPY_HOST_TO_DEVICE), "copy_async");
    c.ok(c.driver.event_record(event, producer), "event_record");
    c.ok_or_unsupported(c.driver.stream_wait_event(consumer, event), "stream_wait_event");
  }
  c.ok(c.driver.copy_async(consumer, found.data(), memory.data(), size, AA_COPY_DEVICE_TO_HOST), "copy_async");
  c.ok(c.driver.stream_synchronize(consumer), "stream_synchronize");
  expect_equal(found, data, "what a stream reads after waiting for an event that is gone");
}

void outlives_its_stream(const Context& c) {
  Event event(c);
  {
    Stream stream(c);
    c.ok(c.driver.event_record(event, stream), "event_record");
  }
  c.ok(c.driver.event_synchronize(event), "event_synchronize after the stream was destroyed");
  c.expect(is_done(c, event), "an event is not complete though its stream was destroyed");
}

void query_on_threads(const Context& c) {
  Event event(c);
  Memory memory(c, size);
  const Bytes data = pattern(size, 3);
  c.ok(c.driver.copy_async(c.stream, memory.data(), data.data(), size, AA_COPY_HOST_TO_DEVICE), "copy_async");
  c.ok(c.driver.event_record(event, c.stream), "event_record");
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        int32_t done = -1;
        if (!c.drop(c.driver.event_query(event, &done))) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  c.synchronize();
  c.expect(failures == 0, std::to_string(failures) + " of 400 event_query on four threads failed");
}

void elapsed_time(const Context& c) {
  if (!c.has(AA_CAP_EVENT_TIMING)) {
    Event start(c, AA_EVENT_TIMING);
    Event end(c, AA_EVENT_TIMING);
    double milliseconds = -5;
    c.ok(c.driver.event_record(start, c.stream), "event_record");
    c.ok(c.driver.event_record(end, c.stream), "event_record");
    c.synchronize();
    c.error(c.driver.event_elapsed(start, end, &milliseconds), {AA_UNIMPLEMENTED},
            "event_elapsed, whose flag is clear,");
    c.expect(milliseconds == -5, "event_elapsed is unimplemented but wrote a time");
    c.unsupported("the flag is clear, and event_elapsed says so");
  }
  Event start(c, AA_EVENT_TIMING);
  Event middle(c, AA_EVENT_TIMING);
  Event end(c, AA_EVENT_TIMING);
  Memory memory(c, size);
  const Bytes data = pattern(size, 4);
  c.ok(c.driver.event_record(start, c.stream), "event_record");
  c.ok(c.driver.copy_async(c.stream, memory.data(), data.data(), size, AA_COPY_HOST_TO_DEVICE), "copy_async");
  c.ok(c.driver.event_record(middle, c.stream), "event_record");
  c.ok(c.driver.copy_async(c.stream, memory.data(), data.data(), size, AA_COPY_HOST_TO_DEVICE), "copy_async");
  c.ok(c.driver.event_record(end, c.stream), "event_record");
  c.synchronize();
  double first = -1;
  double second = -1;
  double both = -1;
  c.ok(c.driver.event_elapsed(start, middle, &first), "event_elapsed");
  c.ok(c.driver.event_elapsed(middle, end, &second), "event_elapsed");
  c.ok(c.driver.event_elapsed(start, end, &both), "event_elapsed");
  c.expect(std::isfinite(both) && first >= 0 && second >= 0 && both > 0 && both < 60000,
           "event_elapsed gave " + std::to_string(both) + " ms for two copies of 2 MiB");
  c.expect(std::fabs(first + second - both) <= 0.01 + 0.01 * both, "the parts do not add up to the whole");
}

void elapsed_time_needs_timed_events(const Context& c) {
  if (!c.has(AA_CAP_EVENT_TIMING)) c.unsupported("the flag is clear");
  Event timed(c, AA_EVENT_TIMING);
  Event untimed(c, AA_EVENT_DEFAULT);
  Event unrecorded(c, AA_EVENT_TIMING);
  c.ok(c.driver.event_record(timed, c.stream), "event_record");
  c.ok(c.driver.event_record(untimed, c.stream), "event_record");
  c.synchronize();
  double milliseconds = -5;
  c.error(c.driver.event_elapsed(timed, untimed, &milliseconds), {AA_FAILED_PRECONDITION},
          "event_elapsed of an event made without AA_EVENT_TIMING");
  c.error(c.driver.event_elapsed(timed, unrecorded, &milliseconds), {AA_FAILED_PRECONDITION},
          "event_elapsed of an event that was never recorded");
  c.expect(milliseconds == -5, "event_elapsed failed but wrote a time");
}

constexpr Case cases[] = {
    {"events", "never_recorded_is_complete", never_recorded_is_complete},
    {"events", "destroy_reports_success", destroy_reports_success},
    {"events", "marks_the_work_before_it", marks_the_work_before_it},
    {"events", "recording_again_replaces", recording_again_replaces},
    {"events", "streams_wait_for_events", streams_wait_for_events},
    {"events", "destroyed_before_completion", destroyed_before_completion},
    {"events", "outlives_its_stream", outlives_its_stream},
    {"events", "query_on_threads", query_on_threads},
    {"events", "elapsed_time", elapsed_time},
    {"events", "elapsed_time_needs_timed_events", elapsed_time_needs_timed_events},
};

}  // namespace
}  // namespace event_group

std::span<const Case> event_cases() { return event_group::cases; }

}  // namespace anyaccel::conformance
