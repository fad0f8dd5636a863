// Implements a session's decode loop: the prompts first, then one new token for each active sequence in every step.
#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "anyaccel/comm/process_group.h"
#include "anyaccel/error.h"
#include "base/text/number_text.h"
#include "llm/generate/session_impl.h"

namespace anyaccel::llm {
namespace {

void check_sampling(const Sampling& sampling) {
  const auto fail = [](const char* name, const std::string& found, const char* expected) {
    throw InvalidArgument(std::string("sampling: ") + name + " is " + found + "; expected " + expected);
  };
  if (!(sampling.temperature >= 0.0f) || !std::isfinite(sampling.temperature)) {
    fail("temperature", number_text(sampling.temperature), "a number of at least 0");
  }
  if (sampling.top_k < 0) fail("top_k", std::to_string(sampling.top_k), "0 (all tokens) or a positive number");
  if (!(sampling.top_p > 0.0f && sampling.top_p <= 1.0f)) {
    fail("top_p", number_text(sampling.top_p), "a number over 0 and at most 1");
  }
  if (!(sampling.repetition_penalty > 0.0f) || !std::isfinite(sampling.repetition_penalty)) {
    fail("repetition_penalty", number_text(sampling.repetition_penalty), "a number over 0");
  }
  if (!(sampling.min_p >= 0.0f && sampling.min_p <= 1.0f)) {
    fail("min_p", number_text(sampling.min_p), "a number from 0 to 1");
  }
  if (!(sampling.typical_p > 0.0f && sampling.typical_p <= 1.0f)) {
    fail("typical_p", number_text(sampling.typical_p), "a number over 0 and at most 1");
  }
  const auto check_penalty = [&](float value, const char* name) {
    if (!(value >= -2.0f && value <= 2.0f)) fail(name, number_text(value), "a number from -2 to 2");
  };
  check_penalty(sampling.presence_penalty, "presence_penalty");
  check_penalty(sampling.frequency_penalty, "frequency_penalty");
}

}  // namespace

void Session::start(std::span<const std::vector<int32_t>> prompts, const Sampling& sampling, uint64_t seed,
                    uint64_t offset, const TokenRules& rules, std::span<const int64_t> cached) {
  const RangeScope range(model().accelerator(), "prefill");
  Impl& impl = *impl_;
  check_sampling(sampling);
  std::optional<LogitBias> bias;
  if (!rules.empty()) bias.emplace(rules, impl.model->config().vocab_size);
  if (prompts.empty() || static_cast<int64_t>(prompts.size()) > impl.options.sequences) {
    throw InvalidArgument("start: " + std::to_string(prompts.size()) + " prompts; this session takes 1 to " +
                          std::to_string(impl.options.sequences));
  }
  if (!cached.empty() && cached.size() != prompts.size()) {
    throw InvalidArgument("start: " + std::to_string(cached.size()) + " counts of cached tokens for " +
                          std::to_string(prompts.size()) + " prompts");
  }
  std::vector<int32_t> ids, sequence, positions, rows;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto length = static_cast<int64_t>(prompts[i].size());
    if (length == 0) throw InvalidArgument("start: prompt " + std::to_string(i) + " has no tokens");
    if (length > impl.options.context) {
      throw InvalidArgument("start: prompt " + std::to_string(i) + " has " + std::to_string(length) +
                            " tokens, more than the context of " + std::to_string(impl.options.context));
    }
    const int64_t first = cached.empty() || impl.decoder.dynamic_rope() ? 0 : cached[i];
    if (first < 0 || first >= length) {
      throw InvalidArgument("start: prompt " + std::to_string(i) + " has " + std::to_string(length) +
                            " tokens, of which " + std::to_string(first) +
                            " are said to be cached; at least the last one is run");
    }
    for (int64_t p = first; p < length; ++p) {
      ids.push_back(prompts[i][static_cast<size_t>(p)]);
      sequence.push_back(static_cast<int32_t>(i));
      positions.push_back(static_cast<int32_t>(p));
    }
    rows.push_back(static_cast<int32_t>(ids.size()) - 1);
  }
  const TokenBatch batch = {ids, sequence, positions};
  impl.check_batch(batch, rows);
  Impl::Turn turn(impl);
  turn.follow_caller();

