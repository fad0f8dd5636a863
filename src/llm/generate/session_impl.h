// Declares the parts of a session that its sources share: session.cpp creates and owns it, forward_step.cpp runs
// batches of tokens, decode_loop.cpp generates one token after another.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/llm/session.h"
#include "llm/generate/decoder_step.h"
#include "llm/generate/graph_cache.h"
#include "llm/generate/logit_bias.h"
#include "llm/generate/score_filter.h"

namespace anyaccel::llm {

// Blocks until the values have been read.
template <class T>
void upload(const Tensor& destination, const std::vector<T>& values) {
  destination.copy_from(Tensor::from_host(values.data(), destination.shape(), destination.dtype()));
}

struct Session::Impl {
  Impl(std::shared_ptr<const Model> model_in, const SessionOptions& options_in);

  // For the duration of a call, makes the session's stream the calling thread's current one.
  class Turn {
   public:
    // InvalidArgument if another call is in progress.
    explicit Turn(Impl& session);
    ~Turn() { session_.busy.store(false, std::memory_order_release); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // Orders the session's later work after the caller's work so far.
    void follow_caller();
    // Orders the caller's later work, which uses `result`, after the session's work so far.
    void lead_caller(const Tensor& result);

   private:
    Impl& session_;
    Stream caller_;
    std::optional<ScopeGuard> current_;
    std::optional<ops::ByRow> by_row_;
  };

  void check_batch(const TokenBatch& tokens, std::span<const int32_t> rows) const;
  // Runs the chunks of a batch; writes the logits of the rows, or their hidden states, to the first rows of `out`.
  enum class Output { Logits, HiddenStates };
  void run(const TokenBatch& tokens, std::span<const int32_t> rows, const Tensor& out, Output output = Output::Logits);
  // forward() and hidden_states(). `result` is enlarged if it has too few rows of `width` elements.
  Tensor forward(const TokenBatch& tokens, std::span<const int32_t> rows, Output output, Tensor& result, int64_t width);
  // Calls `use` with the first `tokens` tokens of each part of the cache of a sequence.
  void each_cache(int32_t sequence, int64_t tokens, const std::function<void(const Tensor&)>& use) const;
  // Copies the tokens before `length` of a sequence to another one, as far as they differ.
  void copy_sequence(int32_t from, int32_t to, int64_t length);
  void renew_frequencies(const TokenBatch& tokens);
  bool may_renew_cache() const;
  // Runs all tokens of the active sequences that the next step makes longer than the short factors of longrope are for.
  void renew_cache();
  StepInput decode_input() const;
  // Returns whether this rank chooses the tokens: rank 0 does, and the others receive them.
  bool draws() const { return model->shard().rank == 0; }
  // Returns memory that the ranks of the model sum in place.
  Tensor summed_tensor(const Shape& shape, DType dtype) const;
  void fill_seen(std::span<const std::vector<int32_t>> prompts);
  void refuse_unless_deterministic() const;
  bool counts_tokens() const { return sampling.presence_penalty != 0.0f || sampling.frequency_penalty != 0.0f; }
  // Allocates memory that a decode step reads on the sampling ranks, when it is first needed.
  void make_draw_tensor(Tensor& tensor, DType dtype);
  void start_rules(std::span<const std::vector<int32_t>> prompts, std::optional<LogitBias> wanted);
  // Copies the rows of biases that differ from those on the device.
  void write_bias();
  // Writes the sequence numbers and positions of the active rows and, in a deterministic session, the counters of their
  // next draws: of the newest tokens if these have yet to be drawn (`drawn` is false), else of those after them.
  void write_active(bool drawn);
  std::span<const int32_t> newest_tokens();
  // Enqueues the ops of one decode step, from the newest tokens to the scores of the next ones and, unless the host
  // filters these, to the next tokens.
  void enqueue_step(const BetweenGraphs& between = {});
  // Applies rules and penalties to decode_logits. Counts the newest tokens for the penalties, except at the first draw,
  // before which there are none.
  void enqueue_scores(bool first);
  // Chooses tokens from decode_logits and advances the random numbers.
  void enqueue_draw();
  // Returns whether the scores are filtered on the host between enqueue_scores() and enqueue_draw().
  bool filters_on_host() const { return needs_score_filter(sampling); }
  // Waits for the scores, filters them and draws.
  void filter_and_draw();
  bool graphs_wanted() const;
  // Throws NumericalError for row i of the active sequences, whose logits yielded no token; the logits are still
  // available.
  [[noreturn]] void fail_without_token(size_t i) const;

  std::shared_ptr<const Model> model;
  Accelerator& accelerator;
  SessionOptions options;
  Stream stream;  // all work of the session runs on it, so that a capture records no other work
  std::atomic<bool> busy{false};
  Event entered, left;
  DecoderStep decoder;

  // For forward steps: I32 [chunk] and fp32 [rows, V].
  Tensor ids, sequence, positions, rows;
  Tensor logits;
  Tensor hidden;  // fp32 [rows, H]; only of hidden_states()

  // For the decode loop: [B], of which the first active.size() rows are in use.
  Sampling sampling;
  Tensor decode_ids, decode_sequence, decode_positions;  // I32
  Tensor decode_logits;                                  // fp32 [B, V]
  Tensor kept_logits;                                    // the same before rules and penalties; only if options say so
  Tensor seen;                                           // U8 [B, V]; only with a repetition penalty
  Tensor counts;                                         // I32 [B, V] of the answer's tokens; only with such a penalty
  Tensor bias;                                           // fp32 [B, V], added to the logits; only with rules
  std::optional<LogitBias> rules;
  Tensor rng;                     // I64 [2]; deterministic: [B, 2], one for each row
  uint64_t seed = 0, offset = 0;  // of start()
  Tensor host_ids;                // I32 [B] in host memory, pinned where possible
  std::vector<int32_t> active;
  std::vector<int64_t> position;       // of the newest token of active[i], which has not been run yet
  std::vector<int64_t> prompt_length;  // of each sequence
  // The tokens of each sequence before its newest one; only where the cache may be computed anew.
  std::vector<std::vector<int32_t>> history;
  bool host_ids_fresh = false;
  // [B, B]: the number of tokens at the beginning of two sequences whose keys and values are known to be the same.
  std::vector<int64_t> common;
  GraphCache graphs;  // of decode steps
  uint64_t step_key_now() const { return step_key + (decoder.adapting() ? uint64_t{1} << 31 : 0) + active.size(); }
  // Added to the batch size, it is the key of a decode step (Accelerator::step); no other session uses it.
  const uint64_t step_key = [] {
    static std::atomic<uint64_t> sessions{0};
    return ++sessions << 32;
  }();
};

}  // namespace anyaccel::llm
