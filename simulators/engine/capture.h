// Capture of streams into graphs, and the running of graphs, as far as vendors agree. A vendor's interface adds the
// handles, the error codes and the calls that its vendor refuses in a capture. The interface guards all of this with
// its own lock.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "simulators/engine/engine.h"

namespace sim {

// One node of a graph; also what a stream is given outside of a capture.
struct Node {
  const char* what = "";
  std::function<void(Execution&)> run;  // null: an empty node
  std::vector<std::size_t> after;       // earlier nodes that it waits for
};

// The numbers are those of CUDA, CANN and CNRT.
enum class CaptureMode { global = 0, thread = 1, relaxed = 2 };

struct Capture;

// The state of an interface's stream in a capture.
struct CapturingStream {
  std::shared_ptr<Capture> capture;
  std::set<std::size_t> tail;  // the nodes that the next one comes after
};
// The last record of an interface's event in a capture.
struct CapturedRecord {
  std::shared_ptr<Capture> capture;  // null: the last record was in none
  std::set<std::size_t> after;       // the nodes that it stands for
};

struct Capture {
  std::thread::id thread;
  CaptureMode mode = CaptureMode::global;
  bool invalidated = false;
  bool ended = false;
  std::weak_ptr<CapturingStream> origin;
  std::vector<Node> nodes;
  std::vector<std::weak_ptr<CapturingStream>> streams;
};

std::shared_ptr<Capture> begin_capture(const std::shared_ptr<CapturingStream>& stream, CaptureMode mode);
// The node comes after everything that the stream has captured.
void capture_node(CapturingStream& stream, Node node);
// The stream waits for a record of a capture, and joins that capture. False: it belongs to another capture.
bool join_capture(const std::shared_ptr<CapturingStream>& stream, const CapturedRecord& record);
// Returns whether a stream that joined has work that the origin does not wait for.
bool has_unjoined_work(const Capture& capture);
// Streams of the capture run work again.
void end_capture(const std::shared_ptr<Capture>& capture);
// The captures that forbid this thread a potentially unsafe call; `thread_mode` is the calling thread's own mode.
std::vector<std::shared_ptr<Capture>> captures_against(CaptureMode thread_mode);

// A graph ready to run. Nodes that do not wait for each other run on lanes: streams of the graph's own, so that races
// between branches are found. Lane 0 is the stream that it is launched on.
class ExecutableGraph {
 public:
  ExecutableGraph(Engine& engine, int device, std::vector<Node> nodes);

  // Puts a node on a stream; null stands for the one that the graph is launched on. Returns 0 or the interface's error.
  using Submit = std::function<int(Stream* lane, const Node& node, std::vector<std::shared_ptr<Event>> waits,
                                   std::shared_ptr<Event> signal)>;
  // Launches run one after another, on whatever streams. `what` names the launch.
  int launch(const char* what, const Submit& submit);

  const std::vector<Node>& nodes() const { return nodes_; }
  // They may still have work when the graph is destroyed.
  const std::vector<std::shared_ptr<Stream>>& lanes() const { return lanes_; }
  const std::shared_ptr<Event>& last_launch() const { return last_; }  // set when it has ended; null: there was none

 private:
  std::vector<Node> nodes_;
  std::vector<std::size_t> lane_;  // of each node
  std::vector<std::shared_ptr<Stream>> lanes_;
  std::shared_ptr<Event> last_;
};

}  // namespace sim
