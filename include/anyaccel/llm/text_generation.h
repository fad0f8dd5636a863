// Generates text from prompts: combines a model, its tokenizer and its generation settings.
//
// Threads: a TextGenerator belongs to one thread at a time. Threads that generate concurrently need one each, over one
// Model and one Tokenizer, and each gets the text that it would get if it were the only one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/llm/beam_settings.h"
#include "anyaccel/llm/generation_config.h"
#include "anyaccel/llm/grammar.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/session.h"
#include "anyaccel/llm/tokenizer.h"

namespace anyaccel::llm {

// Speculative decoding: tokens are proposed by a small model or by repetitions in the text, and the model checks
// several of them in one step. The answers are those of the model alone: the same at temperature 0 (if the model's
// logits for a token do not depend on how many tokens a step has, as with GenerateOptions::deterministic; else up to
// rounding, as between batches), and of the same distribution otherwise, though not the same for a seed. Prompts are
// answered one after the other, each with random numbers of its own, unless GenerateOptions::deterministic is set.
struct Speculation {
  std::shared_ptr<const Model> model;  // with the same tokens; null: drafts come from repetitions
  // Without a model: the maximum number of newest tokens that are compared with earlier ones of prompt and answer. What
  // followed the longest match is proposed. Positive then, and 0 with a model.
  int32_t ngrams = 0;
  int32_t tokens = 4;  // proposed in each step, 1 to max_draft_tokens
};
constexpr int32_t max_draft_tokens = 64;

struct GenerateOptions {
  int64_t max_new_tokens = 256;  // for each prompt; at least 1
  // Maximum number of tokens of a prompt and its answer, if that ends earlier; 0: no such limit. Unlike context, this
  // is not the size of the cache.
  int64_t max_length = 0;
  Sampling sampling;
  // Rules that forbid, force or prefer tokens. The generator sets eos_token_ids (none with ignore_eos), max_new_tokens,
  // max_length and grammar in it.
  TokenRules rules;
  // Holds each answer to the grammar: a token is chosen only if some text of the grammar begins with the answer up to
  // it. An answer that ends with FinishReason::Eos or at the end of the grammar (FinishReason::Stop) is a text of it;
  // one that ends for another reason is the beginning of one. InvalidArgument without a tokenizer. NotImplementedError
  // for a tokenizer whose tokens have no text of their own (Tokenizer::token_bytes), InvalidArgument if no token
  // continues an answer.
  std::shared_ptr<const Grammar> grammar;
  // Seed of the random numbers. Empty: one is drawn from the random number generator of the model's device.
  std::optional<uint64_t> seed;
  // Text ends before the one of these that is complete first (of several that end there, the longest). Token boundaries
  // do not matter.
  std::vector<std::string> stop;
  // Continue past end-of-sequence tokens, those of more_eos_ids included.
  bool ignore_eos = false;
  // Maximum number of tokens of prompt and answer together. The key/value cache has room for the longest prompt and
  // max_new_tokens, but for no more than this. 0: the context that the model was trained for (config.json's
  // max_position_embeddings, times the factor of "dynamic" rope scaling). A larger number is allowed, though models
  // rarely produce sensible text there.
  int64_t context = 0;
  // A prompt's text depends only on the prompt, the options and the seed (see SessionOptions::deterministic).
  bool deterministic = false;
  // The elements of the key/value cache; throws as a Session does for a type that cannot be used.
  CacheType cache = CacheType::Model;
  // Add the tokenizer's beginning-of-text tokens to prompts given as text.
  bool add_special_tokens = true;
  // Ids of tokens that end a text, in addition to those of generation_config.json.
  std::vector<int32_t> more_eos_ids;
  // For a single prompt that continues the latest call's prompt and answer: the tokens at its beginning that are still
  // in the cache are not run again. The session is then made for a longer context than this call needs.
  bool reuse_cache = false;
  // Fills Completion::logprobs, with this many of the most likely tokens of each step (0: only the chosen one). Each
  // step copies its logits to the host. At most max_top_logprobs.
  std::optional<int32_t> top_logprobs;
  // Throws InvalidArgument together with reuse_cache, and for settings out of range; NotImplementedError for a model
  // that is split over ranks, or whose rope frequencies depend on a sequence's length.
  std::optional<Speculation> speculation;
  // Answers are found by a beam search; Completion::beams has all of them. Rules and penalties are applied to the
  // logarithms of probabilities, and the callback gets each answer as a whole. At least 2 beams. Throws InvalidArgument
  // together with a temperature, speculation, reuse_cache, prompt_cache, grammar or top_logprobs.
  std::optional<BeamSettings> beams;
  // The adapter of each prompt, a name of Model::adapters() or "" for none: one for all prompts, or one for each.
  // Empty: none. InvalidArgument for another number of names, and for a name that the model does not have.
  std::vector<std::string> adapters;
  // Not empty: a file for the keys and values of a single prompt. Those of the tokens that the prompt has in common
  // with the file's prompt are read from it; if it lacks the prompt's end (or does not exist), it is written with this
  // prompt's, as soon as they are computed. Only of generators that load() made. Throws CheckpointError for a file that
  // is damaged, of another model or no prompt cache, and leaves it as it is; InvalidArgument for several prompts and
  // together with reuse_cache or speculation; NotImplementedError as Session::cache_contents().
  std::string prompt_cache;
};
constexpr int32_t max_top_logprobs = 100;

// Natural logarithms of the probabilities that the model gives to tokens, computed from its logits before rules,
// penalties and the temperature (as transformers' output_logits, and logprobs of OpenAI's API).
struct TokenLogprobs {
  struct Entry {
    int32_t id;
    float logprob;
  };
  float logprob = 0;       // of the chosen token
  std::vector<Entry> top;  // the most likely first
};

enum class FinishReason {
  Eos,     // an end-of-sequence token
  Stop,    // a stop string, the end of the grammar, or the callback returned false
  Length,  // max_new_tokens, max_length or the context
  Error,   // an exception ended the call (see TextGenerator::interrupted)
};
// Returns "eos", "stop", "length" or "error".
std::string_view finish_reason_name(FinishReason reason) noexcept;

// An answer that a beam search has found.
struct ScoredAnswer {
  std::string text;
  std::vector<int32_t> token_ids;
  FinishReason finish_reason = FinishReason::Length;
  float score = 0;  // see BeamSettings
};

struct Completion {
  std::string text;  // special tokens left out, a stop string and what follows it cut off
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> token_ids;  // generated, an end-of-sequence token included
  FinishReason finish_reason = FinishReason::Length;
  std::vector<TokenLogprobs> logprobs;  // of each of token_ids; only with GenerateOptions::top_logprobs
  // Only with GenerateOptions::beams: the finished answers, at most as many as beams, the best first. The members above
  // are those of the first.
  std::vector<ScoredAnswer> beams;
};

struct GenerateTimings {
  double prefill_seconds = 0;      // from the first prompt token to the first new tokens on the host
  double decode_seconds = 0;       // all further steps
  double decode_host_seconds = 0;  // the part of it outside the steps: choosing tokens, decoding text, callbacks
  int64_t prompt_tokens = 0;       // of all prompts, without those that were in the cache
  int64_t decoded_tokens = 0;      // of all prompts, without the first new token of each
  int64_t decode_steps = 0;
  int64_t replayed_steps = 0;   // of these, replayed from a graph
  int64_t draft_tokens = 0;     // proposed by a draft
  int64_t accepted_tokens = 0;  // of these, taken

