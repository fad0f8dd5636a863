// Threads that generate at once over one model, each with a TextGenerator of its own, beside threads that allocate, load ops,
// capture graphs, and make streams and events: everybody's text and numbers are those of a thread alone.
//
// ANYACCEL_TEST_SECONDS says for how long (2). Every thread does all its work at least once, however slow the machine.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/make_model.h"
#include "anyaccel/llm/text_generation.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/ops/inference.h"

namespace anyaccel {
namespace {

using Clock = std::chrono::steady_clock;
using Prompts = std::vector<std::vector<int32_t>>;

std::chrono::duration<double> wanted_time() {
  const char* text = std::getenv("ANYACCEL_TEST_SECONDS");
  return std::chrono::duration<double>(text ? std::atof(text) : 2.0);
}

// Threads that repeat their work until the time is over or one of them has failed.
class Threads {
 public:
  // `work` is called with the number of the round, at least `least` times.
  void add(const std::string& name, size_t least, std::function<void(size_t round)> work) {
    workers_.emplace_back([this, name, least, work = std::move(work)] {
      try {
        for (size_t round = 0; !failed_ && (round < least || Clock::now() < end_); ++round) work(round);
      } catch (const std::exception& error) {
        fail(name + ": " + error.what());
      }
    });
  }
  void fail(const std::string& what) {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    if (first_failure_.empty()) first_failure_ = what;
  }
  void join() {
    for (std::thread& worker : workers_) worker.join();
    EXPECT_EQ(first_failure_, "");
  }

 private:
  const Clock::time_point end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(wanted_time());
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::string first_failure_;
  std::vector<std::thread> workers_;
};

struct Request {
  Prompts prompts;
  llm::GenerateOptions options;
};

Prompts random_prompts(std::vector<size_t> lengths, uint32_t seed) {
  std::minstd_rand random(seed);
  Prompts prompts;
  for (const size_t length : lengths) {
    std::vector<int32_t>& prompt = prompts.emplace_back();
    for (size_t i = 0; i < length; ++i) prompt.push_back(static_cast<int32_t>(random() % 250));
  }
  return prompts;
}

// Single prompts and batches of several lengths, greedy and sampled, so that graphs of several batch sizes are captured.
std::vector<Request> requests() {
  std::vector<Request> all;
  const auto add = [&](std::vector<size_t> lengths, int64_t new_tokens, float temperature) {
    Request request{random_prompts(std::move(lengths), static_cast<uint32_t>(all.size() + 1)), {}};
    request.options.max_new_tokens = new_tokens;
    request.options.sampling.temperature = temperature;
    request.options.seed = 17;
    request.options.ignore_eos = true;
    all.push_back(std::move(request));
  };
  add({5}, 12, 0.0f);
  add({9, 3}, 8, 0.0f);
  add({40}, 6, 0.8f);
  add({2, 30, 7}, 7, 1.0f);
  return all;
}

std::vector<std::vector<int32_t>> answers_of(llm::TextGenerator& generator, const Request& request) {
  std::vector<std::vector<int32_t>> answers;
  for (const llm::Completion& c : generator.generate_ids(request.prompts, request.options).completions) {
    answers.push_back(c.token_ids);
  }
  return answers;
}

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

void require_filled(const Tensor& tensor, double value, const std::string& what) {
  for (const float found : tensor.to_vector<float>()) {
    require(static_cast<double>(found) == value,
            what + " holds " + std::to_string(found) + ", expected " + std::to_string(value));
  }
}

// Tensors of random sizes that live for a while and must keep what they were filled with.
class Allocations {
 public:
  void round(size_t number) {
    Accelerator& accelerator = *get_accelerator();
    const size_t place = random_() % live_.size();
    if (live_[place].first) require_filled(live_[place].first, live_[place].second, "a tensor of this thread");
    const auto elements = static_cast<int64_t>(1 + random_() % (random_() % 8 == 0 ? 600000 : 3000));
    const double value = static_cast<double>(number % 1000);
    live_[place] = {Tensor::empty({elements}, DType::F32, accelerator.device()), value};
    live_[place].first.fill(value);
    if (number % 16 == 7) accelerator.empty_cache();
    if (number % 16 == 9) accelerator.memory_stats();
    if (number % 16 == 11) accelerator.synchronize();
  }