  // Captured steps contain the sampling options ...
  if (!(impl.sampling == sampling)) impl.graphs.clear();
  impl.sampling = sampling;
  // ... and, if frequencies depend on a sequence's length, the sequence of each row.
  if (impl.decoder.dynamic_rope()) impl.graphs.clear();
  impl.active.clear();
  impl.position.clear();
  impl.prompt_length.clear();
  for (size_t i = 0; i < prompts.size(); ++i) {
    impl.active.push_back(static_cast<int32_t>(i));
    impl.position.push_back(static_cast<int64_t>(prompts[i].size()));
    impl.prompt_length.push_back(static_cast<int64_t>(prompts[i].size()));
  }
  if (impl.may_renew_cache()) impl.history.assign(prompts.begin(), prompts.end());
  impl.host_ids_fresh = false;
  impl.seed = seed;
  impl.offset = offset;
  if (!impl.options.deterministic) {
    upload(impl.rng, std::vector<int64_t>{std::bit_cast<int64_t>(seed), std::bit_cast<int64_t>(offset)});
  }
  impl.fill_seen(prompts);
  if (impl.counts_tokens() && impl.draws()) {
    impl.make_draw_tensor(impl.counts, DType::I32);
    impl.counts.fill(0);
  }
  impl.start_rules(prompts, std::move(bias));
  impl.write_active(/*drawn=*/false);
  impl.run(batch, rows, impl.decode_logits);
  impl.enqueue_scores(/*first=*/true);
  if (impl.filters_on_host()) {
    impl.filter_and_draw();
  } else {
    impl.enqueue_draw();
  }
}

void Session::step() {
  const RangeScope range(model().accelerator(), "decode step");
  Impl& impl = *impl_;
  const Impl::Turn turn(impl);
  if (impl.active.empty()) return;
  for (size_t i = 0; i < impl.active.size(); ++i) {
    if (impl.position[i] >= impl.options.context) {
      throw InvalidArgument("step: sequence " + std::to_string(impl.active[i]) + " has filled the context of " +
                            std::to_string(impl.options.context) + " tokens");
    }
    impl.decoder.set_sequence_length(impl.active[i], impl.position[i] + 1, /*restart=*/false);
  }
  impl.renew_cache();
  if (impl.rules) {
    const std::span<const int32_t> newest = impl.newest_tokens();
    for (size_t i = 0; i < newest.size(); ++i) impl.rules->push(static_cast<size_t>(impl.active[i]), newest[i]);
    impl.write_bias();
  }
  const auto batch = static_cast<int64_t>(impl.active.size());
  const bool replayed = impl.graphs_wanted() && impl.graphs.replay(
                                                    impl.accelerator, batch, [&] { impl.decoder.prepare(batch); },
                                                    [&](const BetweenGraphs& between) { impl.enqueue_step(between); });
  if (!replayed) {
    // The calls of a step depend on the experts that it chooses.
    std::optional<ScopeGuard> step;
    if (!impl.decoder.reads_back()) step.emplace(impl.accelerator.step(impl.step_key_now()));
    impl.enqueue_step();
  }
  if (impl.filters_on_host()) impl.filter_and_draw();
  for (int64_t& position : impl.position) ++position;
  impl.host_ids_fresh = false;
}

std::span<const int32_t> Session::tokens() {
  const Impl::Turn turn(*impl_);
  return impl_->newest_tokens();
}

