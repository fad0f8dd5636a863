// Implements the loop of beam search.
#include "llm/generate/beam_generation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "anyaccel/comm/process_group.h"
#include "anyaccel/error.h"
#include "llm/generate/beam_search.h"
#include "llm/generate/stop_filter.h"
#include "llm/generate/stopwatch.h"
#include "llm/generate/token_chooser.h"

namespace anyaccel::llm {

namespace {

// Returns the text of an answer, without an end-of-sequence token; sets `stopped` if a stop string ended it.
std::string text_of(std::span<const int32_t> tokens, const Tokenizer* tokenizer, const std::vector<std::string>& stop,
                    bool is_complete, bool& stopped) {
  stopped = false;
  if (tokenizer == nullptr) return {};
  StreamDecoder decoder(*tokenizer);
  StopFilter filter(stop);
  std::string text;
  for (const int32_t token : tokens) {
    text += filter.push(decoder.push(token));
    if (filter.stopped()) break;
  }
  if (is_complete && !filter.stopped()) {
    text += filter.push(decoder.finish());
    if (!filter.stopped()) text += filter.finish();
  }
  stopped = filter.stopped();
  return text;
}

// A prompt, its search, and the rules of each running answer.
class PromptSearch {
 public:
  PromptSearch(const std::vector<int32_t>& prompt, const GenerateOptions& options, const TokenRules& rules,
               int64_t context, int64_t vocabulary, const Tokenizer* tokenizer)
      : options_(options), eos_(rules.eos_token_ids), tokenizer_(tokenizer) {
    const auto length = static_cast<int64_t>(prompt.size());
    const int64_t most = std::min(options.max_new_tokens, context - length);
    search_.emplace(*options.beams, eos_.size(), most,
                    [this](std::span<const int32_t> tokens) { return ends(tokens); });
    const Sampling& sampling = options.sampling;
    if (rules.empty() && sampling.repetition_penalty == 1.0f && sampling.presence_penalty == 0.0f &&
        sampling.frequency_penalty == 0.0f) {
      return;
    }
    TokenChooser chooser(sampling, rules, vocabulary);
    chooser.start(prompt, 0);
    choosers_.assign(search_->running().size(), chooser);
  }
  PromptSearch(const PromptSearch&) = delete;
  PromptSearch& operator=(const PromptSearch&) = delete;

  bool goes_on() const { return goes_on_; }
  size_t candidates() const { return search_->candidates(); }
  const BeamSearch& search() const { return *search_; }

  // `rows` are the logits of each running answer, or one row for all of them; overwritten.
  std::vector<BeamCandidate> best(std::span<float> rows, size_t vocabulary) {
    BestCandidates best(search_->candidates());
    const size_t count = rows.size() / vocabulary;
    for (size_t row = 0; row < count; ++row) to_log_probabilities(rows.subspan(row * vocabulary, vocabulary));
    std::vector<float> adjusted;
    for (size_t i = 0; i < search_->running().size(); ++i) {
      std::span<const float> row = rows.subspan(count == 1 ? 0 : i * vocabulary, vocabulary);
      if (!choosers_.empty()) {
        adjusted.assign(row.begin(), row.end());
        choosers_[i].adjust(adjusted);
        row = adjusted;
      }
      best.add(static_cast<int32_t>(i), row, search_->running()[i].score);
    }
    return std::move(best).sorted();
  }

  void advance(std::span<const BeamCandidate> candidates) {
    goes_on_ = search_->advance(candidates);
    if (choosers_.empty()) return;
    std::vector<TokenChooser> next;
    next.reserve(choosers_.size());
    for (size_t i = 0; i < search_->running().size(); ++i) {
      next.push_back(choosers_[static_cast<size_t>(search_->parents()[i])]);
      next.back().push(search_->running()[i].tokens.back());
    }
    choosers_ = std::move(next);
  }

  std::vector<ScoredAnswer> answers() const {
    std::vector<ScoredAnswer> answers;
    for (BeamSearch::Sequence& sequence : search_->finished()) {
      ScoredAnswer& answer = answers.emplace_back();
      answer.score = sequence.score;
      answer.token_ids = std::move(sequence.tokens);
      const bool at_eos = is_eos(answer.token_ids.back());
      bool stopped = false;
      answer.text = text_of(std::span(answer.token_ids).first(answer.token_ids.size() - (at_eos ? 1 : 0)), tokenizer_,
                            options_.stop, /*is_complete=*/true, stopped);
      answer.finish_reason = stopped ? FinishReason::Stop : at_eos ? FinishReason::Eos : FinishReason::Length;
    }
    return answers;
  }

 private:
  bool is_eos(int32_t token) const { return std::ranges::find(eos_, token) != eos_.end(); }

  bool ends(std::span<const int32_t> tokens) const {
    if (is_eos(tokens.back())) return true;
    if (options_.stop.empty()) return false;
    bool stopped = false;
    text_of(tokens, tokenizer_, options_.stop, /*is_complete=*/false, stopped);
    return stopped;
  }

