// Implements the loop of speculative decoding and its two kinds of drafts.
#include "llm/generate/speculation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "anyaccel/error.h"

namespace anyaccel::llm {

namespace {

void check(const Speculation& settings, const Model& model) {
  const auto refuse = [](const Model& refused, const char* name) {
    if (refused.shard().ranks > 1) {
      throw NotImplementedError(std::string("speculative decoding: ") + name +
                                " is split over ranks; use one rank, or no draft");
    }
    const RopeType type = refused.config().rope.type;
    if (type == RopeType::Dynamic || type == RopeType::Longrope) {
      throw NotImplementedError(std::string("speculative decoding: the positions of ") + name +
                                " depend on the length of the text, which drafts would change; use no draft");
    }
  };
  refuse(model, "the model");
  if (settings.model) refuse(*settings.model, "the draft model");
  if (settings.tokens < 1 || settings.tokens > max_draft_tokens) {
    throw InvalidArgument("speculative decoding: " + std::to_string(settings.tokens) + " draft tokens; expected 1 to " +
                          std::to_string(max_draft_tokens));
  }
  if (settings.ngrams < 0 || (settings.ngrams == 0) != (settings.model != nullptr)) {
    throw InvalidArgument("speculative decoding: expected a draft model, or a positive length of n-grams");
  }
}

}  // namespace

SpeculativeDecoding::SpeculativeDecoding(Session& session, const GenerateOptions& options, const TokenRules& rules)
    : session_(session),
      settings_(*options.speculation),
      sampling_(options.sampling),
      chooser_(options.sampling, rules, session.model().config().vocab_size),
      // Drafts may follow any distribution that is known, so rules and penalties are left to the model's tokens.
      draft_chooser_(options.sampling, {}, session.model().config().vocab_size) {
  check(settings_, session.model());
  if (settings_.model) {
    SessionOptions draft = session.options();
    draft.sequences = 1;
    draft.keep_logits = false;
    draft_session_ = std::make_unique<Session>(settings_.model, draft);
  }
}

std::vector<float> SpeculativeDecoding::run(Session& session, std::span<const int32_t> tokens, int64_t first,
                                            int64_t rows) {
  const std::vector<int32_t> sequence(tokens.size(), 0);
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first));
  std::vector<int32_t> wanted(static_cast<size_t>(rows));
  std::iota(wanted.begin(), wanted.end(), static_cast<int32_t>(static_cast<int64_t>(tokens.size()) - rows));
  return session.forward({tokens, sequence, positions}, wanted).to_vector<float>();
}

void SpeculativeDecoding::answer(const std::vector<int32_t>& prompt, uint64_t seed, int64_t length,
                                 const Receive& receive) {
  chooser_.start(prompt, seed);
  draft_chooser_.start(prompt, ~seed);
  draft_run_ = 0;
  std::vector<int32_t> tokens = prompt;
  std::vector<float> logits = run(session_, tokens, 0, 1);
  Drafts drafts;
  for (;;) {
    const size_t vocabulary = chooser_.vocabulary();
    bool accepted = true;
    for (size_t i = 0; accepted && i <= drafts.tokens.size(); ++i) {
      const std::span<const float> row = std::span(logits).subspan(i * vocabulary, vocabulary);
      std::optional<TokenChooser::Draft> offered;
      if (i < drafts.tokens.size()) {
        offered = {drafts.tokens[i], {}};
        if (!drafts.probabilities.empty()) offered->probabilities = drafts.probabilities[i];
      }
      const TokenChooser::Choice choice = chooser_.choose(row, offered);
      accepted = choice.accepted;
      accepted_ += accepted ? 1 : 0;
      tokens.push_back(choice.token);
      if (!receive(choice.token, row, static_cast<int64_t>(tokens.size()))) return;
    }
    // The newest token has yet to be run; the drafts follow it.
    const int64_t newest = static_cast<int64_t>(tokens.size()) - 1;
    drafts = draft(tokens, std::min<int64_t>(settings_.tokens, length - newest - 1));
    drafted_ += static_cast<int64_t>(drafts.tokens.size());
    ++steps_;
    std::vector<int32_t> step = {tokens.back()};
    step.insert(step.end(), drafts.tokens.begin(), drafts.tokens.end());
    logits = run(session_, step, newest, static_cast<int64_t>(step.size()));
  }
}

SpeculativeDecoding::Drafts SpeculativeDecoding::draft(const std::vector<int32_t>& tokens, int64_t most) {
  if (most <= 0) return {};
  return draft_session_ ? draft_by_model(tokens, most) : draft_by_ngrams(tokens, most);
}

SpeculativeDecoding::Drafts SpeculativeDecoding::draft_by_model(const std::vector<int32_t>& tokens, int64_t most) {
  const int64_t vocabulary = settings_.model->config().vocab_size;
  // A token that the draft model does not have ends its part.
  const bool unknown = std::any_of(tokens.begin() + static_cast<ptrdiff_t>(draft_run_), tokens.end(),
                                   [&](int32_t id) { return id >= vocabulary; });
  if (unknown) return {};
  Drafts drafts;
  std::vector<int32_t> next(tokens.begin() + static_cast<ptrdiff_t>(draft_run_), tokens.end());
  while (static_cast<int64_t>(drafts.tokens.size()) < most) {
    std::vector<float> scores = run(*draft_session_, next, static_cast<int64_t>(draft_run_), 1);
    draft_run_ += next.size();
    // Without a token for its own text the draft model has no drafts.
    if (std::any_of(scores.begin(), scores.end(), [](float x) { return !std::isfinite(x); })) break;
    scores.resize(std::min(scores.size(), chooser_.vocabulary()));
    std::vector<double> probabilities = token_probabilities(std::move(scores), sampling_);
    const int32_t token = draft_chooser_.draw(probabilities);
    next = {token};
    drafts.tokens.push_back(token);
    drafts.probabilities.push_back(std::move(probabilities));
  }
  // The tokens that follow the text so far are run again, unless they turn out to be the same.
  draft_run_ = tokens.size();
  return drafts;
}

// Looks for the latest place where the newest tokens occur before, the longest run first, and takes what follows there.
SpeculativeDecoding::Drafts SpeculativeDecoding::draft_by_ngrams(const std::vector<int32_t>& tokens,
                                                                 int64_t most) const {
  const size_t all = tokens.size(), most_equal = std::min(static_cast<size_t>(settings_.ngrams), all - 1);
  size_t longest = 0, from = 0;
  // From the latest place on, so that of equal runs that is taken.
  for (size_t end = all - 1; end > longest && longest < most_equal; --end) {
    size_t equal = 0;
    while (equal < most_equal && equal < end && tokens[end - 1 - equal] == tokens[all - 1 - equal]) ++equal;
    if (equal > longest) longest = equal, from = end;
  }
  if (longest > 0) {
    const auto next = tokens.begin() + static_cast<ptrdiff_t>(from);
    return {{next, next + std::min<ptrdiff_t>(static_cast<ptrdiff_t>(most), tokens.end() - next)}, {}};
  }
  return {};
}

}  // namespace anyaccel::llm
