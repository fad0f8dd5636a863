// Implements bench allreduce: compares all-reduces of fp32 tensors between two ranks of a core each with the cores' own
// speed.
//
// Outside a job the benchmark starts two ranks of its own. Started by a launcher, it measures the job's ranks, and rank
// 0 prints.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/comm/process_group.h"
#include "anyaccel/error.h"
#include "base/copy_bytes.h"
#include "base/process/processors.h"
#include "cli/bench/bench.h"
#include "cli/bench/rank_processes.h"

namespace anyaccel::cli::bench {
namespace {

constexpr size_t kSizes[] = {8,         64,        1 << 10,   4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10,
                             128 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20, 8 << 20,  32 << 20};
// Smaller tensors are handled in the same way in shared memory as elsewhere.
constexpr size_t kLeastShared = 8 << 10;

// The number of operations that are timed at once, and of repetitions; the shortest time is used, because other load on
// the machine only adds time. At most 100, so that sums that grow twofold each time stay finite.
int batch_of(size_t bytes) { return static_cast<int>(std::clamp<size_t>((size_t{4} << 20) / (bytes + 1), 1, 100)); }
int repeats_of(size_t bytes) { return bytes < (1 << 20) ? 60 : 20; }

class Rank {
 public:
  explicit Rank(std::shared_ptr<comm::ProcessGroup> group) : group_(std::move(group)) {}

  // Returns the microseconds of one operation: "barrier", "private" (of memory of the program's own, which is copied) or
  // "shared" (of tensors of the accelerator, which every rank has just written, and which the others have mapped).
  double measure(const std::string& kind, size_t bytes) {
    const bool is_barrier = kind == "barrier";
    const bool is_shared = kind == "shared";
    const auto count = static_cast<int64_t>(bytes / sizeof(float));
    Tensor tensor;
    if (!is_barrier) {
      tensor = Tensor::empty({count}, DType::F32, is_shared ? get_accelerator()->device(0) : Device{});
    }
    double best = 1e9;
    for (int repeat = 0; repeat < repeats_of(bytes); ++repeat) {
      const int batch = batch_of(bytes);
      double seconds = 0;
      if (tensor && !is_shared) fill(tensor);
      group_->barrier();
      const auto start = Clock::now();
      for (int i = 0; i < batch; ++i) {
        if (is_barrier) {
          group_->barrier();
        } else if (is_shared) {
          fill(tensor);
          group_->barrier();
          const auto begin = Clock::now();
          group_->all_reduce(tensor);
          seconds += seconds_since(begin);
        } else {
          group_->all_reduce(tensor);
        }
      }
      if (!is_shared) seconds = seconds_since(start);
      best = std::min(best, seconds / batch);
    }
    return 1e6 * best;
  }

