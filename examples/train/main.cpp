// Trains a small language model on any accelerator, over any number of ranks; training can be stopped and resumed.
//
//     anyaccel_train OUT [options]                                         (--help lists them)
//     anyaccel launch --num_accelerators 2 anyaccel_train OUT [options]
//
// The program writes checkpoint-<step> folders, of which it keeps the last two, and loss.svg to OUT. A decoder's
// checkpoint is a model directory: anyaccel generate --model OUT/checkpoint-300 --prompt "The old fox".
// docs/training.md explains it all.
//
// Exit codes: 0; 1 when training fails, with the reason on standard error; 2 for wrong arguments.
#include <anyaccel/accelerator.h>
#include <anyaccel/comm/process_group.h>
#include <anyaccel/error.h>
#include <anyaccel/file_output.h>
#include <anyaccel/llm/model_config.h>
#include <anyaccel/llm/prompt_text.h>
#include <anyaccel/llm/tokenizer.h>
#include <anyaccel/nn/checkpoint.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

#include "curve.h"
#include "data.h"
#include "options.h"
#include "progress.h"
#include "text.h"

using namespace anyaccel;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kHeldOutSequences = 64;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read '" + path.string() + "'");
  return {std::istreambuf_iterator<char>(file), {}};
}

// The text as tokens, and the files with which a model directory tokenizes text in the same way.
struct Corpus {
  std::vector<std::vector<int32_t>> documents;
  int32_t begin = kBegin, end = kEnd;
  int64_t tokens = kByteTokens;
  std::vector<std::pair<std::string, std::string>> tokenizer_files;
};

// Returns the files of a model directory that describe its tokenizer, so that a checkpoint has the same one.
std::vector<std::pair<std::string, std::string>> tokenizer_files(const fs::path& directory) {
  std::vector<std::pair<std::string, std::string>> files;
  if (!fs::is_directory(directory)) {
    throw std::runtime_error("--tokenizer: '" + directory.string() + "' is a file; expected a model directory");
  }
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view names[] = {
        "tokenizer.json", "tokenizer_config.json",   "tokenizer.model",  "vocab.json", "merges.txt", "tekken.json",
        "vocab.txt",      "special_tokens_map.json", "added_tokens.json"};
    if (std::ranges::find(names, name) == std::end(names) && entry.path().extension() != ".tiktoken") continue;
    files.emplace_back(name, read_file(entry.path()));
  }
  std::ranges::sort(files);
  return files;
}

Corpus load_corpus(const Options& options) {
  Corpus corpus;
  const std::vector<std::string> texts =
      options.text.empty() ? make_documents(options.seed, 4000) : read_documents(options.text);
  if (options.tokenizer.empty()) {
    for (const std::string& text : texts) corpus.documents.push_back(byte_tokens(text));
    corpus.tokenizer_files = {{"tokenizer.json", byte_tokenizer_json()}};
    return corpus;
  }
  const auto tokenizer = llm::Tokenizer::load(options.tokenizer);
  if (!tokenizer->bos_id() || !tokenizer->eos_id()) {
    throw std::runtime_error("--tokenizer: '" + options.tokenizer +
                             "' has no token that begins a text, or none that ends it");
  }
  corpus.begin = *tokenizer->bos_id();
  corpus.end = *tokenizer->eos_id();
  corpus.tokens = tokenizer->vocab_size();
  for (size_t i = 0; i < texts.size(); ++i) {
    const size_t valid = llm::valid_utf8_prefix(texts[i]);
    if (valid < texts[i].size()) {
      throw std::runtime_error("--text: document " + std::to_string(i + 1) + " of '" + options.text +
                               "' is not UTF-8 at its byte " + std::to_string(valid) +
                               "; a tokenizer has no tokens for that: convert the text, or train on bytes, without "
                               "--tokenizer");
    }
    corpus.documents.push_back(tokenizer->encode(texts[i], false));
  }
  corpus.tokenizer_files = tokenizer_files(options.tokenizer);
  return corpus;
}

