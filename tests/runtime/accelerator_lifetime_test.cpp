// Objects of an accelerator stay usable after another one has replaced it: every kind of object, pointers that threads
// hold, and objects with static lifetime at the end of the process. On the accelerator that DS_ACCELERATOR names.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/comm/process_group.h"
#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/session.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/ops/fused_adam.h"
#include "anyaccel/ops/inference.h"

namespace anyaccel {
namespace {

using Floats = std::vector<float>;

Tensor numbers(Device device) {
  const Floats values{1, 2, 3, 4};
  return Tensor::from_host(values.data(), Shape{4}, DType::F32, device);
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

class AcceleratorLifetime : public ::testing::Test {
 protected:
  void TearDown() override { reset_accelerator(); }
  // Another accelerator in its place.
  static void replace() { set_accelerator(make_accelerator("null")); }
};

TEST_F(AcceleratorLifetime, TensorsStayGood) {
  Accelerator& old = *get_accelerator();
  const Tensor tensor = numbers(old.device());
  const Tensor view = tensor.slice(0, 1, 3);
  const Tensor host = numbers({});
  const Tensor pinned = old.pin_memory(host, true, true, /*required=*/false);
  replace();
  Accelerator& now = *get_accelerator();
  EXPECT_NE(&now, &old);
  EXPECT_EQ(tensor.to_vector<float>(), (Floats{1, 2, 3, 4}));
  EXPECT_EQ(view.clone().to_vector<float>(), (Floats{2, 3}));
  tensor.fill(7);
  tensor.copy_from(pinned);
  EXPECT_EQ(tensor.to(DType::F64).to_vector<double>(), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(tensor.device().name(), old.current_device_name());
  EXPECT_TRUE(old.on_accelerator(tensor));
  // From the one to the other, and new ones of the old.
  const Tensor moved = tensor.to(now.device());
  EXPECT_EQ(moved.device().accelerator, &now);
  EXPECT_EQ(moved.shape(), tensor.shape());
  EXPECT_EQ(numbers(old.device()).to_vector<float>(), (Floats{1, 2, 3, 4}));
  reset_accelerator();
  EXPECT_EQ(tensor.to_vector<float>(), (Floats{1, 2, 3, 4}));
}

TEST_F(AcceleratorLifetime, StreamsEventsGraphsGuardsAndGeneratorsStayGood) {
  Accelerator& old = *get_accelerator();
  const Tensor from = numbers(old.device());
  const Tensor to = Tensor::zeros({4}, DType::F32, old.device());
  Stream side = old.Stream();
  Event event = old.Event();
  Generator& generator = old.random();
  generator.manual_seed(5);
  Graph graph;
  if (old.supports_graphs()) {
    graph = old.create_graph();
    auto capture = old.capture_to_graph(graph, {}, side);
    to.copy_from(from);
  }
  {
    const auto amp = old.amp(DType::BF16);
    const auto current = old.stream(side);
    replace();
    from.fill(3);
    event.record(side);
  }
  side.wait_event(event);
  event.synchronize();
  side.synchronize();
  EXPECT_TRUE(event.query() && side.query());
  from.storage()->record_stream(side);
  if (graph) {
    old.replay_graph(graph);
    EXPECT_EQ(to.to_vector<float>(), (Floats{3, 3, 3, 3}));
  }
  EXPECT_EQ(generator.initial_seed(), 5u);
  EXPECT_EQ(old.amp_dtype(), DType::None);
}

TEST_F(AcceleratorLifetime, OpsModelsAndGroupsStayGood) {
  Accelerator& old = *get_accelerator();
  const OpBuilderFactory factory = old.get_op_builder("InferenceBuilder");
  const std::unique_ptr<OpBuilder> builder = old.create_op_builder("InferenceBuilder");
  const auto ops = builder->load_as<ops::Inference>();
  const auto model = llm::Model::load(ANYACCEL_TEST_DATA "/models/llama_bias");
  llm::Session session(model, {.sequences = 1, .context = 16});
  llm::Session expected(model, {.sequences = 1, .context = 16});
  const std::vector<int32_t> ids{3, 5}, sequence{0, 0}, positions{0, 1}, rows{1};
  const Floats before = expected.forward({ids, sequence, positions}, rows).to_vector<float>();
  const std::shared_ptr<comm::ProcessGroup> group = comm::init_process_group();
  const Tensor tensor = numbers(old.device());
  const Tensor out = Tensor::empty({4}, DType::F32, old.device());
  replace();
  ops->add(out, tensor, tensor);
  EXPECT_EQ(out.to_vector<float>(), (Floats{2, 4, 6, 8}));
  factory()->load_as<ops::Inference>()->add(out, out, tensor);
  EXPECT_EQ(out.to_vector<float>(), (Floats{3, 6, 9, 12}));
  EXPECT_EQ(session.forward({ids, sequence, positions}, rows).to_vector<float>(), before);
  group->all_reduce(tensor);
  EXPECT_EQ(tensor.to_vector<float>(), (Floats{1, 2, 3, 4}));
  comm::destroy_process_group();
  // Ops of the new one do not take the old one's tensors.
  const auto others = get_accelerator()->create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  const std::string refused = message_of([&] { others->add(out, tensor, tensor); });
  EXPECT_NE(refused.find("lies on"), std::string::npos) << refused;
}

TEST_F(AcceleratorLifetime, StreamsEventsAndGraphsAreRefusedByAnother) {
  Accelerator& old = *get_accelerator();
  const Tensor tensor = numbers(old.device());
  Stream stream = old.Stream();
  Event event = old.Event();
  Graph graph;
  if (old.supports_graphs()) {
    graph = old.create_graph();
    auto capture = old.capture_to_graph(graph, {}, stream);
    tensor.fill(1);
  }
  replace();
  Accelerator& now = *get_accelerator();
  const auto expect_refused = [](const std::function<void()>& body) {
    const std::string message = message_of(body);
    EXPECT_NE(message.find("another accelerator"), std::string::npos) << message;
  };
  expect_refused([&] { auto guard = now.stream(stream); });
  Event own = now.Event();
  Stream own_stream = now.Stream();
  expect_refused([&] { own.record(stream); });
  expect_refused([&] { event.record(own_stream); });
  expect_refused([&] { stream.wait_event(own); });
  expect_refused([&] { own_stream.wait_event(event); });
  expect_refused([&] { own_stream.wait_stream(stream); });
  expect_refused([&] { static_cast<void>(own.elapsed_time(event)); });
  expect_refused([&] { tensor.storage()->record_stream(own_stream); });
  if (graph) {
    expect_refused([&] { now.replay_graph(graph); });
    expect_refused([&] { auto capture = now.capture_to_graph(graph); });
    expect_refused([&] { auto capture = old.capture_to_graph(graph, {}, own_stream); });
  }
}

TEST_F(AcceleratorLifetime, ThreadsMayHoldPointers) {
  get_accelerator()->device_count();
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        Accelerator* const held = get_accelerator();
        const auto current = held->stream(held->Stream());
        const Tensor tensor = numbers(held->device());
        const Tensor copy = tensor.clone();
        std::this_thread::yield();
        // The null accelerator computes nothing and keeps no values.
        if (held->name() != "null" && copy.to_vector<float>() != Floats{1, 2, 3, 4}) ++wrong;
      }
    });
  }
  for (int i = 0; i < 10; ++i) {
    replace();
    std::this_thread::yield();
    reset_accelerator();
    numbers(get_accelerator()->device());
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(AcceleratorLifetime, CachedMemoryIsGivenBack) {
  auto& old = dynamic_cast<DriverAccelerator&>(*get_accelerator());
  Tensor kept = numbers(old.device());
  Tensor::empty({1 << 20}, DType::F32, old.device());
  old.synchronize();
  EXPECT_GE(old.memory_reserved(), 4 << 20);
  replace();
  EXPECT_LT(old.memory_reserved(), 4 << 20);
  EXPECT_EQ(kept.to_vector<float>(), (Floats{1, 2, 3, 4}));
}

TEST_F(AcceleratorLifetime, ShutdownCountsWhatLives) {
  reset_accelerator();
  shutdown_accelerators();
  Tensor tensor = numbers(get_accelerator()->device());
  Stream stream = get_accelerator()->Stream();
  const std::string name = get_accelerator()->name();
  replace();
  Event event = get_accelerator()->Event();
  EXPECT_EQ(message_of(shutdown_accelerators).substr(0, 54 + name.size()),
            "shutdown_accelerators: 2 objects of accelerator \"" + name + "\" (me");
  stream = {};
  EXPECT_NE(message_of(shutdown_accelerators).find("1 object of accelerator \"" + name), std::string::npos);
  EXPECT_EQ(tensor.to_vector<float>(), (Floats{1, 2, 3, 4})) << "something was destroyed";
  tensor = {};
  EXPECT_NE(message_of(shutdown_accelerators).find("1 object of accelerator \"null\""), std::string::npos);
  event = {};
  shutdown_accelerators();
  EXPECT_EQ(numbers(get_accelerator()->device()).to_vector<float>(), (Floats{1, 2, 3, 4}));
}

// Lives until the program's static objects are destroyed, after the main thread's own and, since it was made before they
// were opened, after vendors' runtimes. Using it may be refused then; letting go of it must do no harm.
struct AtTheEnd {
  Tensor tensor;
  Stream stream;
  Event event;
  Graph graph;
  Tensor pinned;
  std::shared_ptr<ops::Inference> ops;
  std::unique_ptr<llm::Session> session;
  ~AtTheEnd() {
    if (!tensor) return;
    Accelerator& accelerator = *tensor.device().accelerator;
    try {
      const auto current = accelerator.stream(stream);
      const Tensor normed = tensor.clone().view({1, 4});
      ops->rms_norm(normed, normed, {}, 1e-5f);  // which needs working memory of the thread
      const Floats found = tensor.clone().to(DType::F64).to(DType::F32).to_vector<float>();
      const bool same = found == Floats{1, 2, 3, 4} && numbers(get_accelerator()->device()).numel() == 4;
      std::fprintf(stderr, same ? "static objects work" : "wrong values");
    } catch (const Error& error) {
      // A vendor's runtime has ended before.
      std::fprintf(stderr, accelerator.name() == "cpu" ? "refused: %s" : "static objects are refused: %s",
                   error.what());
    }
  }
};
AtTheEnd at_the_end;

TEST_F(AcceleratorLifetime, ObjectsWithStaticLifetimeMayUseTheirs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // in a process that has opened nothing yet
  EXPECT_EXIT(
      {
        Accelerator& accelerator = *get_accelerator();
        at_the_end.stream = accelerator.Stream();
        at_the_end.tensor = numbers(accelerator.device());
        at_the_end.tensor.storage()->record_stream(at_the_end.stream);
        at_the_end.event = at_the_end.stream.record_event();
        if (accelerator.supports_graphs()) {
          at_the_end.graph = accelerator.create_graph();
          auto capture = accelerator.capture_to_graph(at_the_end.graph, {}, at_the_end.stream);
          at_the_end.tensor.clone();
        }
        at_the_end.pinned = accelerator.pin_memory(numbers({}), true, true, /*required=*/false);
        at_the_end.ops = accelerator.create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
        at_the_end.ops->rms_norm(numbers(accelerator.device()).view({1, 4}), at_the_end.tensor.view({1, 4}), {}, 1e-5f);
        at_the_end.session = std::make_unique<llm::Session>(llm::Model::load(ANYACCEL_TEST_DATA "/models/llama_bias"),
                                                            llm::SessionOptions{.sequences = 1, .context = 16});
        replace();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "static objects (work|are refused: .*the process is ending)");
}

}  // namespace
}  // namespace anyaccel