 private:
  void fill(const Tensor& tensor) {
    auto* const values = tensor.data_as<float>();
    for (int64_t i = 0; i < tensor.numel(); ++i) values[i] = 0.5f + 0.001f * static_cast<float>(i % 97);
  }
  std::shared_ptr<comm::ProcessGroup> group_;
};

// ---- ceilings: two threads of this process, on the cores of the ranks ----

void run_on_both(const std::vector<int>& cores, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(cores[static_cast<size_t>(i)], &set);
      pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
      body(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

struct alignas(128) Flag {
  std::atomic<int64_t> value{0};
  void wait_for(int64_t expected) const {
    while (value.load(std::memory_order_acquire) < expected) {
    }
  }
};

// Returns the microseconds until a written flag is visible on the other core; 0 without cores.
double flag_latency(const std::vector<int>& cores) {
  if (cores.empty()) return 0;
  constexpr int64_t kRounds = 2000;
  Flag flags[2];
  double best = 1e9;
  run_on_both(cores, [&](int own) {
    int64_t number = 0;
    for (int repeat = 0; repeat < 20; ++repeat) {
      const auto start = Clock::now();
      for (int64_t i = 0; i < kRounds; ++i) {
        ++number;
        if (own == 1) flags[0].wait_for(number);
        flags[own].value.store(number, std::memory_order_release);
        if (own == 0) flags[1].wait_for(number);
      }
      if (own == 0) best = std::min(best, seconds_since(start) / (2.0 * kRounds));
    }
  });
  return 1e6 * best;
}

// Returns the microseconds in which each core copies this many bytes while the other does the same; 0 without cores.
double copy_time(const std::vector<int>& cores, size_t bytes) {
  if (cores.empty()) return 0;
  Flag flags[2];
  double best = 1e9;
  run_on_both(cores, [&](int own) {
    std::vector<char> from(bytes, 'a'), to(bytes, 'b');
    int64_t number = 0;
    for (int repeat = 0; repeat < repeats_of(bytes); ++repeat) {
      flags[own].value.store(++number, std::memory_order_release);
      flags[1 - own].wait_for(number);
      const int batch = batch_of(bytes);
      const auto start = Clock::now();
      for (int i = 0; i < batch; ++i) {
        copy_bytes(to.data(), from.data(), bytes);
        asm volatile("" : : "r"(to.data()) : "memory");
      }
      if (own == 0) best = std::min(best, seconds_since(start) / batch);
    }
  });
  return 1e6 * best;
}

// ---- the benchmark ----

// Measures one figure of all ranks, gathered by rank 0.
using Measure = std::function<double(const std::string& kind, size_t bytes)>;

void measure_all(const Options& options, const std::vector<int>& cores, const Measure& measure,
                 std::vector<Result>& results) {
  std::vector<Result> figures{{.name = "allreduce.barrier", .unit = "us", .ceiling_name = "a flag's way"}};
  const auto add = [&](const std::string& name, size_t bytes) {
    figures.push_back(
        {.name = name + std::to_string(bytes), .unit = "us", .ceiling_name = "a flag's way and a copy on each core"});
  };
  for (const size_t bytes : kSizes) {
    add("allreduce.", bytes);
    if (bytes >= kLeastShared) add("allreduce.shared.", bytes);
  }
  const auto bytes_of = [](const Result& figure) {
    return static_cast<size_t>(std::atoll(figure.name.c_str() + figure.name.rfind('.') + 1));
  };
  std::vector<std::vector<double>> values(figures.size());
  std::vector<double> ceilings(figures.size(), 1e9);
  // The measurements alternate, so that quiet moments of the machine benefit all.
  for (int run = 0; run < options.runs + 1; ++run) {
    const double latency = flag_latency(cores);
    for (size_t i = 0; i < figures.size(); ++i) {
      const size_t bytes = bytes_of(figures[i]);
      const bool shared = figures[i].name.starts_with("allreduce.shared.");
      const double value = measure(i == 0 ? "barrier" : shared ? "shared" : "private", bytes);
      ceilings[i] = std::min(ceilings[i], latency + (i == 0 ? 0.0 : copy_time(cores, shared ? bytes / 2 : bytes)));
      if (run) values[i].push_back(value);  // the first is for the caches
    }
  }
  for (size_t i = 0; i < figures.size(); ++i) {
    figures[i].ceiling = ceilings[i];
    summarize(figures[i], values[i], true);
    figures[i].value = *std::min_element(values[i].begin(), values[i].end());
    figures[i].ratio = figures[i].ceiling / figures[i].value;
    results.push_back(figures[i]);
  }
}

// Runs on every rank of a job that a launcher started.
void measure_this_job(const Options& options, std::vector<Result>& results) {
  const auto group = comm::init_process_group();
  Rank rank(group);
  const std::vector<int> own = allowed_processors();
  const Tensor first = Tensor::empty({1}, DType::I64, Device{});
  const Tensor all = Tensor::empty({group->size()}, DType::I64, Device{});
  *first.data_as<int64_t>() = own.empty() ? 0 : own.front();
  group->all_gather(all, first);
  std::vector<int> cores;
  for (int64_t i = 0; i < all.numel(); ++i) cores.push_back(static_cast<int>(all.data_as<int64_t>()[i]));
  if (cores.size() < 2 || cores[0] == cores[1]) cores = own;  // the ranks are not bound
  if (cores.size() < 2) cores.clear();
  std::vector<Result> measured;
  // The cores' own speed is measured by rank 0, for whom the others wait asleep.
  const bool first_rank = group->rank() == 0;
  measure_all(
      options, first_rank ? cores : std::vector<int>{},
      [&](const std::string& kind, size_t bytes) { return rank.measure(kind, bytes); }, measured);
  if (first_rank) results.insert(results.end(), measured.begin(), measured.end());
}

}  // namespace

// Answers "KIND BYTES" with microseconds.
int allreduce_probe() {
  const auto group = comm::init_process_group();
  Rank rank(group);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string kind;
    size_t bytes = 0;
    words >> kind >> bytes;
    std::printf("%.9g\n", rank.measure(kind, bytes));
    std::fflush(stdout);
  }
  return 0;
}

void run_allreduce(const Options& options, std::vector<Result>& results) {
  if (!on_host()) {
    std::fprintf(stderr, "allreduce: measured on the CPU only, with a core for each rank\n");
    return;
  }
  const char* size = std::getenv("WORLD_SIZE");
  if (size && std::atoi(size) > 1) return measure_this_job(options, results);
  const std::vector<int> cores = allowed_processors();
  if (cores.size() < 2) {
    std::fprintf(stderr, "allreduce: two ranks of one core each need two cores; %zu may be used\n", cores.size());
    return;
  }
  RankProcesses ranks({{cores[0]}, {cores[1]}}, {"bench", "--allreduce-probe"});
  measure_all(
      options, cores,
      [&](const std::string& kind, size_t bytes) {
        return std::stod(ranks.ask(kind + ' ' + std::to_string(bytes))[0]);
      },
      results);
}

}  // namespace anyaccel::cli::bench
