// Captures of graphs beside other threads: what one thread captures never records what another one does. A thread that uses a
// stream on which another captures gets an error that says so.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/ops/inference.h"

namespace anyaccel {
namespace {

class CaptureThreads : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!get_accelerator()->supports_graphs()) GTEST_SKIP() << get_accelerator()->name() << " has no graphs";
  }
};

Tensor vector_of(double value) {
  Tensor tensor = Tensor::empty({256}, DType::F32, get_accelerator()->device());
  tensor.fill(value);
  return tensor;
}

float first_of(const Tensor& tensor) { return tensor.to_vector<float>()[0]; }

// Runs `work` on a thread of its own and returns the message of its exception; empty if it throws nothing.
std::string error_on_another_thread(const std::function<void()>& work) {
  std::string text;
  std::thread([&] {
    try {
      work();
    } catch (const InvalidArgument& error) {
      text = error.what();
    } catch (const std::exception& error) {
      text = std::string("of another type: ") + error.what();
    }
  }).join();
  return text;
}

TEST_F(CaptureThreads, AnotherThreadIsRefusedOnACapturingStream) {
  Accelerator& accelerator = *get_accelerator();
  // Streams that captures may begin on: not the default one, which some accelerators' vendors keep out of captures.
  const Stream shared = accelerator.Stream();
  const Tensor mine = vector_of(1), theirs = vector_of(2);
  const auto ops = accelerator.create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  Graph other = accelerator.create_graph();
  Graph graph = accelerator.create_graph();
  Event event = accelerator.Event();
  accelerator.synchronize();
  {
    const ScopeGuard current = accelerator.stream(shared);
    ops->add(theirs, theirs, theirs);  // sets up what the op needs
    theirs.fill(2);
    {
      const ScopeGuard capture = accelerator.capture_to_graph(other);
      theirs.fill(2);
    }
    shared.synchronize();
  }

  const auto on_shared = [&](const std::function<void()>& work) {
    return [&, work] {
      const ScopeGuard current = get_accelerator()->stream(shared);
      work();
    };
  };
  const std::vector<std::pair<const char*, std::function<void()>>> uses = {
      {"fill", on_shared([&] { theirs.fill(9); })},
      {"copy", on_shared([&] { theirs.copy_from(mine); })},
      {"op", on_shared([&] { ops->add(theirs, theirs, theirs); })},
      {"replay", on_shared([&] { accelerator.replay_graph(other); })},
      {"host call", [&] { shared.host_call([] {}); }},
      {"event record", [&] { accelerator.Event().record(shared); }},
      {"query", [&] { static_cast<void>(shared.query()); }},
      {"synchronize", [&] { shared.synchronize(); }},
      {"capture", on_shared([&] {
         Graph third = accelerator.create_graph();
         const ScopeGuard capture = accelerator.capture_to_graph(third);
       })},
  };
  {
    const ScopeGuard current = accelerator.stream(shared);
    const ScopeGuard capture = accelerator.capture_to_graph(graph);
    mine.fill(3);
    event.record(shared);
    for (const auto& [name, use] : uses) {
      EXPECT_TRUE(error_on_another_thread(use).starts_with("another thread is capturing a graph on this stream"))
          << name;
    }
    EXPECT_TRUE(error_on_another_thread([&] {
                  get_accelerator()->Stream().wait_event(event);
                }).starts_with("the event was recorded last in a graph that another thread is capturing"));
  }
  // Nothing of the other thread was recorded, and the stream is everybody's again.
  const ScopeGuard current = accelerator.stream(shared);
  accelerator.replay_graph(graph);
  shared.synchronize();
  EXPECT_EQ(first_of(mine), 3);
  EXPECT_EQ(first_of(theirs), 2);
  for (const auto& [name, use] : uses) {
    EXPECT_EQ(error_on_another_thread(use), "") << name;
    shared.synchronize();
  }
}

TEST_F(CaptureThreads, OtherStreamsGoOnWhileOneCaptures) {
  Accelerator& accelerator = *get_accelerator();
  const Stream mine = accelerator.Stream();
  Graph graph = accelerator.create_graph();
  const Tensor x = vector_of(1), y = vector_of(2);
  accelerator.synchronize();
  {
    const ScopeGuard current = accelerator.stream(mine);
    const ScopeGuard capture = accelerator.capture_to_graph(graph);
    x.fill(3);
    EXPECT_EQ(error_on_another_thread([&] {
                y.fill(4);
                const Tensor z = vector_of(5);
                if (first_of(z) != 5 || first_of(y) != 4) throw Error("work beside a capture did not run");
                get_accelerator()->synchronize();
                get_accelerator()->empty_cache();
              }),
              "");
    x.fill(6);
  }
  const ScopeGuard current = accelerator.stream(mine);
  EXPECT_EQ(first_of(x), 1);
  accelerator.replay_graph(graph);
  EXPECT_EQ(first_of(x), 6);
  EXPECT_EQ(first_of(y), 4);
}

// A capture begins and ends again and again on a stream that another thread keeps using.
TEST_F(CaptureThreads, NoCallSlipsIntoACaptureThatBegins) {
  Accelerator& accelerator = *get_accelerator();
  const Stream shared = accelerator.Stream();
  const Tensor mine = vector_of(0), theirs = vector_of(0);
  accelerator.synchronize();
  std::atomic<bool> stop{false};
  std::atomic<int> done{0}, refused{0};
  double latest = 0;
  std::string unexpected;
  std::thread user([&] {
    const ScopeGuard current = get_accelerator()->stream(shared);
    for (int i = 1; !stop; ++i) {
      try {
        theirs.fill(i);
        latest = i;
        ++done;
      } catch (const InvalidArgument& error) {
        ++refused;
      } catch (const std::exception& error) {
        unexpected = error.what();
        return;
      }
    }
  });
  std::vector<Graph> graphs;
  {
    const ScopeGuard current = accelerator.stream(shared);
    for (int i = 0; i < 200 || (i < 20000 && (done < 10 || refused < 10)); ++i) {
      Graph graph = accelerator.create_graph();
      {
        const ScopeGuard capture = accelerator.capture_to_graph(graph);
        mine.fill(1);
      }
      if (graphs.size() < 200) graphs.push_back(std::move(graph));
    }
  }
  stop = true;
  user.join();
  EXPECT_EQ(unexpected, "");
  const ScopeGuard current = accelerator.stream(shared);
  for (const Graph& graph : graphs) accelerator.replay_graph(graph);
  EXPECT_EQ(first_of(mine), 1);
  EXPECT_EQ(static_cast<double>(first_of(theirs)), latest);
  std::printf("%d calls passed, %d were refused\n", done.load(), refused.load());
}

}  // namespace
}  // namespace anyaccel