  // Tokens per second, all prompts together; 0 if there were none.
  double prefill_rate() const noexcept;
  double decode_rate() const noexcept;
  // decode_host_seconds / decode_seconds; 0 if there were no steps.
  double host_share() const noexcept;
};

struct GenerateResult {
  std::vector<Completion> completions;  // in the order of the prompts
  GenerateTimings timings;
  // The seed that was used: as GenerateOptions::seed it repeats the call.
  uint64_t seed = 0;
};

// Receives each new piece of text (never empty, whole UTF-8 characters) of a prompt as soon as it is final, on the
// generating thread. Returning false ends that prompt with FinishReason::Stop. With GenerateOptions::beams it is called
// once for each prompt, with the whole text, which may be empty, and its result has no effect. An exception that it
// throws leaves generate().
using TextCallback = std::function<bool(size_t prompt, std::string_view piece)>;

// Loads a model for Speculation::model. Throws as Model::load and Tokenizer::load do, and CheckpointError if a token
// differs from the tokenizer's.
std::shared_ptr<const Model> load_draft_model(const std::string& directory, const Tokenizer& tokenizer,
                                              const LoadOptions& options = {});

struct VocabularyTries;

class TextGenerator {
 public:
  // Loads model, tokenizer and generation_config.json from a Hugging Face directory, or model and tokenizer from a GGUF
  // file (its name ends in .gguf). Throws as Model::load does, and CheckpointError for the tokenizer, also for one with
  // tokens beyond the model's vocabulary.
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
  // Returns the seconds that load() took.
  double load_seconds() const noexcept { return load_seconds_; }
  // Returns the settings of generation_config.json, with the defaults above for the rest: greedy unless the file sets
  // do_sample. Settings of the file that would change the text but are not supported are in
  // generation_config().warnings.
  GenerateOptions default_options() const;