void Session::retain(std::span<const bool> keep) {
  Impl& impl = *impl_;
  if (keep.size() != impl.active.size()) {
    throw InvalidArgument("retain: " + std::to_string(keep.size()) + " answers for " +
                          std::to_string(impl.active.size()) + " active sequences");
  }
  if (std::find(keep.begin(), keep.end(), false) == keep.end()) return;
  const Impl::Turn turn(impl);
  const std::span<const int32_t> newest = impl.newest_tokens();
  std::vector<int32_t> kept_ids;
  for (size_t i = 0; i < keep.size(); ++i) {
    if (!keep[i]) continue;
    const size_t to = kept_ids.size();
    const auto move_row = [&](const Tensor& rows) {
      if (to != i) rows.select(0, static_cast<int64_t>(to)).copy_from(rows.select(0, static_cast<int64_t>(i)));
    };
    if (impl.draws() && impl.sampling.repetition_penalty != 1.0f) move_row(impl.seen);
    if (impl.draws() && impl.counts_tokens()) move_row(impl.counts);
    if (impl.draws() && impl.rules) move_row(impl.bias);
    kept_ids.push_back(newest[i]);
    impl.active[to] = impl.active[i];
    impl.position[to] = impl.position[i];
  }
  impl.active.resize(kept_ids.size());
  impl.position.resize(kept_ids.size());
  impl.host_ids_fresh = false;
  if (kept_ids.empty()) return;
  if (impl.decoder.dynamic_rope()) impl.graphs.clear();
  upload(impl.decode_ids.slice(0, 0, static_cast<int64_t>(kept_ids.size())), kept_ids);
  impl.write_active(/*drawn=*/true);
}

Tensor Session::step_logits() const {
  if (!impl_->kept_logits) {
    throw InvalidArgument(
        "step_logits: this session keeps no logits; set SessionOptions::keep_logits, and call it on rank 0");
  }
  return impl_->kept_logits.slice(0, 0, static_cast<int64_t>(impl_->active.size()));
}

bool Session::Impl::may_renew_cache() const {
  const RopeConfig& rope = model->config().rope;
  return rope.type == RopeType::Longrope && rope.renews_cache &&
         options.context > rope.original_max_position_embeddings;
}

// As transformers' generate() does for Phi 3: keys that were rotated by the short factors do not go with queries that are
// rotated by the long ones. The newest token is run too, so that the frequencies are those of the text with it.
void Session::Impl::renew_cache() {
  if (!may_renew_cache()) return;
  const int64_t original = model->config().rope.original_max_position_embeddings;
  // The newest tokens are waited for only as long as a text may still outgrow the short factors.
  if (std::ranges::none_of(position, [&](int64_t length) { return length <= original; })) return;
  const auto outgrown = static_cast<size_t>(original) + 1;
  const std::span<const int32_t> newest = newest_tokens();
  std::vector<int32_t> tokens, sequences, positions;
  for (size_t i = 0; i < newest.size(); ++i) {
    std::vector<int32_t>& text = history[static_cast<size_t>(active[i])];
    text.resize(static_cast<size_t>(position[i]));
    text.push_back(newest[i]);
    if (text.size() != outgrown) continue;
    for (size_t p = 0; p < text.size(); ++p) {
      tokens.push_back(text[p]);
      sequences.push_back(active[i]);
      positions.push_back(static_cast<int32_t>(p));
    }
  }
  if (!tokens.empty()) run({tokens, sequences, positions}, {}, Tensor());
}

StepInput Session::Impl::decode_input() const {
  const auto count = static_cast<int64_t>(active.size());
  return {decode_ids.slice(0, 0, count), decode_sequence.slice(0, 0, count), decode_positions.slice(0, 0, count)};
}

void Session::Impl::make_draw_tensor(Tensor& tensor, DType dtype) {
  if (tensor) return;
  tensor = Tensor::empty({options.sequences, model->config().vocab_size}, dtype, model->device());
  graphs.clear();
}

void Session::Impl::start_rules(std::span<const std::vector<int32_t>> prompts, std::optional<LogitBias> wanted) {
  if (wanted.has_value() != rules.has_value()) graphs.clear();
  rules = std::move(wanted);
  if (!rules) return;
  rules->start(prompts);
  if (draws()) make_draw_tensor(bias, DType::F32);
  write_bias();
}