 private:
  std::minstd_rand random_{3};
  std::array<std::pair<Tensor, double>, 12> live_;
};

// Ops loaded anew, streams, events, and graphs of this thread's own.
void streams_events_and_graphs(size_t number) {
  Accelerator& accelerator = *get_accelerator();
  const auto ops = accelerator.create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  const double value = static_cast<double>(number % 100);
  const Tensor x = Tensor::empty({1000}, DType::F32, accelerator.device());
  const Tensor y = Tensor::zeros({1000}, DType::F32, accelerator.device());
  Event ready = accelerator.Event();
  ready.record(accelerator.current_stream());
  const Stream side = accelerator.Stream();
  side.wait_event(ready);
  {
    const ScopeGuard current = accelerator.stream(side);
    x.fill(value);
    ops->add(y, x, x);
  }
  Event done = accelerator.Event();
  done.record(side);
  accelerator.current_stream().wait_event(done);
  require_filled(y, 2 * value, "the sum of a side stream");
  done.synchronize();
  require(done.query(), "an event that was waited for is not complete");
  require(!accelerator.create_op_builder("CPUAdamBuilder")->sources().empty(), "a builder without sources");

  if (!accelerator.supports_graphs()) return;
  const ScopeGuard current = accelerator.stream(side);
  Graph graph = accelerator.create_graph();
  {
    const ScopeGuard capture = accelerator.capture_to_graph(graph);
    ops->add(y, y, x);
  }
  accelerator.replay_graph(graph);
  accelerator.replay_graph(graph);
  require_filled(y, 4 * value, "a graph that was replayed twice");
  side.synchronize();
}

TEST(ConcurrentGeneration, EveryThreadGetsTheTextOfOneAlone) {
  const auto model = llm::Model::random(*get_accelerator(), llm::find_model_shape("tiny"), DType::F32, 5);
  const std::vector<Request> work = requests();
  std::vector<std::vector<std::vector<int32_t>>> expected;
  {
    llm::TextGenerator alone(model, nullptr, {});
    for (const Request& request : work) expected.push_back(answers_of(alone, request));
  }

  Threads threads;
  std::atomic<size_t> texts{0};
  constexpr size_t generators = 4;
  std::vector<llm::TextGenerator> own;
  for (size_t i = 0; i < generators; ++i) own.emplace_back(model, nullptr, llm::GenerationConfig{});
  for (size_t i = 0; i < generators; ++i) {
    threads.add("generator " + std::to_string(i), work.size(), [&, i](size_t round) {
      const size_t which = (round + i) % work.size();
      require(answers_of(own[i], work[which]) == expected[which],
              "the answer to request " + std::to_string(which) + " differs from that of one thread alone");
      // A new one every other time: its cache and its captured steps are made and freed beside the others.
      if (round % 2 == 1) own[i] = llm::TextGenerator(model, nullptr, {});
      ++texts;
    });
  }
  Allocations allocations;
  threads.add("allocations", 16, [&](size_t round) { allocations.round(round); });
  threads.add("streams", 2, streams_events_and_graphs);
  threads.join();
  std::printf("%zu requests answered\n", texts.load());
}

TEST(ConcurrentGeneration, ASessionThatTwoThreadsCallSaysSo) {
  const auto model = llm::Model::random(*get_accelerator(), llm::find_model_shape("tiny"), DType::F32, 5);
  llm::Session session(model, {.sequences = 1, .context = 250});
  std::atomic<bool> stop{false};
  std::atomic<int> refused{0};
  // Both threads only call what changes nothing once the tokens are known.
  const Prompts prompts = {{1, 2, 3}};
  session.start(prompts, {}, 1);
  session.tokens();
  const auto call = [&] {
    while (!stop) {
      try {
        session.tokens();
      } catch (const InvalidArgument& error) {
        const std::string text = error.what();
        if (text.starts_with("a session was called while a call of another thread was under way")) ++refused;
        stop = true;
      }
    }
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < 2; ++i) callers.emplace_back(call);
  for (std::thread& caller : callers) caller.join();
  EXPECT_GE(refused, 1);
  EXPECT_EQ(session.tokens().size(), 1u);
}

}  // namespace
}  // namespace anyaccel