// Describes the text, so that checkpoints can distinguish it from another text.
std::string description(const Corpus& corpus) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a, one token at a time
  size_t tokens = 0;
  for (const auto& document : corpus.documents) {
    for (const int32_t token : document) hash = (hash ^ static_cast<uint32_t>(token)) * 1099511628211u;
    hash = (hash ^ UINT32_MAX) * 1099511628211u;
    tokens += document.size();
  }
  char text[100];
  std::snprintf(text, sizeof text, "of %zu documents and %zu tokens (%016llx)", corpus.documents.size(), tokens,
                static_cast<unsigned long long>(hash));
  return text;
}

// Reads the settings that the tensors of a model directory do not show. Refuses a directory of another kind of model,
// whose tensors may have the same names and shapes.
void take_from_weights(const std::string& directory, nn::DecoderSizes& sizes) {
  const llm::ModelConfig config = llm::load_model_config(directory);
  const auto refuse = [&](const std::string& what) {
    throw std::runtime_error("--weights: '" + directory + "' " + what);
  };
  if (config.family != llm::Family::Llama || config.rope.type != llm::RopeType::Default ||
      config.rope.rotary_dim != config.head_dim || config.hidden_act != ops::Activation::Silu || config.quantization) {
    refuse(
        "holds another kind of model; expected model_type llama with rope_type default, silu and weights that are not "
        "quantized");
  }
  if (config.num_attention_heads != sizes.heads || config.num_key_value_heads != sizes.kv_heads ||
      config.head_dim != sizes.head_dim) {
    refuse("has " + std::to_string(config.num_attention_heads) + " query heads, " +
           std::to_string(config.num_key_value_heads) + " key/value heads and the head size " +
           std::to_string(config.head_dim) + "; the options say " + std::to_string(sizes.heads) + ", " +
           std::to_string(sizes.kv_heads) + " and " + std::to_string(sizes.head_dim));
  }
  sizes.rope_theta = config.rope.theta;
  sizes.norm_eps = config.rms_norm_eps;
  sizes.tied = config.tie_word_embeddings;
}

std::string config_json(const Options& options, const nn::DecoderSizes& sizes, const Corpus& corpus) {
  const auto number = [](const char* key, double value) {
    char text[64];
    std::snprintf(text, sizeof text, ",\n  \"%s\": %.12g", key, value);
    return std::string(text);
  };
  std::string json =
      "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\",\n"
      "  \"hidden_act\": \"silu\",\n  \"torch_dtype\": \"float32\",\n  \"attention_bias\": false,\n"
      "  \"mlp_bias\": false";
  json += std::string(",\n  \"tie_word_embeddings\": ") + (sizes.tied ? "true" : "false");
  json += number("vocab_size", static_cast<double>(sizes.tokens));
  json += number("hidden_size", static_cast<double>(sizes.hidden));
  json += number("intermediate_size", static_cast<double>(sizes.intermediate));
  json += number("num_hidden_layers", static_cast<double>(sizes.layers));
  json += number("num_attention_heads", static_cast<double>(sizes.heads));
  json += number("num_key_value_heads", static_cast<double>(sizes.kv_heads));
  json += number("head_dim", static_cast<double>(sizes.head_dim));
  json += number("max_position_embeddings", static_cast<double>(std::max<int64_t>(options.length, 512)));
  json += number("rms_norm_eps", sizes.norm_eps);
  json += number("rope_theta", sizes.rope_theta);
  json += number("bos_token_id", corpus.begin);
  json += number("eos_token_id", corpus.end);
  return json + "\n}\n";
}

// Returns the checkpoint-<step> folders of OUT by their steps.
std::map<int64_t, fs::path> checkpoints_in(const fs::path& out) {
  std::map<int64_t, fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(out, error)) {
    const std::string name = entry.path().filename().string(), prefix = "checkpoint-";
    if (name.rfind(prefix, 0) != 0 || name.find_first_not_of("0123456789", prefix.size()) != std::string::npos)
      continue;
    if (name.size() > prefix.size() && name.size() < prefix.size() + 18) {
      found[std::stoll(name.substr(prefix.size()))] = entry.path();
    }
  }
  return found;
}

