// From prompts to text: a model, its tokenizer and its generation settings, put together.
//
// Threads: a TextGenerator belongs to one thread at a time. Threads that generate at once have one each, over one Model and
// one Tokenizer, and get the text that each would get alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/llm/generation_config.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/session.h"
#include "anyaccel/llm/tokenizer.h"

namespace anyaccel::llm {

struct GenerateOptions {
  int64_t max_new_tokens = 256;  // for each prompt; at least 1
  // Most tokens of a prompt and its answer, where that ends earlier; 0: no such limit. Not the size of the cache, as context is.
  int64_t max_length = 0;
  Sampling sampling;
  // Which tokens are forbidden, forced or preferred. eos_token_ids, max_new_tokens and max_length in it are set by the
  // generator, without end-of-sequence tokens when ignore_eos is set.
  TokenRules rules;
  // Of the draws. Empty: the state of the accelerator's random number generator, which then moves on.
  std::optional<uint64_t> seed;
  // Text ends before the first of these to appear. Token borders do not matter.
  std::vector<std::string> stop;
  // Go on past end-of-sequence tokens.
  bool ignore_eos = false;
  // Most tokens of prompt and answer together; sets the size of the key/value cache. 0: what the prompts and
  // max_new_tokens need, at most what the model was trained for (config.json's max_position_embeddings, times the
  // factor of "dynamic" rope scaling). A number over that is allowed, though a model rarely makes sense there.
  int64_t context = 0;
  // A prompt's text depends on the prompt, the options and the seed alone (see SessionOptions::deterministic).
  bool deterministic = false;
  // Add the tokenizer's beginning-of-text tokens to prompts given as text.
  bool add_special_tokens = true;
};

enum class FinishReason {
  Eos,     // an end-of-sequence token
  Stop,    // a stop string
  Length,  // max_new_tokens or the context
  Error,   // an exception ended the call (see TextGenerator::interrupted)
};
// "eos", "stop", "length", "error".
std::string_view finish_reason_name(FinishReason reason) noexcept;

struct Completion {
  std::string text;  // special tokens left out, a stop string and what follows it cut off
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> token_ids;  // generated, an end-of-sequence token included
  FinishReason finish_reason = FinishReason::Length;
};

struct GenerateTimings {
  double prefill_seconds = 0;      // from the first prompt token to the first new tokens on the host
  double decode_seconds = 0;       // all further steps
  double decode_host_seconds = 0;  // the part of it outside the steps: choosing, text, callbacks
  int64_t prompt_tokens = 0;       // of all prompts
  int64_t decoded_tokens = 0;      // of all prompts, without the first new token of each
  int64_t decode_steps = 0;
  int64_t replayed_steps = 0;  // of these, replayed from a graph

  // Tokens per second, all prompts together; 0 when nothing was done.
  double prefill_rate() const noexcept;
  double decode_rate() const noexcept;
  // decode_host_seconds over decode_seconds; 0 when nothing was done.
  double host_share() const noexcept;
};

struct GenerateResult {
  std::vector<Completion> completions;  // in the order of the prompts
  GenerateTimings timings;
  uint64_t seed = 0;  // what the draws used
};

// Receives each new piece of text (never empty, whole UTF-8 characters) of a prompt as it becomes certain, on the
// thread that generates. Returning false ends that prompt with FinishReason::Stop.
using TextCallback = std::function<bool(size_t prompt, std::string_view piece)>;

class TextGenerator {
 public:
  // Loads model, tokenizer and generation_config.json from a Hugging Face directory. Throws as Model::load does, and
  // CheckpointError for the tokenizer, also for one with tokens beyond the model's vocabulary.
  static TextGenerator load(const std::string& directory, const LoadOptions& options = {});
  // `tokenizer` may be null: then only generate_ids() works, and texts stay empty.
  TextGenerator(std::shared_ptr<const Model> model, std::shared_ptr<const Tokenizer> tokenizer,
                GenerationConfig generation_config);
  ~TextGenerator();
  TextGenerator(TextGenerator&&) noexcept;
  TextGenerator& operator=(TextGenerator&&) noexcept;

  const Model& model() const noexcept { return *model_; }
  const Tokenizer* tokenizer() const noexcept { return tokenizer_.get(); }
  const GenerationConfig& generation_config() const noexcept { return generation_config_; }
  // Seconds that load() took.
  double load_seconds() const noexcept { return load_seconds_; }
  // What generation_config.json says, else the defaults above: greedy unless it says do_sample. What of the file changes the
  // text and cannot be had is in generation_config().warnings.
  GenerateOptions default_options() const;

  // Generates for all prompts together; each has its own length and its own end. Blocks until all are done.
  // InvalidArgument for no prompts, a prompt without tokens or with an id that the model's vocabulary does not have, one longer than the context (with both numbers), or an
  // option out of range. Ranks that hold one model together make the same call; what rank 0 finds and its callback
  // answers decides when a prompt ends, and its result is the one that counts. An error in the middle (out of memory, a lost device) leaves what there was by then in
  // interrupted(). So does a NumericalError: when the logits of one prompt hold a NaN or an infinity (see Session::tokens()),
  // the call ends for all prompts, and those that had ended by then keep their finish reason.
  GenerateResult generate(std::span<const std::string> prompts, const GenerateOptions& options,
                          const TextCallback& callback = {});
  // The same for prompts that are token ids already.
  GenerateResult generate_ids(std::span<const std::vector<int32_t>> prompts, const GenerateOptions& options,
                              const TextCallback& callback = {});
  // What the latest call had generated when it threw; null when it did not, or had no token yet.
  const GenerateResult* interrupted() const noexcept { return interrupted_ ? &*interrupted_ : nullptr; }

 private:
  Session& session_for(int64_t sequences, int64_t context, bool deterministic);

  std::shared_ptr<const Model> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  GenerationConfig generation_config_;
  double load_seconds_ = 0;
  std::unique_ptr<Session> session_;  // of the latest call, used again when it is large enough
  std::optional<GenerateResult> interrupted_;
};

}  // namespace anyaccel::llm