  // Generates for all prompts together; each has its own length and its own end. Blocks until all are done. Throws
  // InvalidArgument for no prompts, a prompt without tokens or with an id that the model's vocabulary does not have,
  // one that leaves no room for an answer in the context or max_length (with both numbers), an option out of range, or
  // text prompts without a tokenizer. Ranks that share a model make the same call; rank 0 and its callback decide when
  // a prompt ends, and only rank 0's result is complete. After an error in the middle (out of memory, a lost device)
  // the text up to then is in interrupted(). The same holds after a NumericalError: if the logits of one prompt contain
  // a NaN or an infinity (see Session::tokens()), the call fails for all prompts, and those that had already ended keep
  // their finish reason.
  GenerateResult generate(std::span<const std::string> prompts, const GenerateOptions& options,
                          const TextCallback& callback = {});
  // The same for prompts given as token ids.
  GenerateResult generate_ids(std::span<const std::vector<int32_t>> prompts, const GenerateOptions& options,
                              const TextCallback& callback = {});
  // Returns the output of the latest call up to its Error; null if it threw none, or had produced no token, and after a
  // beam search.
  const GenerateResult* interrupted() const noexcept { return interrupted_ ? &*interrupted_ : nullptr; }

 private:
  Session& session_for(int64_t sequences, int64_t context, const GenerateOptions& options);
  // Restores what the file has of the prompt to sequence 0, and returns the number of tokens; sets `complete` if the
  // file has the whole prompt.
  int64_t read_prompt_cache(const std::string& path, const std::vector<int32_t>& prompt, Session& session,
                            int32_t adapter, bool& complete);
  // Names the model, adapter, dtype and kind of cache that a prompt cache belongs to.
  std::string cache_identity(CacheType cache, int32_t adapter) const;
  // Returns the adapter of each prompt, as Session::set_adapters() takes them.
  std::vector<int32_t> chosen_adapters(const GenerateOptions& options, size_t prompts) const;
  std::shared_ptr<const TokenGrammar> token_grammar(std::shared_ptr<const Grammar> grammar);

  std::shared_ptr<const Model> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  GenerationConfig generation_config_;
  double load_seconds_ = 0;
  std::string directory_;  // of load(); empty: unknown
  std::string adapter_, quantize_;
  std::vector<NamedAdapter> adapters_;
  std::unique_ptr<Session> session_;  // of the latest call, reused if it is large enough
  std::vector<int32_t> cached_ids_;   // the tokens of sequence 0 in its cache
  int32_t cached_adapter_ = -1;       // with which they were run
  std::optional<GenerateResult> interrupted_;
  // Of the latest call with a grammar: later ones reuse what they found out about the vocabulary and the grammar.
  std::shared_ptr<const VocabularyTries> tries_;
  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const TokenGrammar> token_grammar_;
};

}  // namespace anyaccel::llm