// Removes what a run that was killed while it saved has left.
void remove_unfinished(const fs::path& out) {
  std::error_code error;
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(out, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("checkpoint-") && name.ends_with(".part")) left.push_back(entry.path());
  }
  for (const fs::path& path : left) fs::remove_all(path, error);
}

// Holds everything that training needs.
class Run {
 public:
  Run(const Options& options, std::shared_ptr<comm::ProcessGroup> group)
      : options_(options),
        group_(std::move(group)),
        accelerator_(*get_accelerator()),
        resident_before_(memory_stat("process_rss.current")),
        context_(accelerator_, options.dtype == "bfloat16"  ? DType::BF16
                               : options.dtype == "float16" ? DType::F16
                                                            : DType::F32),
        parameters_(context_) {
    const int64_t ranks = group_->size();
    if (options_.batch % (ranks * options_.pieces) != 0) {
      throw std::runtime_error("--batch: " + std::to_string(options_.batch) + " is not a multiple of " +
                               std::to_string(ranks) + " ranks times " + std::to_string(options_.pieces) + " pieces");
    }
    sequences_ = options_.batch / (ranks * options_.pieces);
    Corpus corpus = load_corpus(options_);
    text_ = description(corpus);
    Documents documents(std::move(corpus.documents), corpus.begin, corpus.end, options_.length);
    if (options_.model == "decoder") {
      nn::DecoderSizes sizes;
      sizes.tokens = corpus.tokens;
      sizes.hidden = options_.hidden;
      sizes.layers = options_.layers;
      sizes.heads = options_.heads;
      sizes.kv_heads = options_.kv_heads;
      sizes.head_dim = options_.hidden / options_.heads;
      sizes.intermediate = options_.intermediate;
      if (!options_.weights.empty()) take_from_weights(options_.weights, sizes);
      from_weights_ = {{"rope_theta", number_text(sizes.rope_theta)},
                       {"norm_eps", number_text(static_cast<float>(sizes.norm_eps))},
                       {"tied", sizes.tied ? "true" : "false"}};
      model_ = std::make_unique<nn::Decoder>(parameters_, sizes);
      data_ = std::make_unique<NextToken>(std::move(documents), corpus.tokens, options_.length, options_.seed);
      files_ = std::move(corpus.tokenizer_files);
      files_.emplace_back("generation_config.json", "{\n  \"bos_token_id\": " + std::to_string(corpus.begin) +
                                                        ",\n  \"eos_token_id\": " + std::to_string(corpus.end) +
                                                        "\n}\n");
      files_.emplace_back("config.json", config_json(options_, sizes, corpus));
    } else {
      nn::EncoderSizes sizes;
      sizes.tokens = kByteTokens + 1;  // and the mask token
      sizes.positions = options_.length;
      sizes.hidden = options_.hidden;
      sizes.layers = options_.layers;
      sizes.heads = options_.heads;
      sizes.intermediate = options_.intermediate;
      sizes.largest_batch = std::max<int64_t>(sequences_, kHeldOutSequences);
      sizes.dropout = static_cast<float>(options_.dropout);
      model_ = std::make_unique<nn::Encoder>(parameters_, sizes);
      data_ = std::make_unique<HiddenTokens>(std::move(documents), sizes.tokens, kByteTokens, options_.length,
                                             options_.seed);
    }
    parameters_.allocate(options_.seed, !options_.offload.empty());
    if (!options_.weights.empty()) nn::load_weights(options_.weights, parameters_);
    nn::OptimizerOptions optimizer;
    optimizer.name = options_.optimizer;
    optimizer.weight_decay = options_.weight_decay;
    if (!options_.offload.empty()) {
      optimizer.placement = options_.offload == "host" ? nn::Placement::Host : nn::Placement::Files;
      optimizer.directory = options_.offload;
    }
    optimizer_ = nn::Optimizer::make(parameters_, optimizer);
    nn::TrainerOptions trainer;
    trainer.schedule = {options_.schedule, options_.rate, options_.warmup, options_.steps, options_.final_rate};
    trainer.max_norm = options_.clip;
    trainer.group = group_;
    trainer_ = std::make_unique<nn::Trainer>(*model_, parameters_, *optimizer_, trainer);
    // Dropout differs between ranks.
    generator_seed_ = options_.seed + static_cast<uint64_t>(group_->rank());
    accelerator_.default_generator(context_.device().index).manual_seed(generator_seed_);
  }

