// Implements the generation loop: prompts in, text out as soon as it is final.
#include "anyaccel/llm/text_generation.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "anyaccel/accelerator.h"
#include "anyaccel/comm/process_group.h"
#include "anyaccel/error.h"
#include "anyaccel/file_output.h"
#include "anyaccel/generator.h"
#include "anyaccel/philox.h"
#include "base/text/json.h"
#include "llm/checkpoint/gguf.h"
#include "llm/generate/beam_generation.h"
#include "llm/generate/log_probabilities.h"
#include "llm/generate/prompt_cache.h"
#include "llm/generate/speculation.h"
#include "llm/generate/stop_filter.h"
#include "llm/generate/stopwatch.h"
#include "llm/grammar/token_grammar.h"

namespace anyaccel::llm {

namespace {

// Draws a seed for a call that was given none. A single number, so that GenerateResult::seed says all there is to repeat
// the call, and of 53 bits, which also those readers of JSON keep that know doubles only.
uint64_t draw_seed(Generator& generator) {
  const RngState state = generator.reserve(1);
  const std::array<uint32_t, 4> words = philox_words(state.seed, state.offset);
  return (uint64_t{words[1]} << 32 | words[0]) >> 11;
}

// The output of one prompt so far.
class Answer {
 public:
  Answer(Completion& completion, size_t prompt, const Tokenizer* tokenizer, const GenerateOptions& options,
         const TokenGrammar* grammar, const TextCallback& callback)
      : completion_(completion),
        prompt_(prompt),
        options_(options),
        callback_(callback),
        filter_(options.stop),
        grammar_(grammar) {
    if (tokenizer != nullptr) decoder_.emplace(*tokenizer);
    if (grammar_ != nullptr) reading_ = grammar_->start();
  }

  // Adds a new token and returns whether the prompt continues. `room`: the context, which is at most max_length, has room for another
  // token.
  bool accept(int32_t id, bool is_eos, bool room) {
    completion_.token_ids.push_back(id);
    if (is_eos && !options_.ignore_eos) return end(FinishReason::Eos);
    if (decoder_ && !emit(filter_.push(decoder_->push(id)))) return false;
    if (filter_.stopped()) {
      completion_.finish_reason = FinishReason::Stop;
      return false;
    }
    if (grammar_ != nullptr) {
      grammar_->read(reading_, id);
      if (grammar_->is_complete(reading_)) return end(FinishReason::Stop);
    }
    const bool full = static_cast<int64_t>(completion_.token_ids.size()) >= options_.max_new_tokens;
    return full || !room ? end(FinishReason::Length) : true;
  }

  // Call when generation failed: returns the text that is known.
  void interrupt() { end(FinishReason::Error); }

 private:
  // Returns the text that was held back.
  bool end(FinishReason reason) {
    completion_.finish_reason = reason;
    if (!decoder_) return false;
    std::string rest = filter_.push(decoder_->finish());
    if (filter_.stopped()) {
      completion_.finish_reason = FinishReason::Stop;
    } else {
      rest += filter_.finish();
    }
    emit(rest);
    return false;
  }

  bool emit(const std::string& piece) {
    if (piece.empty()) return true;
    completion_.text += piece;
    if (!callback_ || callback_(prompt_, piece)) return true;
    completion_.finish_reason = FinishReason::Stop;
    return false;
  }

