// What the benchmarks share: results, repeated timing, and ceilings measured in the same process.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "anyaccel/abi/ceilings.h"
#include "anyaccel/accelerator.h"

namespace anyaccel::cli::bench {

// One figure. `ratio` is value over ceiling, or ceiling over value where smaller is better, so that 1.0 is the limit.
struct Result {
  std::string name;          // "decode.bandwidth"
  double value = 0;          // the median of the runs
  std::string unit;          // "GB/s"
  double ceiling = 0;        // 0: none could be measured
  std::string ceiling_name;  // what the ceiling is
  double ratio = 0;
  int runs = 0;
  double spread = 0;  // (largest - smallest) / median of the runs
};

struct Options {
  std::string model;  // a directory; empty: one is made in a temporary folder and removed
  std::string shape = "llama-1b";
  int64_t prompt_tokens = 512;  // of prefill
  int runs = 5;
  double seconds = 1.0;  // for each ceiling
  size_t bytes = size_t{1} << 30;
  int64_t elements = int64_t{1} << 28;  // of each of adam.bandwidth's four arrays
  std::string directory;                // of aio's file; empty: the current one
  size_t file_bytes = size_t{2} << 30;
  int64_t block_size = int64_t{1} << 20;  // of a transfer of aio
  int queue_depth = 128;
};

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Median and spread of the values.
void summarize(Result& result, std::vector<double> values, bool smaller_is_better);

// The ceiling of a kind on the current device; 0 when the accelerator measures none.
double measure_ceiling(aa_ceiling kind, const Options& options);

// Whether the current accelerator is the host itself.
bool on_host();

// Runs `body` with the ceiling measured before and after it; the larger of the two counts.
double ceiling_around(aa_ceiling kind, const Options& options, const std::function<void()>& body);
// Runs `run` as often as the options say, in turns with measurements of the ceiling, each for options.seconds; gives their
// median, to be held against the runs' median. For what takes long: the rate of a shared machine's memory changes by a
// quarter within seconds, and a best moment of the ceiling says nothing about another moment's run.
double ceiling_in_turns(aa_ceiling kind, const Options& options, const std::function<void()>& run);

// Each appends its results.
void run_copy(const Options& options, std::vector<Result>& results);
void run_alloc(const Options& options, std::vector<Result>& results);
void run_launch(const Options& options, std::vector<Result>& results);
void run_start(const Options& options, std::vector<Result>& results);
void run_adam(const Options& options, std::vector<Result>& results);
// Of run_adam, for accelerators that are not the host.
void run_fused_adam(const Options& options, std::vector<Result>& results);
void run_jit(const Options& options, std::vector<Result>& results);
void run_quant(const Options& options, std::vector<Result>& results);
void run_attention(const Options& options, std::vector<Result>& results);
void run_product(const Options& options, std::vector<Result>& results);
void run_aio(const Options& options, std::vector<Result>& results);
// On two cores of this host, by processes of its own; in a job of several ranks, by those.
void run_allreduce(const Options& options, std::vector<Result>& results);
// On two cores of this host, by processes of its own.
void run_tp(const Options& options, std::vector<Result>& results);
void run_model(const Options& options, bool decode, bool prefill, std::vector<Result>& results);

// What the processes started by run_start do: find the accelerator and print the clock's reading; `device`: also use the
// device, and print the milliseconds that the vendor's own calls took.
int start_probe(bool device);
// The ranks: print the clock's reading.
int clock_probe();

// What the processes started by run_jit do: load an op builder's library, print the milliseconds that took.
int jit_probe(const std::string& builder);

// What the processes started by run_model do: load the model, run two tokens, print milliseconds to load, peak resident
// bytes, and bytes of the weights.
int load_probe(const std::string& directory);

// What the processes started by run_allreduce do: one rank, which is told what to measure line by line.
int allreduce_probe();

// What the processes started by run_tp do: one rank of the model, which is told what to measure line by line.
int tp_probe(const std::string& directory);

}  // namespace anyaccel::cli::bench