  const GenerateOptions& options_;
  std::vector<int32_t> eos_;
  const Tokenizer* tokenizer_;
  std::optional<BeamSearch> search_;
  std::vector<TokenChooser> choosers_;  // of the running answers; empty without rules and penalties
  bool goes_on_ = true;
};

// Sends the candidates of rank 0 to the other ranks, whose own may differ by rounding.
void share(comm::ProcessGroup& group, std::vector<BeamCandidate>& candidates, size_t count) {
  candidates.resize(count);
  std::vector<int32_t> numbers(3 * count);
  for (size_t i = 0; i < count; ++i) {
    numbers[3 * i] = candidates[i].beam;
    numbers[3 * i + 1] = candidates[i].token;
    numbers[3 * i + 2] = std::bit_cast<int32_t>(candidates[i].score);
  }
  group.broadcast(Tensor::from_blob(numbers.data(), {static_cast<int64_t>(numbers.size())}, DType::I32, nullptr), 0);
  for (size_t i = 0; i < count; ++i) {
    candidates[i] = {numbers[3 * i], numbers[3 * i + 1], std::bit_cast<float>(numbers[3 * i + 2])};
  }
}

}  // namespace

void check_beams(const GenerateOptions& options) {
  const BeamSettings& settings = *options.beams;
  if (settings.beams < 2 || settings.beams > max_beams) {
    throw InvalidArgument("beam search: " + std::to_string(settings.beams) + " beams; expected 2 to " +
                          std::to_string(max_beams));
  }
  if (!(std::abs(settings.length_penalty) <= 100.0f)) {
    throw InvalidArgument("beam search: the length penalty is " + std::to_string(settings.length_penalty) +
                          "; expected -100 to 100");
  }
  const char* other = options.sampling.temperature > 0.0f ? "a temperature, at which tokens are drawn,"
                      : options.speculation               ? "speculation"
                      : options.reuse_cache               ? "reuse_cache"
                      : !options.prompt_cache.empty()     ? "prompt_cache"
                      : options.grammar                   ? "a grammar"
                      : options.top_logprobs              ? "top_logprobs"
                                                          : nullptr;
  if (other == nullptr) return;
  throw InvalidArgument(std::string("beam search: the options have ") + other +
                        " too, which it cannot go with; expected one of them");
}

void generate_with_beams(Session& session, const GenerateOptions& options, const TokenRules& rules, int64_t context,
                         const Tokenizer* tokenizer, GenerateResult& result) {
  const Model& model = session.model();
  const auto vocabulary = static_cast<size_t>(model.config().vocab_size);
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::unique_ptr<PromptSearch>> searches;
  for (const Completion& completion : result.completions) {
    prompts.push_back(completion.prompt_ids);
    searches.push_back(std::make_unique<PromptSearch>(completion.prompt_ids, options, rules, context,
                                                      model.config().vocab_size, tokenizer));
  }
  GenerateTimings& timings = result.timings;
  const uint64_t replayed_before = session.replayed_steps();
  Stopwatch watch;
  session.start(prompts, Sampling(), 0);
  session.tokens();
  timings.prefill_seconds = watch.lap();
  std::vector<size_t> open(prompts.size());  // the prompts of the session's rows, in order
  for (size_t i = 0; i < open.size(); ++i) open[i] = i;
  size_t rows_each = 1;
  for (;;) {
    std::vector<float> logits;
    if (model.shard().rank == 0) logits = session.step_logits().to_vector<float>();
    std::vector<size_t> still_open;
    std::vector<int32_t> parents, tokens;
    for (size_t i = 0; i < open.size(); ++i) {
      PromptSearch& search = *searches[open[i]];
      const size_t width = rows_each * vocabulary;
      std::vector<BeamCandidate> best;
      if (!logits.empty()) best = search.best(std::span(logits).subspan(i * width, width), vocabulary);
      if (model.group()) {
        const size_t all = static_cast<size_t>(options.beams->beams) * vocabulary;
        share(*model.group(), best, std::min(search.candidates(), all));
      }
      search.advance(best);
      if (!search.goes_on()) continue;
      still_open.push_back(open[i]);
      const auto& running = search.search().running();
      for (size_t beam = 0; beam < running.size(); ++beam) {
        const auto parent = rows_each == 1 ? 0 : static_cast<size_t>(search.search().parents()[beam]);
        parents.push_back(static_cast<int32_t>(i * rows_each + parent));
        tokens.push_back(running[beam].tokens.back());
      }
    }
    open = std::move(still_open);
    if (open.empty()) break;
    session.continue_as(parents, tokens);
    const double host = watch.lap();
    session.step();
    session.tokens();
    timings.decode_seconds += host + watch.lap();
    timings.decode_host_seconds += host;
    timings.decoded_tokens += static_cast<int64_t>(open.size());
    ++timings.decode_steps;
    rows_each = static_cast<size_t>(options.beams->beams);
  }
  timings.replayed_steps = static_cast<int64_t>(session.replayed_steps() - replayed_before);
  for (size_t i = 0; i < searches.size(); ++i) {
    Completion& completion = result.completions[i];
    completion.beams = searches[i]->answers();
    if (completion.beams.empty()) {
      throw NumericalError("beam search: the rules about tokens leave no answer to prompt " + std::to_string(i));
    }
    completion.text = completion.beams[0].text;
    completion.token_ids = completion.beams[0].token_ids;
    completion.finish_reason = completion.beams[0].finish_reason;
  }
}

}  // namespace anyaccel::llm