  Completion& completion_;
  size_t prompt_;
  const GenerateOptions& options_;
  const TextCallback& callback_;
  std::optional<StreamDecoder> decoder_;
  StopFilter filter_;
  const TokenGrammar* grammar_;  // null: none
  TokenGrammar::Reading reading_;
};

// Returns the maximum number of tokens of a sequence if the caller does not give one.
int64_t trained_context(const ModelConfig& config) {
  const auto trained = static_cast<double>(config.max_position_embeddings);
  const double stretched = config.rope.type == RopeType::Dynamic ? trained * config.rope.factor : trained;
  return static_cast<int64_t>(std::min(stretched, static_cast<double>(std::numeric_limits<int32_t>::max())));
}

int64_t choose_context(std::span<const std::vector<int32_t>> prompts, const GenerateOptions& options,
                       const ModelConfig& config) {
  int64_t limit = options.context > 0 ? options.context : trained_context(config);
  if (options.max_length > 0) limit = std::min(limit, options.max_length);
  int64_t longest = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto length = static_cast<int64_t>(prompts[i].size());
    if (length == 0) {
      throw InvalidArgument("generate: prompt " + std::to_string(i) +
                            " has no tokens, and the model needs one to begin with");
    }
    if (length >= limit) {
      const std::string room =
          limit == options.max_length
              ? "the max_length of " + std::to_string(limit) +
                    " tokens of prompt and answer together (generation_config.json, or the option); shorten the prompt "
                    "or give a number of new tokens instead (--max-new-tokens)"
              : "the context of " + std::to_string(limit) + " tokens; shorten the prompt or choose a longer context";
      throw InvalidArgument("generate: prompt " + std::to_string(i) + " has " + std::to_string(length) +
                            " tokens, which leaves no room for an answer in " + room);
    }
    longest = std::max(longest, length);
  }
  return std::min(limit - longest, options.max_new_tokens) + longest;
}

// Returns a context in which a conversation can grow: the next power of two, but no more than is allowed.
int64_t roomy_context(int64_t needed, const GenerateOptions& options, const ModelConfig& config) {
  const int64_t limit = options.context > 0 ? options.context : trained_context(config);
  int64_t roomy = 2048;
  while (roomy < needed) roomy *= 2;
  return std::max(needed, std::min(roomy, limit));
}

std::string describe_token(const Tokenizer* tokenizer, int32_t id) {
  const auto token = tokenizer == nullptr ? std::nullopt : tokenizer->id_to_token(id);
  return "the id " + std::to_string(id) + (token ? " (" + quote_text(*token) + ")" : "");
}

// Every token needs a row of the embedding. (There are usually more rows than tokens, because sizes are rounded up.)
// Unneeded tokens, such as one for padding, are often beyond the end: then only texts that contain them are rejected.
void check_vocabulary(const Tokenizer& tokenizer, int64_t vocab_size, const std::string& directory) {
  const std::vector<int32_t>& spare = tokenizer.spare_ids();
  int64_t missing = 0;
  int32_t first = 0;
  for (int64_t id = tokenizer.vocab_size() - 1; id >= vocab_size; --id) {
    const auto token = static_cast<int32_t>(id);
    if (!tokenizer.id_to_token(token) || std::find(spare.begin(), spare.end(), token) != spare.end()) continue;
    ++missing;
    first = token;
  }
  if (missing == 0) return;
  throw CheckpointError(directory + ": the tokenizer has " + std::to_string(missing) +
                        " tokens beyond the model's vocabulary of " + std::to_string(vocab_size) +
                        " (vocab_size of config.json), the first is " + describe_token(&tokenizer, first) +
                        "; expected the tokenizer of this model, or a model whose embedding was enlarged for them");
}

void check_ids(std::span<const std::vector<int32_t>> prompts, int64_t vocab_size, const Tokenizer* tokenizer) {
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (const int32_t id : prompts[i]) {
      if (id >= 0 && id < vocab_size) continue;
      throw InvalidArgument("generate: prompt " + std::to_string(i) + " has " + describe_token(tokenizer, id) +
                            "; the model's vocabulary has the ids 0 to " + std::to_string(vocab_size - 1));
    }
  }
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::Eos: return "eos";
    case FinishReason::Stop: return "stop";
    case FinishReason::Length: return "length";
    case FinishReason::Error: return "error";
  }
  return "unknown";
}

double GenerateTimings::prefill_rate() const noexcept {
  return prefill_seconds > 0 ? static_cast<double>(prompt_tokens) / prefill_seconds : 0.0;
}

double GenerateTimings::decode_rate() const noexcept {
  return decode_seconds > 0 ? static_cast<double>(decoded_tokens) / decode_seconds : 0.0;
}

double GenerateTimings::host_share() const noexcept {
  return decode_seconds > 0 ? decode_host_seconds / decode_seconds : 0.0;
}

