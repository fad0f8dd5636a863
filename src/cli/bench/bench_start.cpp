// Implements bench start: measures the time from the start of a process to get_accelerator(), the cost of later calls,
// and the start of a launched job's ranks.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>

#include "anyaccel/error.h"
#include "anyaccel/tensor.h"
#include "cli/bench/bench.h"
#include "cli/bench/child_process.h"

namespace anyaccel::cli::bench {
namespace {

// All processes of a machine read the same monotonic clock.
double clock_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

constexpr int ranks = 8;  // of the launched job

// Returns the time from the first rank's main() to the last one's.
double ranks_apart_ms() {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string output =
      output_of((self.parent_path() / "anyaccel").string(),
                {"launch", "-q", "--num_accelerators", std::to_string(ranks), self.string(), "bench", "--clock-probe"});
  std::istringstream lines(output);
  const std::vector<double> times{std::istream_iterator<double>(lines), {}};
  if (times.size() != ranks) {
    throw Error("anyaccel launch was to start " + std::to_string(ranks) + " ranks, of which " +
                std::to_string(times.size()) + " said something");
  }
  const auto [first, last] = std::minmax_element(times.begin(), times.end());
  return *last - *first;
}

}  // namespace

int clock_probe() {
  std::printf("%.6f\n", clock_ms());
  return 0;
}

int start_probe(bool device) {
  Accelerator& accelerator = *get_accelerator();
  if (!device) {
    std::printf("%.6f\n", clock_ms());
    return 0;
  }
  const Tensor tensor = Tensor::zeros({1}, DType::F32, accelerator.device());
  accelerator.synchronize();
  const double ready = clock_ms();
  std::printf("%.6f %.6f\n", ready, 1e3 * measure_ceiling(AA_CEILING_OPEN, {}));
  return 0;
}

void run_start(const Options& options, std::vector<Result>& results) {
  // Measures the detection that users get, whatever accelerator this process was told to use.
  const char* forced = std::getenv("DS_ACCELERATOR");
  const std::string kept = forced ? forced : "";
  unsetenv("DS_ACCELERATOR");
  std::vector<double> starts;
  double bare = 1e9;
  for (int run = 0; run < 4 * options.runs + 1; ++run) {
    const double begin = clock_ms();
    const double end = std::atof(own_output({"bench", "--start-probe"}).c_str());
    if (end < begin) throw Error("the started process could not find an accelerator");
    if (run) starts.push_back(end - begin);  // the first one warms the page cache

    const double true_begin = clock_ms();
    output_of("/bin/true", {});
    bare = std::min(bare, clock_ms() - true_begin);
  }
  if (forced) setenv("DS_ACCELERATOR", kept.c_str(), 1);
  if (measure_ceiling(AA_CEILING_OPEN, options) > 0) {
    std::vector<double> ready;
    std::vector<double> vendor;
    for (int run = 0; run < options.runs + 1; ++run) {
      const double begin = clock_ms();
      double end = 0;
      double own = 0;
      std::istringstream(own_output({"bench", "--device-probe"})) >> end >> own;
      if (end < begin) throw Error("the started process could not use the device");
      if (!run) continue;
      ready.push_back(end - begin);
      vendor.push_back(own);
    }
    Result opening;
    summarize(opening, vendor, true);
    Result device{
        .name = "start.device", .unit = "ms", .ceiling = opening.value, .ceiling_name = "the vendor's own calls in it"};
    summarize(device, ready, true);
    results.push_back(device);
  }
  Result process{.name = "start.process", .unit = "ms", .ceiling = bare, .ceiling_name = "starting /bin/true"};
  summarize(process, starts, true);
  results.push_back(process);

  std::vector<double> apart;
  for (int run = 0; run < options.runs + 1; ++run) {
    const double milliseconds = ranks_apart_ms();
    if (run) apart.push_back(milliseconds);
  }
  Result job{.name = "start.ranks",
             .unit = "ms",
             .ceiling = ranks * bare,
             .ceiling_name = "starting /bin/true " + std::to_string(ranks) + " times"};
  summarize(job, apart, true);
  results.push_back(job);

  get_accelerator();
  constexpr int calls = 2000000;
  std::vector<double> values;
  double load = 1e9;
  std::atomic<void*> pointer{&values};
  for (int run = 0; run < std::max(options.runs, 5); ++run) {
    auto start = Clock::now();
    for (int i = 0; i < calls; ++i) {
      Accelerator* accelerator = get_accelerator();
      asm volatile("" ::"r"(accelerator) : "memory");
    }
    values.push_back(1e9 * seconds_since(start) / calls);
    start = Clock::now();
    for (int i = 0; i < calls; ++i) {
      void* loaded = pointer.load(std::memory_order_acquire);
      asm volatile("" ::"r"(loaded) : "memory");
    }
    load = std::min(load, 1e9 * seconds_since(start) / calls);
  }
  Result get{.name = "start.get", .unit = "ns", .ceiling = load, .ceiling_name = "loading a pointer"};
  summarize(get, values, true);
  results.push_back(get);
}

}  // namespace anyaccel::cli::bench
