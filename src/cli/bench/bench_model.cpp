// Implements bench decode, batches, prefill and quantized: compares a language model, of random weights unless one is named, with
// the ceilings of memory and arithmetic.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <sstream>

#include "accelerators/cpu/matmul_control.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/make_model.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/safetensors.h"
#include "anyaccel/llm/session.h"
#include "anyaccel/llm/text_generation.h"
#include "base/files/open_file.h"
#include "base/process/process_memory.h"
#include "cli/bench/bench.h"
#include "cli/bench/child_process.h"
#include "cli/bench/model_work.h"
#include "cli/bench/temporary_model.h"

namespace anyaccel::cli::bench {
namespace {

// Fills the cache of sequence 0 with so many tokens, which are the first ones of `prompt` again and again: a long prompt would
// take minutes, and what a step reads is the same.
void fill_cache(llm::Session& session, const std::vector<int32_t>& prompt, int64_t tokens) {
  session.start({&prompt, 1}, {}, 0);
  session.tokens();
  const auto few = static_cast<int64_t>(prompt.size());
  const std::string contents = session.cache_contents(0, few);
  const llm::ModelConfig& config = session.model().config();
  // Keys and values of each layer, of each head: all tokens of a head follow each other.
  const auto runs = static_cast<size_t>(2 * config.num_hidden_layers * config.num_key_value_heads);
  const size_t run = contents.size() / runs, row = run / prompt.size();
  std::string all;
  all.reserve(runs * row * static_cast<size_t>(tokens));
  for (size_t i = 0; i < runs; ++i) {
    for (int64_t token = 0; token < tokens; token += few) {
      all.append(contents, i * run, row * static_cast<size_t>(std::min(few, tokens - token)));
    }
  }
  session.restore_cache(0, tokens, all, tokens);
}

// With ANYACCEL_WEIGHT_PAGES=large steps move weights into large pages at first, which takes a part of their time, and those
// after that are faster. What is measured are the latter.
void wait_until_weights_are_moved(const std::shared_ptr<const llm::Model>& model) {
  if (!model->moves_weights()) return;
  constexpr int steps = 16;
  llm::Session session(model, {.sequences = 1, .context = 2 * steps});
  const std::vector<std::vector<int32_t>> prompts{random_prompt(*model, steps)};
  while (model->moves_weights()) {
    session.start(prompts, {}, 0);
    for (int i = 1; i < steps && model->moves_weights(); ++i) {
      session.step();
      session.tokens();
    }
  }
}

// Measures tokens of `sequences` prompts at once, and compares each step with the reads that it needs at least. With more than a
// short context, of one sequence, the cache is filled without running a prompt.
void run_decode(const Options& options, const std::shared_ptr<const llm::Model>& model, const std::string& name,
                int64_t sequences, std::vector<Result>& results, int64_t context = 64) {
  constexpr int64_t short_context = 64;
  constexpr int steps = 16;
  llm::Session session(model, {.sequences = sequences, .context = context + steps * (options.runs + 2)});
  const std::string suffix = context == short_context ? "" : " " + std::to_string(context);
  const std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(sequences),
                                                  random_prompt(*model, std::max(context, short_context)));
  Result bandwidth{.name = name + ".bandwidth" + suffix, .unit = "GB/s", .ceiling_name = "best read, in turns"};
  Result rate{.name = name + ".tokens" + suffix, .unit = "tok/s", .ceiling_name = "the same / bytes of a token"};
  std::vector<double> bandwidths;
  std::vector<double> rates;
  const auto tokens = static_cast<double>(steps * sequences);
  double bytes_of_token = 0;
  std::vector<int64_t> cached;
  if (context > short_context) {
    fill_cache(session, random_prompt(*model, short_context), context - 1);
    cached.push_back(context - 1);
  }
  session.start(prompts, {}, 0, 0, {}, cached);
  for (int i = 0; i < 4; ++i) session.step();
  session.tokens();
  const std::vector<double> reads = ceilings_in_turns(AA_CEILING_READ, options, [&] {
    double bytes = 0;
    const auto start = Clock::now();
    for (int i = 0; i < steps; ++i) {
      session.step();
      session.tokens();
      bytes += weight_bytes_per_token(*model) +
               cache_bytes_per_position(*model) * static_cast<double>(sequences * session.length(0));
    }
    const double seconds = seconds_since(start);
    bandwidths.push_back(1e-9 * bytes / seconds);
    rates.push_back(tokens / seconds);
    bytes_of_token = bytes / tokens;
  });
  summarize_turns(bandwidth, bandwidths, scaled(reads, 1e-9), false);
  summarize_turns(rate, rates, scaled(reads, 1 / bytes_of_token), false);
  results.push_back(bandwidth);
  results.push_back(rate);
}

void run_long_contexts(const Options& options, const std::shared_ptr<const llm::Model>& model,
                       std::vector<Result>& results) {
  for (const int64_t context : {4096, 32768}) {
    try {
      run_decode(options, model, "decode", 1, results, context);
    } catch (const Error& error) {  // the model has no such position, or its cache cannot be filled
      std::fprintf(stderr, "decode: not measured with %lld tokens in the cache: %s\n", static_cast<long long>(context),
                   error.what());
    }
  }
}

// Returns the table that selects implementations of large products, if the accelerator has one; else null.
const aa_cpu_matmul_table* matmul_control() {
  auto* accelerator = dynamic_cast<DriverAccelerator*>(get_accelerator());
  if (!accelerator) return nullptr;
  return static_cast<const aa_cpu_matmul_table*>(
      accelerator->extension(AA_CPU_MATMUL_EXTENSION, AA_CPU_MATMUL_VERSION));
}

// The rate of products of bf16 on the processor's matrix unit; 0 if it has none, and on other accelerators.
double matrix_unit_rate() {
  const aa_cpu_matmul_table* control = matmul_control();
  double rate = 0;
  if (control && control->matrix_unit_rate(1, &rate)) throw Error("the benchmark cannot measure the matrix unit");
  return rate;
}

// Decodes so many sequences at once. A step reads every weight and all keys and values once, but multiplies the weights with a
// row of each sequence: from some number on it is bound by arithmetic. Each count is compared with the time of the slower of
// both. Of a mixture of experts the limit counts what one token reads, although several tokens choose different experts.
void run_batches(const Options& options, const std::shared_ptr<const llm::Model>& model, std::vector<Result>& results) {
  constexpr int64_t prompt = 16, steps = 8;
  struct Batch {
    std::unique_ptr<llm::Session> session;
    int64_t sequences;
    double operations;  // of a step
    double bytes = 0;   // of all steps that are measured
    std::vector<double> rates = {};
    std::vector<double> reads = {};  // of each run, the mean of those before and after it
  };
  std::vector<Batch> batches;
  const std::vector<int32_t> ids = random_prompt(*model, prompt);
  // A token's products are those of a prompt of one.
  const double operations = prefill_operations(*model, 1);
  for (const int64_t n : {1, 2, 3, 4, 6, 8, 12, 16, 24, 31}) {
    Batch batch{std::make_unique<llm::Session>(
                    model, llm::SessionOptions{.sequences = n, .context = prompt + steps * (options.runs + 2)}),
                n, operations * static_cast<double>(n)};
    batch.session->start(std::vector<std::vector<int32_t>>(static_cast<size_t>(n), ids), {}, 0);
    for (int64_t i = 0; i < steps; ++i) batch.session->step();
    batch.session->tokens();
    batches.push_back(std::move(batch));
  }
  std::vector<double> products;
  const bool by_unit = model->product_dtype() == DType::BF16 && matrix_unit_rate() > 0;
  for (int run = 0; run < options.runs; ++run) {
    products.push_back(by_unit ? matrix_unit_rate() : measure_ceiling(AA_CEILING_FMA_F32, options));
    double before = measure_ceiling(AA_CEILING_READ, options);
    for (Batch& batch : batches) {
      const auto start = Clock::now();
      for (int64_t i = 0; i < steps; ++i) {
        batch.session->step();
        batch.session->tokens();
        batch.bytes +=
            weight_bytes_per_token(*model) +
            cache_bytes_per_position(*model) * static_cast<double>(batch.sequences * batch.session->length(0));
      }
      batch.rates.push_back(static_cast<double>(steps * batch.sequences) / seconds_since(start));
      const double after = measure_ceiling(AA_CEILING_READ, options);
      batch.reads.push_back((before + after) / 2);
      before = after;
    }
  }
  products.push_back(by_unit ? matrix_unit_rate() : measure_ceiling(AA_CEILING_FMA_F32, options));
  for (const Batch& batch : batches) {
    const double bytes = batch.bytes / static_cast<double>(options.runs * steps);
    // The slower of both limits, by their medians: one of them for all runs.
    Result read, product;
    summarize(read, over(bytes, batch.reads), true);
    summarize(product, over(batch.operations, products), true);
    const bool reads = read.value > product.value;
    Result result{.name = "batches.tokens " + std::to_string(batch.sequences),
                  .unit = "tok/s",
                  .ceiling_name = reads     ? "best read / bytes of weights and caches"
                                  : by_unit ? "bf16 matrix unit / operations of the tokens"
                                            : "fp32 fused multiply-add / operations of the tokens"};
    const auto sequences = static_cast<double>(batch.sequences);
    summarize_turns(result, batch.rates,
                    reads ? scaled(batch.reads, sequences / bytes) : scaled(products, sequences / batch.operations),
                    false);
    results.push_back(result);
  }
}

// Measures the whole loop of text generation: the share of a token's time that is not spent in the steps.
void run_host_share(const Options& options, const std::shared_ptr<const llm::Model>& model,
                    std::vector<Result>& results) {
  constexpr int steps = 16;
  const std::vector<std::vector<int32_t>> prompts{random_prompt(*model, 64)};
  Result host{.name = "decode.host_share", .unit = "%", .ceiling_name = "0: all time in the steps"};
  llm::TextGenerator generator(model, nullptr, {});
  llm::GenerateOptions generate;
  generate.max_new_tokens = steps;
  generate.ignore_eos = true;
  std::vector<double> shares;
  for (int run = 0; run < options.runs; ++run) {
    shares.push_back(100 * generator.generate_ids(prompts, generate).timings.host_share());
  }
  summarize(host, shares, true);
  results.push_back(host);
}

// Runs the prompt with the accelerator's own choice of products and with oneDNN's, alternately, to compare both.
// `prefill` returns billions of operations per second. Does nothing without the library.
void compare_with_onednn(const Options& options, const std::function<double()>& prefill, std::vector<Result>& results) {
  const aa_cpu_matmul_table* control = matmul_control();
  if (!control) return;
  int32_t usable = 0;
  const char* library = "";
  if (control->library(&usable, &library) || !usable) {
    std::fprintf(stderr, "prefill: products by the own kernels; %s\n", library);
    return;
  }
  int64_t own[2] = {};
  int64_t onednn[2] = {};
  std::vector<double> chosen;
  std::vector<double> forced;
  if (control->set_implementation("onednn")) throw Error("the benchmark cannot force oneDNN");
  try {
    prefill();
  } catch (const NotImplementedError& error) {
    control->set_implementation(nullptr);
    std::fprintf(stderr, "prefill: products by the own kernels; %s\n", error.what());
    return;
  }
  control->set_implementation(nullptr);
  control->counts(&own[0], &onednn[0]);
  prefill();
  control->counts(&own[1], &onednn[1]);
  const std::string used = onednn[1] == onednn[0] ? "own kernels" : own[1] == own[0] ? "oneDNN" : "both, by shape";
  for (int run = 0; run < options.runs + 1; ++run) {
    const double with_choice = prefill();
    control->set_implementation("onednn");
    const double with_onednn = prefill();
    control->set_implementation(nullptr);
    if (!run) continue;
    chosen.push_back(with_choice);
    forced.push_back(with_onednn);
  }
  Result all_onednn;
  summarize(all_onednn, forced, false);
  Result result{.name = "prefill.onednn_bf16", .unit = "GFLOP/s", .ceiling_name = "oneDNN forced; chosen: " + used};
  result.ceiling = all_onednn.value;
  summarize(result, chosen, false);
  results.push_back(result);
}

void run_prefill(const Options& options, const std::shared_ptr<const llm::Model>& model, const std::string& name,
                 std::vector<Result>& results) {
  const auto length = static_cast<size_t>(options.prompt_tokens);
  llm::SessionOptions shape{.sequences = 1, .context = options.prompt_tokens};
  if (!on_host()) shape.chunk = options.prompt_tokens;
  llm::Session session(model, shape);
  const std::vector<int32_t> ids = random_prompt(*model, length);
  const std::vector<int32_t> sequence(length, 0);
  std::vector<int32_t> positions(length);
  for (size_t i = 0; i < length; ++i) positions[i] = static_cast<int32_t>(i);
  const std::vector<int32_t> rows{static_cast<int32_t>(length - 1)};
  // If the accelerator's vendor has a library for products of bf16, prompts are compared with that.
  const bool by_products = model->dtype() == DType::BF16 && has_products_of_bf16(options);
  Result flops{.name = name + ".flops",
               .unit = "GFLOP/s",
               .ceiling_name = by_products ? "a large bf16 product" : "fp32 fused multiply-add"};
  Result rate{.name = name + ".tokens", .unit = "tok/s", .ceiling_name = "the same, for these operations"};
  std::vector<double> values;
  std::vector<double> rates, ceilings;
  const double operations = prefill_operations(*model, static_cast<double>(length));
  const auto prefill = [&] {
    const auto start = Clock::now();
    session.forward({ids, sequence, positions}, rows);
    get_accelerator()->synchronize();
    return 1e-9 * operations / seconds_since(start);
  };
  prefill();
  const auto run = [&] {
    values.push_back(prefill());
    rates.push_back(1e9 * values.back() / operations * static_cast<double>(length));
  };
  if (by_products) {
    for (int i = 0; i < options.runs; ++i) run();
    ceilings.assign(values.size(), measure_ceiling(AA_CEILING_PRODUCT_BF16, options));
  } else {
    ceilings = ceilings_in_turns(AA_CEILING_FMA_F32, options, run);
  }
  summarize_turns(flops, values, scaled(ceilings, 1e-9), false);
  summarize_turns(rate, rates, scaled(ceilings, static_cast<double>(length) / operations), false);
  results.push_back(flops);
  results.push_back(rate);
  // The pieces of a longer prompt have the same products, and each run of it takes long.
  if (model->quantized_formats().empty() && options.prompt_tokens <= shape.chunk)
    compare_with_onednn(options, prefill, results);
}

// Loads the model in separate processes, so that their peak memory contains nothing else.
void run_load(const Options& options, const std::string& directory, const std::string& name,
              std::vector<Result>& results) {
  Result ready{.name = name + ".ready", .unit = "ms", .ceiling_name = "one copy of the weights"};
  Result peak{.name = name + ".peak_memory", .unit = "GB", .ceiling_name = "bytes of the weights"};
  std::vector<double> times;
  std::vector<double> peaks;
  double weights = 0;
  for (int run = 0; run < options.runs + 1; ++run) {
    const std::string output = own_output({"bench", "--load-probe", directory});
    double milliseconds = 0;
    double resident = 0;
    std::istringstream(output) >> milliseconds >> resident >> weights;
    if (weights <= 0) {
      llm::Model::load(directory);  // prints the error
      throw Error("the process that loads the model failed");
    }
    if (!run) continue;
    times.push_back(milliseconds);
    peaks.push_back(1e-9 * resident);
  }
  const double copy = measure_ceiling(AA_CEILING_COPY, options);
  ready.ceiling = copy > 0 ? 1e3 * 2 * weights / copy : 0;
  peak.ceiling = 1e-9 * weights;
  summarize(ready, times, true);
  summarize(peak, peaks, true);
  results.push_back(ready);
  results.push_back(peak);
}

// The files of a model's weights, which can be dropped from the system's page cache.
class ColdFiles {
 public:
  explicit ColdFiles(const std::string& model) {
    const llm::Checkpoint checkpoint = llm::Checkpoint::open(model, llm::FileAccess::Read);
    for (const auto& file : checkpoint.files()) files_.push_back(std::make_unique<OpenFile>(file->path()));
    for (const auto& file : files_) fsync(file->descriptor());  // only what is on the disk can be dropped
  }