TextGenerator::TextGenerator(std::shared_ptr<const Model> model, std::shared_ptr<const Tokenizer> tokenizer,
                             GenerationConfig generation_config)
    : model_(std::move(model)), tokenizer_(std::move(tokenizer)), generation_config_(std::move(generation_config)) {}

TextGenerator::~TextGenerator() = default;
TextGenerator::TextGenerator(TextGenerator&&) noexcept = default;
TextGenerator& TextGenerator::operator=(TextGenerator&&) noexcept = default;

TextGenerator TextGenerator::load(const std::string& directory, const LoadOptions& options) {
  Stopwatch watch;
  const auto held = is_gguf(directory) ? open_gguf(directory) : nullptr;  // the calls below share it
  const ModelConfig config = load_model_config(directory);  // has the clearest error for a directory without a model
  std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::load(directory);
  check_vocabulary(*tokenizer, config.vocab_size, directory);
  GenerationConfig generation_config = load_generation_config(directory);
  TextGenerator generator(Model::load(directory, options), std::move(tokenizer), std::move(generation_config));
  generator.load_seconds_ = watch.lap();
  generator.directory_ = directory;
  generator.adapter_ = options.adapter;
  generator.quantize_ = options.quantize;
  generator.adapters_ = options.adapters;
  return generator;
}

GenerateOptions TextGenerator::default_options() const {
  GenerateOptions options;
  const GenerationConfig& config = generation_config_;
  if (config.do_sample) {
    options.sampling.temperature = config.temperature;
    options.sampling.top_k = config.top_k;
    options.sampling.top_p = config.top_p;
    options.sampling.min_p = config.min_p;
    options.sampling.typical_p = config.typical_p;
  }
  options.sampling.repetition_penalty = config.repetition_penalty;
  options.sampling.presence_penalty = config.presence_penalty;
  options.sampling.frequency_penalty = config.frequency_penalty;
  options.rules = config.rules;
  options.stop = config.stop_strings;
  if (config.max_new_tokens) {
    options.max_new_tokens = *config.max_new_tokens;
  } else if (config.max_length) {
    options.max_length = *config.max_length;
    options.max_new_tokens = options.max_length;
  }
  return options;
}

Session& TextGenerator::session_for(int64_t sequences, int64_t context, const GenerateOptions& wanted) {
  const bool keep_logits = wanted.top_logprobs || wanted.beams;
  if (!session_ || session_->options().sequences < sequences || session_->options().context < context ||
      session_->options().deterministic != wanted.deterministic || session_->options().cache != wanted.cache ||
      session_->options().keep_logits < keep_logits) {
    session_.reset();  // free its memory first
    cached_ids_.clear();
    SessionOptions options;
    options.sequences = sequences;
    options.context = context;
    options.deterministic = wanted.deterministic;
    options.cache = wanted.cache;
    options.keep_logits = keep_logits;
    session_ = std::make_unique<Session>(model_, options);
  }
  return *session_;
}

std::vector<int32_t> TextGenerator::chosen_adapters(const GenerateOptions& options, size_t prompts) const {
  const std::vector<std::string>& names = options.adapters;
  if (names.size() > 1 && names.size() != prompts) {
    throw InvalidArgument("generate: " + std::to_string(names.size()) + " adapters for " + std::to_string(prompts) +
                          " prompts; expected one for all, or one for each");
  }
  std::vector<int32_t> chosen(prompts, -1);
  for (size_t i = 0; !names.empty() && i < prompts; ++i) {
    chosen[i] = model_->find_adapter(names.size() == 1 ? names[0] : names[i]);
  }
  return chosen;
}

std::string TextGenerator::cache_identity(CacheType cache, int32_t adapter) const {
  if (directory_.empty()) throw InvalidArgument("generate: a prompt cache needs a generator that load() has made");
  const std::string settings = quantize_ + " " + std::string(dtype_name(model_->dtype())) + " " +
                               std::string(dtype_name(model_->product_dtype())) +
                               (cache == CacheType::Int8  ? " int8"
                                : cache == CacheType::Fp8 ? " fp8"
                                                          : " as the model");
  const std::string identity = model_identity(directory_, adapter_, settings);
  return adapter < 0 ? identity : model_identity(adapters_[static_cast<size_t>(adapter)].directory, "", identity);
}