  void train() {
    const fs::path out = options_.out;
    begin(out);
    const int64_t first = trainer_->steps_done();
    const int64_t last = options_.until > 0 ? std::min(options_.until, options_.steps) : options_.steps;
    const bool speaks = group_->rank() == 0;
    if (speaks) {
      std::fprintf(stderr, "%s of %lld parameters on %s, %d rank%s, step %lld to %lld\n", options_.model.c_str(),
                   static_cast<long long>(parameters_.count()), context_.device().name().c_str(), group_->size(),
                   group_->size() == 1 ? "" : "s", static_cast<long long>(first + 1), static_cast<long long>(last));
    }
    {
      Progress progress(first, last, options_.batch * options_.length, speaks);
      for (int64_t step = first + 1; step <= last; ++step) {
        const nn::StepResult result = one_step(step);
        losses_.push_back(static_cast<float>(result.loss));
        progress.step(step, result.loss, result.rate);
        const bool due = options_.save_every > 0 && step % options_.save_every == 0;
        if (due || step == last) save(out);
      }
    }
    const double held_out = trainer_->evaluate(data_->held_out(context_, kHeldOutSequences));
    if (speaks) {
      std::printf("step %lld: loss %.4f, held-out loss %.4f\n", static_cast<long long>(trainer_->steps_done()),
                  losses_.empty() ? 0.0 : static_cast<double>(losses_.back()), held_out);
    }
  }

  // Measures steps, after two that may compile and allocate; prints times and memory use as JSON.
  void bench() {
    using Clock = std::chrono::steady_clock;
    std::string milliseconds;
    double loss = 0;
    for (int64_t step = 1; step <= options_.bench + 2; ++step) {
      const auto start = Clock::now();
      loss = one_step(step).loss;
      accelerator_.synchronize();
      const double spent = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
      if (step > 2) milliseconds += (milliseconds.empty() ? "" : ",") + std::to_string(spent);
    }
    if (group_->rank() != 0) return;
    std::printf(
        "{\"accelerator\":\"%s\",\"parameters\":%lld,\"tokens\":%lld,\"loss\":%.6f,\"peak_allocated\":%lld,"
        "\"process_before\":%lld,\"peak_process\":%lld,\"milliseconds\":[%s]}\n",
        accelerator_.name().c_str(), static_cast<long long>(parameters_.count()),
        static_cast<long long>(options_.batch * options_.length), loss,
        static_cast<long long>(accelerator_.max_memory_allocated()), static_cast<long long>(resident_before_),
        static_cast<long long>(memory_stat("process_rss.peak")), milliseconds.c_str());
  }

 private:
  // Returns 0 if the accelerator does not report the value.
  int64_t memory_stat(const char* key) const {
    const auto stats = accelerator_.memory_stats();
    const auto found = stats.find(key);
    return found == stats.end() ? 0 : static_cast<int64_t>(found->second);
  }

  nn::StepResult one_step(int64_t step) {
    std::vector<nn::Batch> pieces;
    for (int64_t piece = 0; piece < options_.pieces; ++piece) {
      const int64_t place = static_cast<int64_t>(group_->rank()) * options_.pieces + piece;
      pieces.push_back(data_->batch(context_, step, place * sequences_, sequences_));
    }
    return trainer_->step(pieces);
  }

  // Returns the settings that a resumed run must share with the run that it continues.
  std::map<std::string, std::string> notes() const {
    auto notes = options_.notes();
    notes.insert(from_weights_.begin(), from_weights_.end());
    notes["text"] = text_;
    return notes;
  }