void Session::Impl::write_bias() {
  if (!draws()) return;
  for (size_t i = 0; i < active.size(); ++i) {
    const std::span<const float> row = rules->next_row(static_cast<size_t>(active[i]));
    if (row.empty()) continue;
    const Tensor to = bias.select(0, static_cast<int64_t>(i));
    to.copy_from(Tensor::from_host(row.data(), to.shape(), to.dtype()));
  }
}

void Session::Impl::fill_seen(std::span<const std::vector<int32_t>> prompts) {
  if (sampling.repetition_penalty == 1.0f || !draws()) return;
  make_draw_tensor(seen, DType::U8);
  std::vector<uint8_t> marks(static_cast<size_t>(model->config().vocab_size));
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::fill(marks.begin(), marks.end(), uint8_t{0});
    for (const int32_t id : prompts[i]) marks[static_cast<size_t>(id)] = 1;
    upload(seen.select(0, static_cast<int64_t>(i)), marks);
  }
}

void Session::Impl::write_active(bool drawn) {
  const StepInput input = decode_input();
  std::vector<int32_t> narrow(position.begin(), position.end());
  upload(input.sequence, active);
  upload(input.positions, narrow);
  if (!options.deterministic) return;
  std::vector<int64_t> counters;
  for (const int64_t at : position) {
    counters.push_back(std::bit_cast<int64_t>(seed));
    counters.push_back(std::bit_cast<int64_t>(offset + static_cast<uint64_t>(drawn ? at + 1 : at)));
  }
  upload(rng.slice(0, 0, static_cast<int64_t>(position.size())), counters);
}

void Session::Impl::enqueue_scores(bool first) {
  if (!draws()) return;
  ops::Inference& ops = decoder.ops();
  const auto count = static_cast<int64_t>(active.size());
  const Tensor scores = decode_logits.slice(0, 0, count);
  if (kept_logits) kept_logits.slice(0, 0, count).copy_from(scores);
  if (rules) ops.add(scores, scores, bias.slice(0, 0, count));
  if (sampling.repetition_penalty != 1.0f) {
    ops.repetition_penalty(scores, seen.slice(0, 0, count), sampling.repetition_penalty);
  }
  if (counts_tokens()) {
    ops.frequency_penalty(scores, counts.slice(0, 0, count), sampling.presence_penalty, sampling.frequency_penalty,
                          first ? Tensor() : decode_ids.slice(0, 0, count));
  }
}

void Session::Impl::filter_and_draw() {
  if (draws()) {
    const Tensor scores = decode_logits.slice(0, 0, static_cast<int64_t>(active.size()));
    std::vector<float> rows = scores.to_vector<float>();
    const auto vocabulary = static_cast<size_t>(scores.size(1));
    for (size_t i = 0; i < active.size(); ++i) {
      filter_scores(std::span(rows).subspan(i * vocabulary, vocabulary), sampling);
    }
    upload(scores, rows);
  }
  enqueue_draw();
}

void Session::Impl::enqueue_draw() {
  ops::Inference& ops = decoder.ops();
  const auto count = static_cast<int64_t>(active.size());
  const Tensor chosen_from = decode_logits.slice(0, 0, count);
  const Tensor chosen = decode_ids.slice(0, 0, count);
  if (draws()) {
    const Tensor marks = sampling.repetition_penalty != 1.0f ? seen.slice(0, 0, count) : Tensor();
    // What the host has filtered needs nothing but the draw.
    const Sampling left = filters_on_host() ? Sampling{.temperature = 1.0f} : sampling;
    const auto draw = [&](int64_t begin, int64_t end, const Tensor& counter) {
      ops.sample(chosen.slice(0, begin, end), chosen_from.slice(0, begin, end), counter, left.temperature, left.top_k,
                 left.top_p, marks ? marks.slice(0, begin, end) : Tensor(), left.min_p);
    };
    if (options.deterministic && sampling.temperature > 0) {
      // The op uses different random numbers for the rows of a call, so each row has its own call.
      for (int64_t row = 0; row < count; ++row) draw(row, row + 1, rng.select(0, row));
      ops.increment(rng.slice(0, 0, count).slice(1, 1, 2), 1);
    } else if (options.deterministic) {
      draw(0, count, rng.select(0, 0));  // greedy decoding uses no random numbers
    } else {
      draw(0, count, rng);
      // The op uses one counter for four rows.
      ops.increment(rng.slice(0, 1, 2), (count + 3) / 4);
    }
  } else {
    chosen.fill(0);
  }
  // This is a broadcast implemented as a sum, because sums can be captured.
  if (model->group()) model->group()->inference_all_reduce(chosen);
}

