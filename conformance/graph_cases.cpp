// Cases of the graph extension.
#include <algorithm>

#include "anyaccel/abi/graph.h"
#include "conformance/context.h"

namespace anyaccel::conformance {
namespace {

constexpr size_t size = 10000;

aa_graph_table graphs(const Context& c) { return c.extension<aa_graph_table>(AA_GRAPH_EXTENSION, AA_GRAPH_VERSION); }

// A stream that captures until `end`; a capture that is left open is abandoned.
class Capture {
 public:
  Capture(const Context& c, const aa_graph_table& table) : context_(c), table_(table), stream_(c) {
    c.ok(table.capture_begin(stream_), "capture_begin");
    open_ = true;
  }
  ~Capture() {
    if (open_) context_.drop(table_.capture_end(stream_, nullptr));
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  aa_stream* stream() const noexcept { return stream_; }
  aa_graph* end() {
    aa_graph* graph = nullptr;
    open_ = false;
    context_.ok(table_.capture_end(stream_, &graph), "capture_end");
    context_.expect(graph != nullptr, "capture_end succeeded but gave a null graph");
    return graph;
  }

 private:
  const Context& context_;
  aa_graph_table table_;
  Stream stream_;
  bool open_ = false;
};

struct Graph {
  const Context& c;
  const aa_graph_table& table;
  aa_graph* graph;
  ~Graph() { c.drop(table.destroy(graph)); }
};

bool is_capturing(const Context& c, const aa_graph_table& table, aa_stream* stream) {
  int32_t capturing = -1;
  c.ok(table.capture_status(stream, &capturing), "capture_status");
  c.expect(capturing == 0 || capturing == 1, "capture_status gave neither 0 nor 1");
  return capturing == 1;
}

void copy(const Context& c, aa_stream* stream, Memory& destination, Memory& source) {
  c.ok(c.driver.copy_async(stream, destination.data(), source.data(), size, AA_COPY_DEVICE_TO_DEVICE), "copy_async");
}

void records_and_replays(const Context& c) {
  const aa_graph_table table = graphs(c);
  Memory source(c, size);
  Memory middle(c, size);
  Memory destination(c, size);
  const Bytes before = pattern(size, 1);
  c.upload(destination.data(), before.data(), size);
  c.upload(middle.data(), before.data(), size);
  Capture capture(c, table);
  copy(c, capture.stream(), middle, source);
  copy(c, capture.stream(), destination, middle);
  Graph graph{c, table, capture.end()};
  c.ok(c.driver.device_synchronize(c.device), "device_synchronize");
  expect_equal(c.download(destination.data(), size), before, "memory after recording (nothing may have run)");
  for (unsigned round = 0; round < 3; ++round) {
    const Bytes data = pattern(size, 10 + round);
    c.upload(source.data(), data.data(), size);
    c.ok(table.launch(graph.graph, c.stream), "launch");
    expect_equal(c.download(destination.data(), size), data, "launch " + std::to_string(round + 1));
  }
  int64_t nodes = -1;
  c.ok(table.node_count(graph.graph, &nodes), "node_count");
  c.expect(nodes >= 1, "a graph of two copies has " + std::to_string(nodes) + " nodes");
}

void records_fills(const Context& c) {
  const aa_graph_table table = graphs(c);
  Memory memory(c, size);
  const Bytes before = pattern(size, 2);
  c.upload(memory.data(), before.data(), size);
  unsigned char filling[2] = {7, 8};
  Capture capture(c, table);
  c.ok_or_unsupported(c.driver.fill_async(capture.stream(), memory.data(), filling, 2, size), "fill_async");
  filling[0] = filling[1] = 99;  // borrowed for the call only, also while recording
  Graph graph{c, table, capture.end()};
  expect_equal(c.download(memory.data(), size), before, "memory after recording a fill");
  c.ok(table.launch(graph.graph, c.stream), "launch");
  const Bytes found = c.download(memory.data(), size);
  for (size_t i = 0; i < size; ++i) c.expect(found[i] == 7 + i % 2, "a recorded fill gave something else");
}

void launches_run_one_after_another(const Context& c) {
  // Each launch moves the contents of a ring of three blocks on by one.
  const aa_graph_table table = graphs(c);
  Memory a(c, size);
  Memory b(c, size);
  Memory spare(c, size);
  const Bytes first = pattern(size, 3);
  const Bytes second = pattern(size, 4);
  c.upload(a.data(), first.data(), size);
  c.upload(b.data(), second.data(), size);
  Capture capture(c, table);
  copy(c, capture.stream(), spare, a);
  copy(c, capture.stream(), a, b);
  copy(c, capture.stream(), b, spare);
  Graph graph{c, table, capture.end()};
  for (int i = 0; i < 7; ++i) c.ok(table.launch(graph.graph, c.stream), "launch");
  expect_equal(c.download(a.data(), size), second, "two blocks swapped seven times");
  expect_equal(c.download(b.data(), size), first, "two blocks swapped seven times");
}

void status_follows_the_capture(const Context& c) {
  const aa_graph_table table = graphs(c);
  c.expect(!is_capturing(c, table, c.stream), "a stream captures without having been asked");
  Capture capture(c, table);
  c.expect(is_capturing(c, table, capture.stream()), "capture_status is 0 after capture_begin");
  Graph graph{c, table, capture.end()};
  c.expect(!is_capturing(c, table, capture.stream()), "capture_status is 1 after capture_end");
}

void captures_do_not_nest(const Context& c) {
  const aa_graph_table table = graphs(c);
  Capture capture(c, table);
  c.error(table.capture_begin(capture.stream()), {AA_FAILED_PRECONDITION}, "capture_begin of a capturing stream");
}

void no_synchronizing_while_capturing(const Context& c) {
  const aa_graph_table table = graphs(c);
  Capture capture(c, table);
  c.error(c.driver.stream_synchronize(capture.stream()), {AA_FAILED_PRECONDITION},
          "stream_synchronize of a capturing stream");
}

void end_without_begin_is_refused(const Context& c) {
  const aa_graph_table table = graphs(c);
  Stream stream(c);
  aa_graph* graph = nullptr;
  c.error(table.capture_end(stream, &graph), {AA_FAILED_PRECONDITION}, "capture_end without capture_begin");
  c.expect(graph == nullptr, "capture_end failed but gave a graph");
}

void abandoned_captures_leave_nothing(const Context& c) {
  const aa_graph_table table = graphs(c);
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
  const aa_graph_table table = graphs(c);
  Capture capture(c, table);
  Graph graph{c, table, capture.end()};
  c.ok(table.launch(graph.graph, c.stream), "launch of an empty graph");
  c.synchronize();
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
};

}  // namespace

std::span<const Case> graph_cases() { return cases; }

}  // namespace anyaccel::conformance