  // Pages that a process has mapped stay in the cache.
  void drop() const {
    for (const auto& file : files_) posix_fadvise(file->descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  }

  // Reads all files in order, in blocks of 4 MiB, and returns the seconds that it took.
  double seconds_to_read() const {
    std::vector<std::byte> block(size_t{4} << 20);
    const auto start = Clock::now();
    for (const auto& file : files_) {
      for (uint64_t at = 0; at < file->bytes(); at += block.size()) {
        file->read(at, std::span(block).first(std::min<uint64_t>(block.size(), file->bytes() - at)));
      }
    }
    return seconds_since(start);
  }

 private:
  std::vector<std::unique_ptr<OpenFile>> files_;
};

// Measures a process from its start to its first token when none of the weights is in memory, in turns with reading the
// same files from the disk.
void run_cold_start(const Options& options, const std::string& model, const std::string& name,
                    std::vector<Result>& results) {
  Result first{.name = name + ".cold_first_token", .unit = "ms", .ceiling_name = "reading the files from the disk"};
  const ColdFiles files(model);
  std::vector<double> times;
  std::vector<double> reads;
  for (int run = 0; run < options.runs; ++run) {
    files.drop();
    reads.push_back(1e3 * files.seconds_to_read());
    files.drop();
    const auto start = Clock::now();
    own_output({"bench", "--load-probe", model});
    times.push_back(1e3 * seconds_since(start));
  }
  Result read;
  summarize(read, reads, true);
  first.ceiling = read.value;
  summarize(first, times, true);
  results.push_back(first);
}

}  // namespace

int load_probe(const std::string& directory) {
  const auto start = Clock::now();
  auto model = llm::Model::load(directory);
  const double milliseconds = 1e3 * seconds_since(start);
  // The steps read every weight once, so that mapped pages count in the peak.
  llm::Session session(model, {.sequences = 1, .context = 64});
  const std::vector<std::vector<int32_t>> prompts{random_prompt(*model, 8)};
  session.start(prompts, {}, 0);
  session.step();
  session.tokens();
  std::printf("%.3f %lld %llu\n", milliseconds, static_cast<long long>(process_memory().peak_resident),
              static_cast<unsigned long long>(model->weight_bytes()));
  return 0;
}

void run_model(const Options& options, bool decode, bool batches, bool prefill, std::vector<Result>& results) {
  std::unique_ptr<TemporaryModel> temporary;
  std::shared_ptr<const llm::Model> model;
  if (options.model.empty() && !on_host()) {
    // On a device no file is needed.
    model = llm::Model::random(*get_accelerator(), llm::find_model_shape(options.shape), DType::BF16);
  } else {
    std::string directory = options.model;
    if (directory.empty()) {
      temporary = std::make_unique<TemporaryModel>(options.shape);
      directory = temporary->path();
    }
    if (decode) run_load(options, directory, "load", results);
    if (decode && on_host()) run_cold_start(options, directory, "load", results);
    model = llm::Model::load(directory);
  }
  wait_until_weights_are_moved(model);
  if (decode) {
    run_decode(options, model, "decode", 1, results);
    if (on_host()) run_long_contexts(options, model, results);
    run_host_share(options, model, results);
  }
  if (batches) run_batches(options, model, results);
  if (prefill) run_prefill(options, model, "prefill", results);
}

void run_quantized(const Options& options, std::vector<Result>& results) {
  if (options.model.empty()) {
    throw InvalidArgument("bench quantized needs a model with quantized weights: --model FILE.gguf");
  }
  const std::shared_ptr<const llm::Model> model = llm::Model::load(options.model);
  if (model->quantized_formats().empty()) {
    throw InvalidArgument("bench quantized: the weights of " + options.model + " are computed with as " +
                          std::string(dtype_name(model->dtype())) + " on " + get_accelerator()->name() +
                          "; expected quantized weights, and an accelerator that computes on them");
  }
  run_load(options, options.model, "quantized.load", results);
  wait_until_weights_are_moved(model);
  run_decode(options, model, "quantized.decode", 1, results);
  run_decode(options, model, "quantized.decode_8", 8, results);
  run_prefill(options, model, "quantized.prefill", results);
}

}  // namespace anyaccel::cli::bench