int64_t TextGenerator::read_prompt_cache(const std::string& path, const std::vector<int32_t>& prompt, Session& session,
                                         int32_t adapter, bool& complete) {
  const uint64_t token_bytes = session.token_cache_bytes();
  const std::optional<PromptCache> cache =
      llm::read_prompt_cache(path, cache_identity(session.options().cache, adapter), token_bytes);
  if (!cache) {
    const std::string problem = output_file_problem(path);
    if (!problem.empty()) throw CheckpointError(path + ": the prompt cache cannot be written: " + problem);
    return 0;
  }
  const auto differs = std::mismatch(cache->tokens.begin(), cache->tokens.end(), prompt.begin(), prompt.end()).second;
  complete = differs == prompt.end();
  // The last token is run in any case, because its logits are needed.
  const int64_t used = std::min<int64_t>(differs - prompt.begin(), static_cast<int64_t>(prompt.size()) - 1);
  if (used > 0) session.restore_cache(0, used, cache->contents, static_cast<int64_t>(cache->tokens.size()));
  return used;
}

std::shared_ptr<const Model> load_draft_model(const std::string& directory, const Tokenizer& tokenizer,
                                              const LoadOptions& options) {
  const auto held = is_gguf(directory) ? open_gguf(directory) : nullptr;
  const int64_t size = load_model_config(directory).vocab_size;
  const std::unique_ptr<Tokenizer> own = Tokenizer::load(directory);
  for (int64_t i = 0; i < std::min({size, own->vocab_size(), tokenizer.vocab_size()}); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (own->id_to_token(id) == tokenizer.id_to_token(id)) continue;
    throw CheckpointError(directory + ": the draft model's tokens differ from the model's: there " +
                          describe_token(own.get(), id) + ", here " + describe_token(&tokenizer, id) +
                          "; expected a model with the same tokenizer");
  }
  return Model::load(directory, options);
}

std::shared_ptr<const TokenGrammar> TextGenerator::token_grammar(std::shared_ptr<const Grammar> grammar) {
  if (!tokenizer_) throw InvalidArgument("generate: a grammar needs a tokenizer, and this generator has none");
  if (!tries_) tries_ = std::make_shared<VocabularyTries>(*tokenizer_, model_->config().vocab_size);
  if (grammar != grammar_) {
    token_grammar_ = std::make_shared<TokenGrammar>(grammar, tries_);
    grammar_ = std::move(grammar);
  }
  return token_grammar_;
}

GenerateResult TextGenerator::generate(std::span<const std::string> prompts, const GenerateOptions& options,
                                       const TextCallback& callback) {
  if (!tokenizer_) throw InvalidArgument("generate: this generator has no tokenizer; use generate_ids");
  std::vector<std::vector<int32_t>> ids;
  ids.reserve(prompts.size());
  for (const std::string& prompt : prompts) ids.push_back(tokenizer_->encode(prompt, options.add_special_tokens));
  return generate_ids(ids, options, callback);
}

