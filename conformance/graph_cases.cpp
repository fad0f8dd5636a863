// Cases of the graph extension.
#include <algorithm>

#include "conformance/graph_objects.h"

namespace anyaccel::conformance {
namespace graph_group {
namespace {

constexpr size_t size = 10000;

bool is_capturing(const Context& c, const abi::Calls<aa_graph_table>& table, aa_stream* stream) {
  int32_t capturing = -1;
  c.ok(table.capture_status(stream, &capturing), "capture_status");
  c.expect(capturing == 0 || capturing == 1, "capture_status gave neither 0 nor 1");
  return capturing == 1;
}

void copy(const Context& c, aa_stream* stream, Memory& destination, Memory& source) {
  c.ok(c.driver.copy_async(stream, destination.data(), source.data(), size, AA_COPY_DEVICE_TO_DEVICE), "copy_async");
}

void records_and_replays(const Context& c) {
  const abi::Calls<aa_graph_table> table = graphs(c);
  Memory source(c, size);
  Memory middle(c, size);
  Memory destination(c, size);
  const Bytes before = pattern(size, 1);
  c.upload(destination.data(), before.data(), size);
  c.upload(middle.data(), before.data(), size);
  Stream recorder(c);
  Capture capture(c, table, recorder);
  copy(c, capture.stream(), middle, source);
  copy(c, capture.stream(), destination, middle);
  const Graph graph(c, table, capture.end());
  c.ok(c.driver.device_synchronize(c.device), "device_synchronize");
  expect_equal(c.download(destination.data(), size), before, "memory after recording (nothing may have run)");
  for (unsigned round = 0; round < 3; ++round) {
    const Bytes data = pattern(size, 10 + round);
    c.upload(source.data(), data.data(), size);
    graph.launch(c.stream);
    expect_equal(c.download(destination.data(), size), data, "launch " + std::to_string(round + 1));
  }
  int64_t nodes = -1;
  c.ok(table.node_count(graph.get(), &nodes), "node_count");
  c.expect(nodes >= 1, "a graph of two copies has " + std::to_string(nodes) + " nodes");
}

void records_fills(const Context& c) {
  const abi::Calls<aa_graph_table> table = graphs(c);
  Memory memory(c, size);
  const Bytes before = pattern(size, 2);
  c.upload(memory.data(), before.data(), size);
  auto filling = abi::sized<aa_fill>();
  filling.destination = memory.data();
  filling.size = size;
  filling.pattern_size = 2;
  filling.pattern[0] = 7;
  filling.pattern[1] = 8;
  Stream recorder(c);
  Capture capture(c, table, recorder);
  c.ok_or_unsupported(c.driver.fill_async(capture.stream(), &filling), "fill_async");
  filling.pattern[0] = filling.pattern[1] = 99;  // borrowed for the call only, also while recording
  const Graph graph(c, table, capture.end());
  expect_equal(c.download(memory.data(), size), before, "memory after recording a fill");
  graph.launch(c.stream);
  const Bytes found = c.download(memory.data(), size);
  for (size_t i = 0; i < size; ++i) c.expect(found[i] == 7 + i % 2, "a recorded fill gave something else");
}

void launches_run_one_after_another(const Context& c) {
  // Each launch rotates the contents of a ring of three blocks by one.
  const abi::Calls<aa_graph_table> table = graphs(c);
  Memory a(c, size);
  Memory b(c, size);
  Memory spare(c, size);
  const Bytes first = pattern(size, 3);
  const Bytes second = pattern(size, 4);
  c.upload(a.data(), first.data(), size);
  c.upload(b.data(), second.data(), size);
  Stream recorder(c);
  Capture capture(c, table, recorder);
  copy(c, capture.stream(), spare, a);
  copy(c, capture.stream(), a, b);
  copy(c, capture.stream(), b, spare);
  const Graph graph(c, table, capture.end());
  for (int i = 0; i < 7; ++i) graph.launch(c.stream);
  expect_equal(c.download(a.data(), size), second, "two blocks swapped seven times");
  expect_equal(c.download(b.data(), size), first, "two blocks swapped seven times");
}

void status_follows_the_capture(const Context& c) {
  const abi::Calls<aa_graph_table> table = graphs(c);
  c.expect(!is_capturing(c, table, c.stream), "a stream captures without having been asked");
  Stream recorder(c);
  Capture capture(c, table, recorder);
  c.expect(is_capturing(c, table, capture.stream()), "capture_status is 0 after capture_begin");
  const Graph graph(c, table, capture.end());
  c.expect(!is_capturing(c, table, capture.stream()), "capture_status is 1 after capture_end");
}

void captures_do_not_nest(const Context& c) {
  const abi::Calls<aa_graph_table> table = graphs(c);
  Stream recorder(c);
  Capture capture(c, table, recorder);
  c.error(table.capture_begin(capture.stream()), {AA_FAILED_PRECONDITION}, "capture_begin of a capturing stream");
}

void no_synchronizing_while_capturing(const Context& c) {
  const abi::Calls<aa_graph_table> table = graphs(c);
  Stream recorder(c);
  Capture capture(c, table, recorder);
  c.error(c.driver.stream_synchronize(capture.stream()), {AA_FAILED_PRECONDITION},
          "stream_synchronize of a capturing stream");
}

void end_without_begin_is_refused(const Context& c) {
  const abi::Calls<aa_graph_table> table = graphs(c);
  Stream stream(c);
  aa_graph* graph = nullptr;
  c.error(table.capture_end(stream, &graph), {AA_FAILED_PRECONDITION}, "capture_end without capture_begin");
  c.expect(graph == nullptr, "capture_end failed but gave a graph");
}

void abandoned_captures_leave_nothing(const Context& c) {
  const abi::Calls<aa_graph_table> table = graphs(c);
  Memory source(c, size);
  Memory destination(c, size);
  const Bytes before = pattern(size, 5);
  const Bytes data = pattern(size, 6);
  c.upload(destination.data(), before.data(), size);
  c.upload(source.data(), data.data(), size);
  Stream stream(c);
  c.ok(table.capture_begin(stream), "capture_begin");
  aa_status* copied = c.driver.copy_async(stream, destination.data(), source.data(), size, AA_COPY_DEVICE_TO_DEVICE);
  const bool ended = c.drop(table.capture_end(stream, nullptr));
  c.ok(copied, "copy_async");
  c.expect(ended, "capture_end with a null graph failed");
  c.expect(!is_capturing(c, table, stream), "the stream captures after capture_end");
  expect_equal(c.download(destination.data(), size), before, "memory after an abandoned capture");
  copy(c, stream, destination, source);
  c.ok(c.driver.stream_synchronize(stream), "stream_synchronize");
  expect_equal(c.download(destination.data(), size), data, "a copy on the stream after an abandoned capture");
}

void empty_graphs_launch(const Context& c) {
  const abi::Calls<aa_graph_table> table = graphs(c);
  Stream recorder(c);
  Capture capture(c, table, recorder);
  const Graph graph(c, table, capture.end());
  graph.launch(c.stream);
  c.synchronize();
}

void two_graphs_do_not_mix(const Context& c) {
  // Recorded at the same time on two streams, launched in turns, one destroyed while the other lives.
  const abi::Calls<aa_graph_table> table = graphs(c);
  Memory source(c, size);
  Memory one(c, size);
  Memory two(c, size);
  const Bytes before = pattern(size, 7);
  c.upload(one.data(), before.data(), size);
  c.upload(two.data(), before.data(), size);
  Stream first_recorder(c);
  Stream second_recorder(c);
  Capture first_capture(c, table, first_recorder);
  Capture second_capture(c, table, second_recorder);
  copy(c, first_recorder, one, source);
  copy(c, second_recorder, two, source);
  const Graph first(c, table, first_capture.end());
  const Bytes late = pattern(size, 9);
  {
    const Graph second(c, table, second_capture.end());
    const Bytes data = pattern(size, 8);
    c.upload(source.data(), data.data(), size);
    first.launch(c.stream);
    expect_equal(c.download(one.data(), size), data, "the first graph's destination");
    expect_equal(c.download(two.data(), size), before, "the second graph's destination, before its launch");
    c.upload(source.data(), late.data(), size);
    second.launch(c.stream);
    expect_equal(c.download(two.data(), size), late, "the second graph's destination");
    expect_equal(c.download(one.data(), size), data, "the first graph's destination, after the second one's launch");
  }
  first.launch(c.stream);
  expect_equal(c.download(one.data(), size), late, "the first graph's destination, after the second graph is gone");
}

void host_copies_are_read_at_the_launch(const Context& c) {
  // Copies from and to the host: each launch reads and writes the memory's contents at that time.
  const abi::Calls<aa_graph_table> table = graphs(c);
  Memory memory(c, size);
  Bytes source = pattern(size, 10);
  Bytes destination(size);
  Stream recorder(c);
  Capture capture(c, table, recorder);
  c.ok(c.driver.copy_async(recorder, memory.data(), source.data(), size, AA_COPY_HOST_TO_DEVICE), "copy_async");
  c.ok(c.driver.copy_async(recorder, destination.data(), memory.data(), size, AA_COPY_DEVICE_TO_HOST), "copy_async");
  const Graph graph(c, table, capture.end());
  for (unsigned round = 0; round < 3; ++round) {
    const Bytes data = pattern(size, 20 + round);
    std::copy(data.begin(), data.end(), source.begin());
    graph.launch(c.stream);
    c.synchronize();
    expect_equal(destination, data, "what launch " + std::to_string(round + 1) + " copied back");
  }
}

void work_on_other_streams_runs(const Context& c) {
  const abi::Calls<aa_graph_table> table = graphs(c);
  Memory memory(c, size);
  Stream recorder(c);
  Capture capture(c, table, recorder);
  const Bytes data = pattern(size, 11);
  c.upload(memory.data(), data.data(), size);
  expect_equal(c.download(memory.data(), size), data, "a copy on a stream beside one that captures");
  c.expect(capture.abandon(), "capture_end with a null graph failed");
}

// A stream that waits for an event of a capture is part of it: a chain of copies that crosses to it and back is repeated in order.
void streams_join_by_waiting(const Context& c) {
  const abi::Calls<aa_graph_table> table = graphs(c);
  Memory first(c, size), second(c, size), third(c, size), last(c, size);
  const Bytes before = pattern(size, 30);
  for (const Memory* memory : {&first, &second, &third, &last}) c.upload(memory->data(), before.data(), size);
  Stream recorder(c), joined(c);
  Event there(c), back(c);
  Capture capture(c, table, recorder);
  copy(c, recorder, second, first);
  c.ok(c.driver.event_record(there, recorder), "event_record on a stream that captures");
  c.expect(!is_capturing(c, table, joined), "a stream captures before it waits for an event of the capture");
  c.ok(c.driver.stream_wait_event(joined, there), "stream_wait_event for an event of a capture");
  c.expect(is_capturing(c, table, joined), "a stream that waits for an event of a capture does not take part in it");
  copy(c, joined, third, second);
  c.error(table.capture_end(joined, nullptr), {AA_FAILED_PRECONDITION},
          "capture_end on a stream that joined the capture");
  c.error(table.capture_begin(joined), {AA_FAILED_PRECONDITION}, "capture_begin on a stream that joined a capture");
  c.ok(c.driver.event_record(back, joined), "event_record on a stream that joined the capture");
  c.ok(c.driver.stream_wait_event(recorder, back), "stream_wait_event for an event of a stream that joined");
  copy(c, recorder, last, third);
  expect_equal(c.download(third.data(), size), before, "what a stream that joined records, before a launch");
  const Graph graph(c, table, capture.end());
  c.expect(!is_capturing(c, table, joined), "a stream that joined a capture captures after its end");
  for (unsigned round = 0; round < 2; ++round) {
    const Bytes data = pattern(size, 31 + round);
    c.upload(first.data(), data.data(), size);
    graph.launch(c.stream);
    expect_equal(c.download(last.data(), size), data, "copies of two streams of one capture");
  }
  c.upload(first.data(), before.data(), size);
  copy(c, joined, third, first);
  c.ok(c.driver.stream_synchronize(joined), "stream_synchronize of a stream that had joined a capture");
  expect_equal(c.download(third.data(), size), before, "a copy on a stream that had joined a capture");
}

// A stream that captures waits for no event of another capture: the graphs would need each other's work.
void captures_do_not_wait_for_each_other(const Context& c) {
  const abi::Calls<aa_graph_table> table = graphs(c);
  Memory source(c, size), destination(c, size);
  const Bytes before = pattern(size, 40), data = pattern(size, 41);
  c.upload(source.data(), data.data(), size);
  c.upload(destination.data(), before.data(), size);
  {
    Stream first(c), second(c);
    Event event(c);
    Capture one(c, table, first), other(c, table, second);
    copy(c, second, destination, source);
    c.ok(c.driver.event_record(event, second), "event_record on a stream that captures");
    c.error(c.driver.stream_wait_event(first, event), {AA_FAILED_PRECONDITION},
            "stream_wait_event on a stream that captures, for an event of another capture");
    // Whether the captures can go on is not said.
    other.abandon();
    one.abandon();
  }
  expect_equal(c.download(destination.data(), size), before, "memory after abandoned captures");
  Stream next(c);
  Capture capture(c, table, next);
  copy(c, next, destination, source);
  const Graph graph(c, table, capture.end());
  graph.launch(c.stream);
  expect_equal(c.download(destination.data(), size), data, "what a graph wrote that was captured after a refused wait");
}

constexpr Case cases[] = {
    {"graphs", "records_and_replays", records_and_replays},
    {"graphs", "records_fills", records_fills},
    {"graphs", "launches_run_one_after_another", launches_run_one_after_another},
    {"graphs", "status_follows_the_capture", status_follows_the_capture},
    {"graphs", "captures_do_not_nest", captures_do_not_nest},
    {"graphs", "no_synchronizing_while_capturing", no_synchronizing_while_capturing},
    {"graphs", "end_without_begin_is_refused", end_without_begin_is_refused},
    {"graphs", "abandoned_captures_leave_nothing", abandoned_captures_leave_nothing},
    {"graphs", "empty_graphs_launch", empty_graphs_launch},
    {"graphs", "two_graphs_do_not_mix", two_graphs_do_not_mix},
    {"graphs", "host_copies_are_read_at_the_launch", host_copies_are_read_at_the_launch},
    {"graphs", "work_on_other_streams_runs", work_on_other_streams_runs},
    {"graphs", "streams_join_by_waiting", streams_join_by_waiting},
    {"graphs", "captures_do_not_wait_for_each_other", captures_do_not_wait_for_each_other},
};

}  // namespace
}  // namespace graph_group

std::span<const Case> graph_cases() { return graph_group::cases; }

}  // namespace anyaccel::conformance
