// Cases of order and forward progress: work that must not have run yet, and work that must be able to run, within a stream and
// between streams. Streams are held by gates (gate.h), so nothing here depends on how fast a device is. While a gate is shut,
// no function is called that may wait for all work of the device.
#include <atomic>
#include <memory>

#include "conformance/gate.h"
#include "conformance/order_calls.h"

namespace anyaccel::conformance {
namespace order_group {
namespace {

using namespace order_calls;

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
    {"order", "work_waits_for_what_is_before_it", work_waits_for_what_is_before_it},
    {"order", "items_keep_their_order", items_keep_their_order},
    {"order", "overlapping_fills_keep_their_order", overlapping_fills_keep_their_order},
    {"order", "refused_items_leave_the_stream_usable", refused_items_leave_the_stream_usable},
    {"order", "dependencies_are_seen", dependencies_are_seen},
    {"order", "a_chain_of_streams_ends", a_chain_of_streams_ends},
    {"order", "enqueueing_does_not_wait", enqueueing_does_not_wait},
    {"order", "long_work_holds_its_stream", long_work_holds_its_stream},
};

}  // namespace
}  // namespace order_group

std::span<const Case> order_cases() { return order_group::cases; }

}  // namespace anyaccel::conformance