GenerateResult TextGenerator::generate_ids(std::span<const std::vector<int32_t>> prompts,
                                           const GenerateOptions& options, const TextCallback& callback) {
  if (prompts.empty()) throw InvalidArgument("generate: no prompts");
  if (options.max_new_tokens < 1) {
    throw InvalidArgument("generate: max_new_tokens is " + std::to_string(options.max_new_tokens) +
                          "; expected at least 1");
  }
  if (options.context < 0) {
    throw InvalidArgument("generate: context is " + std::to_string(options.context) +
                          "; expected 0 (chosen for you) or a positive number");
  }
  if (options.max_length < 0) {
    throw InvalidArgument("generate: max_length is " + std::to_string(options.max_length) +
                          "; expected 0 (no limit) or a positive number");
  }
  if (options.top_logprobs && (*options.top_logprobs < 0 || *options.top_logprobs > max_top_logprobs)) {
    throw InvalidArgument("generate: top_logprobs is " + std::to_string(*options.top_logprobs) +
                          "; expected 0 (the chosen token only) to " + std::to_string(max_top_logprobs));
  }
  if (options.speculation && options.reuse_cache) {
    throw InvalidArgument("generate: speculation and reuse_cache cannot go together; expected one of them");
  }
  if (!options.prompt_cache.empty() && (prompts.size() > 1 || options.reuse_cache || options.speculation)) {
    throw InvalidArgument(
        "generate: a prompt cache is for one prompt, without speculation and without reuse_cache; found " +
        std::string(prompts.size() > 1    ? "several prompts"
                    : options.speculation ? "speculation"
                                          : "reuse_cache"));
  }
  if (options.beams) check_beams(options);
  check_ids(prompts, model_->config().vocab_size, tokenizer_.get());
  const std::vector<int32_t> adapters = chosen_adapters(options, prompts.size());
  interrupted_.reset();
  const int64_t context = choose_context(prompts, options, model_->config());
  Session& session = session_for(
      options.speculation ? 1 : static_cast<int64_t>(prompts.size()) * (options.beams ? options.beams->beams : 1),
      options.reuse_cache ? roomy_context(context, options, model_->config()) : context, options);
  std::vector<int64_t> cached;
  session.set_adapters(std::span(adapters).first(options.speculation ? 1 : adapters.size()));
  if (adapters[0] != cached_adapter_) cached_ids_.clear();
  cached_adapter_ = adapters[0];
  if (options.reuse_cache && prompts.size() == 1) {
    const auto differs =
        std::mismatch(cached_ids_.begin(), cached_ids_.end(), prompts[0].begin(), prompts[0].end()).first;
    cached.push_back(std::min(differs - cached_ids_.begin(), static_cast<ptrdiff_t>(prompts[0].size()) - 1));
  }
  cached_ids_.clear();  // until this call has succeeded
  bool cache_complete = options.prompt_cache.empty();
  if (!cache_complete)
    cached = {read_prompt_cache(options.prompt_cache, prompts[0], session, adapters[0], cache_complete)};

  GenerateResult result;
  result.seed =
      options.seed ? *options.seed : draw_seed(model_->accelerator().default_generator(model_->device().index));
  result.completions.resize(prompts.size());
  GenerateTimings& timings = result.timings;
  const std::shared_ptr<const TokenGrammar> grammar = options.grammar ? token_grammar(options.grammar) : nullptr;
  std::vector<Answer> answers;
  answers.reserve(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    result.completions[i].prompt_ids = prompts[i];
    timings.prompt_tokens += static_cast<int64_t>(prompts[i].size()) - (cached.empty() ? 0 : cached[i]);
    answers.emplace_back(result.completions[i], i, tokenizer_.get(), options, grammar.get(), callback);
  }

  std::vector<int32_t> eos = generation_config_.eos_token_ids;
  eos.insert(eos.end(), options.more_eos_ids.begin(), options.more_eos_ids.end());
  const uint64_t replayed_before = session.replayed_steps();
  Stopwatch watch;
  TokenRules rules = options.rules;
  rules.eos_token_ids = options.ignore_eos ? std::vector<int32_t>() : eos;
  rules.max_new_tokens = options.max_new_tokens;
  rules.max_length = options.max_length;
  rules.grammar = grammar;
  const auto add_logprobs = [&](size_t prompt, std::span<const float> logits, int32_t token) {
    result.completions[prompt].logprobs.push_back(token_logprobs(logits, token, *options.top_logprobs));
  };
  const auto is_eos = [&](int32_t token) { return std::find(eos.begin(), eos.end(), token) != eos.end(); };
  if (options.beams) {
    try {
      generate_with_beams(session, options, rules, context, tokenizer_.get(), result);
    } catch (const Error&) {
      session_.reset();  // its state is unknown now
      throw;
    }
    for (size_t i = 0; callback && i < prompts.size(); ++i) callback(i, result.completions[i].text);
    return result;
  }
  if (options.speculation) {
    SpeculativeDecoding speculative(session, options, rules);
    // With `deterministic` all prompts have the same seed, so that an answer does not depend on its place.
    const auto seed_of = [&](size_t prompt) {
      const uint64_t row = options.deterministic ? 0 : prompt;
      return result.seed + row * 0x9E3779B97F4A7C15U;  // of the golden ratio: seeds of neighbours have little in common
    };
    for (size_t i = 0; i < prompts.size(); ++i) {
      bool first = true;
      session.set_adapters({&adapters[i], 1});
      const auto receive = [&](int32_t token, std::span<const float> logits, int64_t length) {
        (first ? timings.prefill_seconds : timings.decode_seconds) += watch.lap();
        timings.decoded_tokens += first ? 0 : 1;
        first = false;
        if (options.top_logprobs) add_logprobs(i, logits, token);
        const bool goes_on = answers[i].accept(token, is_eos(token), length < context);
        timings.decode_host_seconds += watch.lap();
        return goes_on;
      };
      try {
        const auto length = static_cast<int64_t>(prompts[i].size());
        speculative.answer(prompts[i], seed_of(i), length + std::min(options.max_new_tokens, context - length),
                           receive);
      } catch (const Error&) {
        if (!first) {
          answers[i].interrupt();
          interrupted_ = std::move(result);
        }
        session_.reset();  // its state is unknown now
        throw;
      }
    }
    timings.decode_seconds += timings.decode_host_seconds;
    timings.decode_steps = speculative.steps();
    timings.draft_tokens = speculative.drafted();
    timings.accepted_tokens = speculative.accepted();
    return result;
  }
  session.start(prompts, options.sampling, result.seed, /*offset=*/0, rules, cached);
  std::span<const int32_t> tokens = session.tokens();
  timings.prefill_seconds = watch.lap();
  if (!cache_complete) {
    write_prompt_cache(options.prompt_cache,
                       {prompts[0], session.cache_contents(0, static_cast<int64_t>(prompts[0].size()))},
                       cache_identity(options.cache, adapters[0]));
    watch.lap();
  }
  for (;;) {
    // This is not std::vector<bool> because the session takes a span.
    const auto keep = std::make_unique<bool[]>(tokens.size());
    if (options.top_logprobs && model_->shard().rank == 0) {
      const std::vector<float> logits = session.step_logits().to_vector<float>();
      const size_t vocabulary = logits.size() / tokens.size();
      for (size_t i = 0; i < tokens.size(); ++i) {
        add_logprobs(static_cast<size_t>(session.active()[i]), std::span(logits).subspan(i * vocabulary, vocabulary),
                     tokens[i]);
      }
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto prompt = static_cast<size_t>(session.active()[i]);
      keep[i] = answers[prompt].accept(tokens[i], is_eos(tokens[i]), session.length(i) < context);
    }
    if (comm::ProcessGroup* group = model_->group().get()) {
      const Shape shape = {static_cast<int64_t>(tokens.size())};
      group->broadcast(Tensor::from_blob(keep.get(), shape, DType::Bool, nullptr), 0);
    }
    if (std::find(keep.get(), keep.get() + tokens.size(), true) == keep.get() + tokens.size()) break;
    session.retain({keep.get(), tokens.size()});
    const double host = watch.lap();
    try {
      session.step();
      tokens = session.tokens();
    } catch (const Error&) {
      for (const int32_t prompt : session.active()) answers[static_cast<size_t>(prompt)].interrupt();
      interrupted_ = std::move(result);
      session_.reset();  // its state is unknown now
      throw;
    }
    const double step = watch.lap();
    timings.decode_seconds += host + step;
    timings.decode_host_seconds += host;
    timings.decoded_tokens += static_cast<int64_t>(tokens.size());
    ++timings.decode_steps;
  }
  timings.replayed_steps = static_cast<int64_t>(session.replayed_steps() - replayed_before);
  if (prompts.size() == 1) {
    // The last token was drawn, but not run.
    const std::vector<int32_t>& answer = result.completions[0].token_ids;
    cached_ids_ = prompts[0];
    cached_ids_.insert(cached_ids_.end(), answer.begin(), answer.end() - 1);
  }
  return result;
}

}  // namespace anyaccel::llm
