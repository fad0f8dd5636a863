// Captures and graphs of the graph extension, for the cases that record something.
#pragma once

#include <string>

#include "anyaccel/abi/graph.h"
#include "conformance/context.h"

namespace anyaccel::conformance {

inline abi::Calls<aa_graph_table> graphs(const Context& c) {
  return c.extension<aa_graph_table>(AA_GRAPH_EXTENSION, AA_GRAPH_VERSION);
}

// A capture on a stream until `end`; one that is left open is abandoned.
class Capture {
 public:
  Capture(const Context& c, const abi::Calls<aa_graph_table>& table, aa_stream* stream)
      : c_(c), table_(table), stream_(stream) {
    c.ok(table.capture_begin(stream_), "capture_begin");
    open_ = true;
    ++c_.captures;
  }
  ~Capture() { abandon(); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  aa_stream* stream() const noexcept { return stream_; }
  bool abandon() noexcept {
    const bool open = open_;
    close();
    return !open || c_.drop(table_.capture_end(stream_, nullptr));
  }
  aa_graph* end() {
    aa_graph* graph = nullptr;
    close();
    c_.ok(table_.capture_end(stream_, &graph), "capture_end");
    c_.expect(graph != nullptr, "capture_end succeeded but gave a null graph");
    return graph;
  }

 private:
  void close() noexcept {
    c_.captures -= open_;
    open_ = false;
  }

  const Context& c_;
  abi::Calls<aa_graph_table> table_;
  aa_stream* stream_;
  bool open_ = false;
};

// Owns a graph.
class Graph {
 public:
  Graph(const Context& c, const abi::Calls<aa_graph_table>& table, aa_graph* graph)
      : c_(c), table_(table), graph_(graph) {}
  ~Graph() { c_.drop(table_.destroy(graph_)); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  aa_graph* get() const noexcept { return graph_; }
  void launch(aa_stream* stream) const { c_.ok(table_.launch(graph_, stream), "launch"); }

 private:
  const Context& c_;
  abi::Calls<aa_graph_table> table_;
  aa_graph* graph_;
};

}  // namespace anyaccel::conformance