  // Creates OUT, or resumes from the checkpoint in it.
  void begin(const fs::path& out) {
    std::error_code error;
    fs::create_directories(out, error);
    if (error) throw std::runtime_error("cannot create the folder '" + out.string() + "': " + error.message());
    const auto found = checkpoints_in(out);
    if (group_->rank() == 0) remove_unfinished(out);
    if (!options_.resume) {
      if (found.empty()) return;
      throw std::runtime_error("'" + out.string() + "' holds " + found.rbegin()->second.filename().string() +
                               "; continue from it with --resume, or choose another folder");
    }
    if (found.empty()) throw std::runtime_error("--resume: '" + out.string() + "' holds no checkpoint");
    const fs::path& newest = found.rbegin()->second;
    const nn::TrainingState state = nn::load_checkpoint(newest, parameters_, *optimizer_);
    for (const auto& [name, value] : notes()) {
      const auto stored = state.notes.find(name);
      if (stored != state.notes.end() && stored->second == value) continue;
      throw std::runtime_error("--resume: " + newest.string() + " was made with " + name + " " +
                               (stored == state.notes.end() ? std::string("unknown") : stored->second) + ", not " +
                               value + "; pass the options that it was started with");
    }
    trainer_->set_progress(state.steps_done, state.loss_scale, state.good_steps, state.skipped_steps);
    accelerator_.default_generator(context_.device().index).set_state({generator_seed_, state.generator_offset});
    losses_ = state.losses;
  }

  void save(const fs::path& out) {
    if (group_->rank() == 0) {
      nn::TrainingState state;
      state.steps_done = trainer_->steps_done();
      state.loss_scale = trainer_->loss_scale();
      state.good_steps = trainer_->good_steps();
      state.skipped_steps = trainer_->skipped_steps();
      state.generator_offset = accelerator_.default_generator(context_.device().index).get_state().offset;
      state.losses = losses_;
      state.notes = notes();
      nn::save_checkpoint(out / ("checkpoint-" + std::to_string(state.steps_done)), parameters_, *optimizer_, state,
                          files_);
      auto found = checkpoints_in(out);
      for (; found.size() > 2; found.erase(found.begin())) fs::remove_all(found.begin()->second);
      const std::string reason =
          write_output_file(out / "loss.svg", loss_curve(losses_, "loss of the " + options_.model));
      if (!reason.empty()) throw std::runtime_error("cannot write " + (out / "loss.svg").string() + ": " + reason);
    }
    group_->barrier();
  }

  const Options& options_;
  std::shared_ptr<comm::ProcessGroup> group_;
  Accelerator& accelerator_;
  int64_t resident_before_;  // resident bytes of the process before the model was created
  nn::Context context_;
  nn::Parameters parameters_;
  std::unique_ptr<nn::Model> model_;
  std::unique_ptr<Data> data_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::unique_ptr<nn::Trainer> trainer_;
  std::vector<std::pair<std::string, std::string>> files_;
  std::vector<float> losses_;
  std::map<std::string, std::string> from_weights_;  // notes of what --weights decided
  std::string text_;
  int64_t sequences_ = 0;  // of a piece
  uint64_t generator_seed_ = 0;
};

}  // namespace

static void finish_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw std::runtime_error("standard output cannot be written (a full disk, or closed)");
  }
}

int main(int argc, char** argv) {
  Options options;
  try {
    options = parse_options(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "anyaccel_train: %s\n", error.what());
    return 2;
  }
  try {
    if (options.help) {
      std::fputs(usage().c_str(), stdout);
      finish_output();
      return 0;
    }
    Accelerator& accelerator = *get_accelerator();
    accelerator.set_device(comm::local_rank() % accelerator.device_count());
    const auto group = comm::init_process_group();
    {
      Run run(options, group);
      options.bench > 0 ? run.bench() : run.train();
    }
    comm::destroy_process_group();
    finish_output();
    return 0;
  } catch (const std::exception& error) {
    comm::abort_process_group(error.what());
    std::fprintf(stderr, "anyaccel_train: %s\n", error.what());
    return 1;
  }
}