void Session::Impl::enqueue_step(const BetweenGraphs& between) {
  const StepInput input = decode_input();
  std::vector<SequenceRange> ranges;
  if (decoder.dynamic_rope()) {
    for (size_t i = 0; i < active.size(); ++i) {
      ranges.push_back({static_cast<int64_t>(i), static_cast<int64_t>(i) + 1, active[i]});
    }
  }
  decoder.forward(input, ranges, between);
  decoder.logits(decode_logits.slice(0, 0, static_cast<int64_t>(active.size())), {});
  decoder.ops().increment(input.positions, 1);
  enqueue_scores(/*first=*/false);
  if (!filters_on_host()) enqueue_draw();
}

bool Session::Impl::graphs_wanted() const {
  return accelerator.supports_graphs() && accelerator.get_compile_backend() == "graph" && decoder.ops().all_native();
}

void Session::Impl::fail_without_token(size_t i) const {
  const Tensor row = decode_logits.select(0, static_cast<int64_t>(i)).to(Device{});
  const std::span<const float> logits{row.data_as<float>(), static_cast<size_t>(row.numel())};
  const auto nans = std::count_if(logits.begin(), logits.end(), [](float x) { return std::isnan(x); });
  const auto infinite = [&](float sign) { return std::count(logits.begin(), logits.end(), sign * INFINITY); };
  const auto sequence = static_cast<size_t>(active[i]);
  throw NumericalError(
      "generation stopped: the model's logits for sequence " + std::to_string(sequence) + ", position " +
      std::to_string(position[i]) + " (token " + std::to_string(position[i] - prompt_length[sequence] + 1) +
      " of the answer) have no finite maximum: of " + std::to_string(logits.size()) + ", " + std::to_string(nans) +
      " are NaN, " + std::to_string(infinite(1.0f)) + " +infinity and " + std::to_string(infinite(-1.0f)) +
      " -infinity. " +
      (rules && nans == 0 && infinite(1.0f) == 0
           ? "The rules about tokens that are not allowed (bad words, suppressed tokens, ...) leave none"
       : model->dtype() == DType::F16 ? "Numbers may have grown too large for fp16 (try --dtype bf16 or fp32), or the "
                                        "weights are damaged (--check-tensors "
                                        "names those that are)"
                                      : "The weights are probably damaged (--check-tensors names those that are)"));
}

std::span<const int32_t> Session::Impl::newest_tokens() {
  const size_t count = active.size();
  if (!host_ids_fresh && count > 0) {
    const auto end = static_cast<int64_t>(count);
    host_ids.slice(0, 0, end).copy_from(decode_ids.slice(0, 0, end));
    stream.synchronize();
    if (model->group()) model->group()->check();
    // This check follows the step because another program may have changed the data while the step read it.
    model->check_files();
    model->use_large_pages();
    const int32_t* const ids = host_ids.data_as<int32_t>();
    const int32_t* const missing = std::find(ids, ids + count, -1);
    if (missing != ids + count) fail_without_token(static_cast<size_t>(missing - ids));
    host_ids_fresh = true;
  }
  return {host_ids.data_as<int32_t>(), count};
}

}  // namespace anyaccel::llm
