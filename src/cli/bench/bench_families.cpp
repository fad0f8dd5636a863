// Implements bench families: compares a slice of a model of each family with the same slice of Llama, in turns. Speeds are
// those of the bytes that a token reads, and of the operations of a prompt, since families of the same sizes differ in how
// many matrices they have. Families with experts are also compared with the memory's own speed.
#include <algorithm>
#include <cstdio>

#include "anyaccel/error.h"
#include "anyaccel/llm/make_model.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/session.h"
#include "cli/bench/bench.h"
#include "cli/bench/model_work.h"
#include "cli/bench/temporary_model.h"

namespace anyaccel::cli::bench {
namespace {

constexpr int64_t slice_layers = 4;
constexpr int64_t decode_prompt = 64;
constexpr int decode_steps = 8;

// A few layers, and the same share of the vocabulary, so that the output matrix takes the same share of a token's time as
// in the whole model. Their weights exceed the caches by far.
llm::ModelShape slice_of(const llm::ModelShape& whole) {
  llm::ModelShape slice = whole;
  slice.layers = std::min(slice_layers, whole.layers);
  slice.vocab_size = std::max<int64_t>(whole.vocab_size * slice.layers / whole.layers / 16 * 16, 512);
  return slice;
}

class Subject {
 public:
  Subject(const llm::ModelShape& shape, const Options& options)
      : model_(llm::Model::random(*get_accelerator(), shape, DType::BF16)),
        prompt_(random_prompt(*model_, static_cast<size_t>(options.prompt_tokens))),
        sequence_(prompt_.size(), 0),
        bytes_(weight_bytes_per_token(*model_)),
        operations_(prefill_operations(*model_, static_cast<double>(prompt_.size()))),
        decoding_(model_, {.sequences = 1, .context = decode_prompt + decode_steps + 2}),
        reading_(model_, {.sequences = 1, .context = options.prompt_tokens}) {
    for (size_t i = 0; i < prompt_.size(); ++i) positions_.push_back(static_cast<int32_t>(i));
    decode();
    prefill();
  }

  const llm::Model& model() const { return *model_; }

  // Returns the bytes per second of a few tokens after a short prompt.
  double decode() {
    const std::vector<std::vector<int32_t>> prompts = {random_prompt(*model_, decode_prompt)};
    decoding_.start(prompts, {}, 0);
    decoding_.step();
    decoding_.tokens();
    double bytes = 0;
    const auto start = Clock::now();
    for (int i = 0; i < decode_steps; ++i) {
      decoding_.step();
      decoding_.tokens();
      bytes += bytes_ + cache_bytes_per_position(*model_) * static_cast<double>(decoding_.length(0));
    }
    return bytes / seconds_since(start);
  }

  // Returns the operations per second of the prompt.
  double prefill() {
    const std::vector<int32_t> rows{static_cast<int32_t>(prompt_.size() - 1)};
    const auto start = Clock::now();
    reading_.forward({prompt_, sequence_, positions_}, rows);
    get_accelerator()->synchronize();
    return operations_ / seconds_since(start);
  }

 private:
  std::shared_ptr<const llm::Model> model_;
  std::vector<int32_t> prompt_, sequence_, positions_;
  double bytes_, operations_;
  llm::Session decoding_, reading_;
};

// Adds a figure whose ratio is the median of those of the turns.
void add(std::vector<Result>& results, Result result, const std::vector<double>& values,
         const std::vector<double>& others) {
  std::vector<double> ratios;
  for (size_t i = 0; i < values.size(); ++i) ratios.push_back(values[i] / others[i]);
  Result other, ratio;
  summarize(other, others, false);
  summarize(ratio, ratios, false);
  summarize(result, values, false);
  result.value *= 1e-9;
  result.ceiling = 1e-9 * other.value;
  result.ratio = ratio.value;
  results.push_back(result);
}

}  // namespace

void run_families(const Options& options, std::vector<Result>& results) {
  const llm::ModelShape slice = slice_of(llm::find_model_shape(options.shape));
  std::vector<llm::ModelShape> shapes = llm::family_shapes(slice);
  if (!options.families.empty()) {
    std::string names;
    for (const llm::ModelShape& shape : shapes) names += (names.empty() ? "" : ", ") + shape.name;
    for (const std::string& name : options.families) {
      if (std::ranges::find(shapes, name, &llm::ModelShape::name) != shapes.end()) continue;
      throw InvalidArgument("bench families: unknown family '" + name + "'; expected one of " + names);
    }
    std::erase_if(shapes, [&](const llm::ModelShape& shape) {
      return std::ranges::find(options.families, shape.name) == options.families.end();
    });
  }
  Subject llama(llm::family_shapes(slice).front(), options);
  for (const llm::ModelShape& shape : shapes) {
    std::fprintf(stderr, "%s\n", shape.name.c_str());
    Subject subject(shape, options);
    const bool has_experts = shape.experts > 0;
    std::vector<double> decodes, llama_decodes, prefills, llama_prefills, reads;
    for (int run = 0; run < options.runs; ++run) {
      if (has_experts) reads.push_back(measure_ceiling(AA_CEILING_READ, options));
      decodes.push_back(subject.decode());
      llama_decodes.push_back(llama.decode());
      prefills.push_back(subject.prefill());
      llama_prefills.push_back(llama.prefill());
    }
    add(results,
        {.name = "families.decode " + shape.name, .unit = "GB/s", .ceiling_name = "Llama of the same sizes, in turns"},
        decodes, llama_decodes);
    if (has_experts && reads.front() > 0) {
      add(results, {.name = "families.decode " + shape.name, .unit = "GB/s", .ceiling_name = "best read, in turns"},
          decodes, reads);
    }
    add(results,
        {.name = "families.prefill " + shape.name,
         .unit = "GFLOP/s",
         .ceiling_name = "Llama of the same sizes, in turns"},
        prefills, llama_prefills);
  }
}

}  // namespace anyaccel::cli::bench
