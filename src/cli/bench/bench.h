// Declares the shared parts of the benchmarks: results, repeated timing, and ceilings measured in the same process.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "anyaccel/abi/ceilings.h"
#include "anyaccel/accelerator.h"

namespace anyaccel::cli::bench {

// One figure. `ratio` is value / ceiling, or ceiling / value if smaller is better, so that 1.0 is the limit.
struct Result {
  std::string name;          // "decode.bandwidth"
  double value = 0;          // the median of the runs
  std::string unit;          // "GB/s"
  double ceiling = 0;        // 0: could not be measured
  std::string ceiling_name;  // description of the ceiling
  double ratio = 0;
  int runs = 0;
  double spread = 0;  // (largest - smallest) / median of the runs
};

struct Options {
  std::string model;  // a directory or a GGUF file; empty: one is created in a temporary folder and removed
  std::string shape = "llama-1b";
  std::vector<std::string> families;  // that are measured; empty: all
  std::vector<std::string> builders;  // of ops, that jit loads; empty: all
  int64_t prompt_tokens = 512;        // length of prefill's prompt
  int runs = 5;
  double seconds = 1.0;  // measured for each ceiling
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

// Stores the median and spread of the values in the result.
void summarize(Result& result, const std::vector<double>& values, bool smaller_is_better);
// The same for runs in turns with measurements of their ceiling: one for each run, or one before each run and one after the last.
// The ratio is the median of the runs' ratios to their ceiling, or to the mean of those before and after them, because the memory of
// a shared machine changes between two speeds within seconds, and the medians of each could be of different ones. A ceiling of 0
// could not be measured: a run beside it has no ratio.
void summarize_turns(Result& result, const std::vector<double>& values, const std::vector<double>& ceilings,
                     bool smaller_is_better);
// scaled(): each value times the factor. over(): the dividend divided by each value (0 stays 0), which turns times into rates and
// back.
std::vector<double> scaled(std::vector<double> values, double factor);
std::vector<double> over(double dividend, std::vector<double> values);

// Returns the ceiling of a kind on the current device; 0 if the accelerator measures none.
double measure_ceiling(aa_ceiling kind, const Options& options);

// Seconds that a call takes among as many as take 20 ms, which are waited for once: a device's queue stays filled, and what
// waiting takes is not counted for each of them. One call before them is not measured.
double seconds_a_call(const std::function<void()>& call);

// Returns whether the accelerator measures AA_CEILING_PRODUCT_BF16, which takes a moment only: a second of products at full power
// lowers a device's clock for what follows, so that ceiling is measured last.
bool has_products_of_bf16(const Options& options);

// Returns whether the current accelerator is the host itself.
bool on_host();

// Runs `body` with the ceiling measured before and after it; the larger of the two is used.
double ceiling_around(aa_ceiling kind, const Options& options, const std::function<void()>& body);
// Runs `run` as often as the options say, alternating with measurements of the ceiling, each for options.seconds; returns the
// ceilings, for summarize_turns().
std::vector<double> ceilings_in_turns(aa_ceiling kind, const Options& options, const std::function<void()>& run);

// Each benchmark appends its results.
void run_copy(const Options& options, std::vector<Result>& results);
void run_alloc(const Options& options, std::vector<Result>& results);
void run_launch(const Options& options, std::vector<Result>& results);
void run_start(const Options& options, std::vector<Result>& results);
void run_adam(const Options& options, std::vector<Result>& results);
// Runs the part of run_adam for accelerators other than the host.
void run_fused_adam(const Options& options, std::vector<Result>& results);
void run_jit(const Options& options, std::vector<Result>& results);
void run_quant(const Options& options, std::vector<Result>& results);
void run_attention(const Options& options, std::vector<Result>& results);
void run_sampling(const Options& options, std::vector<Result>& results);
void run_sparse(const Options& options, std::vector<Result>& results);
void run_evoformer(const Options& options, std::vector<Result>& results);
void run_product(const Options& options, std::vector<Result>& results);
void run_weights(const Options& options, std::vector<Result>& results);
void run_transformer(const Options& options, std::vector<Result>& results);
// Measures steps of examples/train in separate processes of the program anyaccel_train; does nothing if that was not
// built.
void run_train(const Options& options, std::vector<Result>& results);
void run_aio(const Options& options, std::vector<Result>& results);
// Runs on two cores of this host in separate processes; in a job of several ranks, it uses the job's ranks.
void run_allreduce(const Options& options, std::vector<Result>& results);
// Runs on two cores of this host in separate processes.
void run_tp(const Options& options, std::vector<Result>& results);
void run_model(const Options& options, bool decode, bool batches, bool prefill, std::vector<Result>& results);
// Measures a slice of each family's model of the shape beside Llama's.
void run_families(const Options& options, std::vector<Result>& results);
// Measures a named model whose weights are quantized.
void run_quantized(const Options& options, std::vector<Result>& results);

// Runs in the processes started by run_start: they find the accelerator and print the clock's reading; `device`: also
// use the device, and print the milliseconds that the vendor's own calls took.
int start_probe(bool device);
// Runs in the ranks that run_start launches: they print the clock's reading.
int clock_probe();

// Runs in the processes started by run_jit: they load an op builder's library and print the milliseconds it took.
int jit_probe(const std::string& builder);

// Runs in the processes started by run_model: they load the model, run two tokens, print milliseconds to load, peak
// resident bytes, and bytes of the weights.
int load_probe(const std::string& directory);

// Runs in the processes started by run_allreduce: one rank, which reads line by line which measurements to make.
int allreduce_probe();

// Runs in the processes started by run_tp: one rank of the model, which reads line by line which measurements to make.
int tp_probe(const std::string& directory);

}  // namespace anyaccel::cli::bench
