// Runs a model for a fixed number of sequences: their key/value cache, the forward step, and the decode loop.
//
//   Session session(model, {.sequences = 2, .context = 256});
//   session.start(prompts, sampling, seed);                     // runs the prompts, draws the first tokens
//   bool keep[2];
//   while (!session.active().empty()) {
//     const std::span<const int32_t> tokens = session.tokens();  // one for each active sequence; waits for the device
//     for (size_t i = 0; i < tokens.size(); ++i) keep[i] = use_token(session.active()[i], tokens[i]);
//     session.retain({keep, tokens.size()});                     // the others have ended
//     session.step();                                            // draws the next tokens; does not wait
//   }
//
// A session belongs to one thread at a time: a call while another is in progress throws InvalidArgument. Threads that
// generate concurrently need one session each, over one model. All work of a session runs on a stream of its own, where
// it captures its steps, so that it neither records nor waits for the work of other threads; no call may be made while
// the thread captures a graph. start() and forward() are ordered after the work that the caller has enqueued on its
// current stream of the model's device, and the result of forward() is ready for later work there. If the model is
// sharded over ranks, each rank has a session with the same options and makes the same calls with the same arguments;
// rank 0 samples the tokens for all, and every rank gets the complete logits. A failure on one rank makes calls of the
// others throw CommunicationError. If a file is modified from which weights are used directly, forward() and tokens()
// throw CheckpointError. The key/value cache holds, for each layer, [B, Hk, S, D] keys and as many values in the
// model's dtype, or quantized (CacheType): B sequences of at most S tokens. Hidden states and everything between the
// products are fp32.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/dtype.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/token_rules.h"
#include "anyaccel/tensor.h"

namespace anyaccel::llm {

// The elements of the key/value cache.
enum class CacheType {
  Model,  // the model's dtype
  // Signed bytes with a scale in fp16 for each 32 elements of a head: 8.5 bits an element, the format Q8_0 of GGUF
  // files.
  Int8,
  // Floats of 8 bits with 3 bits of mantissa (e4m3, from 2^-9 to 448) without a scale. Larger finite numbers become
  // 448.
  Fp8,
};

struct SessionOptions {
  int64_t sequences = 1;  // B
  int64_t context = 0;    // S: maximum number of tokens of a sequence, prompt and answer together; must be set
  int64_t chunk = 512;    // maximum number of tokens in one step; bounds the memory of activations
  // The results of a sequence depend neither on its neighbours, nor on chunks, nor on its place in the batch: products
  // and attention add in an order that does not depend on the number of rows, and the random number for a token depends
  // on the seed and the token's position only (so that the same prompt twice in a batch gives the same text twice).
  // Results may differ between accelerators and instruction sets. NotImplementedError if the accelerator does not
  // guarantee this, and for a model that is sharded over ranks. docs/architecture.md gives the cost.
  bool deterministic = false;
  // The decode loop keeps a copy of each step's logits for step_logits(), fp32 [B, V] on the device.
  bool keep_logits = false;
  // NotImplementedError for Int8 and Fp8 if the accelerator has no ops for quantized caches
  // (Inference::takes_quantized_caches), InvalidArgument if the size of a head is not a multiple of 32.
  CacheType cache = CacheType::Model;
};

// Options for choosing the next token from the logits; the ranges are those of the op "sample" (abi/ops.h).
struct Sampling {
  float temperature = 0.0f;  // 0: the most likely token
  int32_t top_k = 0;         // 0: all
  float top_p = 1.0f;
  float repetition_penalty = 1.0f;  // above 0; 1: none
  float min_p = 0.0f;               // 0: all
  // Locally typical sampling, over 0 to 1; 1: all. The op does not have it: with less than 1 and a temperature over 0,
  // the scores of each step are filtered on the host, and steps wait for the device.
  float typical_p = 1.0f;
  // As in OpenAI's API: subtracted from the logit of a token once if the answer contains it, and once for each time it
  // contains it.
  float presence_penalty = 0.0f;   // -2 to 2
  float frequency_penalty = 0.0f;  // -2 to 2

  friend bool operator==(const Sampling&, const Sampling&) = default;
};

// Tokens to run: element t is token ids[t] at position positions[t] of sequence sequence[t]. A token sees the tokens of
// its sequence at lower positions that this or an earlier step has run; tokens of a sequence are in rising order.
struct TokenBatch {
  std::span<const int32_t> ids;
  std::span<const int32_t> sequence;
  std::span<const int32_t> positions;
};

class Session {
 public:
  // Allocates the cache. Throws InvalidArgument for a count in the options that is not positive, and for a context
  // above the number of learned positions, if the model has such; OutOfMemoryError, which names the context that would
  // fit; and the exceptions that SessionOptions names. With a group this is a collective call, and throws InvalidArgument
  // on every rank if the ranks loaded different models.
  Session(std::shared_ptr<const Model> model, const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Model& model() const noexcept;
  const SessionOptions& options() const noexcept;
  // Returns the bytes of keys and values.
  uint64_t cache_bytes() const noexcept;

  // Runs the tokens, in chunks, and returns the logits after those of them that `rows` names (increasing indices into
  // the batch): fp32 [rows, V] on the device, valid until the next call. Does not wait for the device. Throws
  // InvalidArgument for an empty batch, lengths that differ, an id, sequence or position out of range, or rows that are
  // not increasing. Keys in the cache keep their rotation, also where step() renews it: run the tokens again from position
  // 0 for that.
  Tensor forward(const TokenBatch& tokens, std::span<const int32_t> rows);
  // The same with the hidden states before the output matrix, after the final norm: fp32 [rows, H].
  Tensor hidden_states(const TokenBatch& tokens, std::span<const int32_t> rows);

  // Returns the bytes of one token's keys and values in all layers. NotImplementedError if cache_contents() cannot be
  // used: the model is split over ranks, or its frequencies depend on a sequence's length.
  uint64_t token_cache_bytes() const;
  // Returns the keys and values of the first `tokens` tokens of a sequence, which earlier calls have run: of each layer
  // the keys [Hk, tokens, D], then of each layer the values, in the elements of the cache. Blocks. Throws as
  // token_cache_bytes(), and InvalidArgument for a sequence or number of tokens out of range.
  std::string cache_contents(int32_t sequence, int64_t tokens);
  // Takes contents of `tokens` tokens and writes the keys and values of the first `used` of them to a sequence of a
  // session of the same model and cache type, on any accelerator; start() then takes them as cached. Blocks.
  // Throws as cache_contents(), and InvalidArgument for contents of another size.
  void restore_cache(int32_t sequence, int64_t used, std::string_view contents, int64_t tokens);

  // Chooses the adapter of each sequence for later calls: an index in Model::adapters(), or -1 for none; sequences that
  // are not named have none. Keys and values that are cached stay those of the adapter that they were computed with.
  // Waits for the device. InvalidArgument for more than SessionOptions::sequences, and for an index out of range.
  void set_adapters(std::span<const int32_t> adapters);

  // -- decode loop: one new token for each active sequence in every step --

  // Runs the prompts (prompts[i] in sequence i, from position 0) and samples the first new token of each; the first
  // call of tokens() returns them. rng: seed and offset of the random numbers. With rules, step() waits for the newest
  // tokens. Biases of the rules are applied before the penalties of `sampling`. cached[i] is the number of tokens at
  // the beginning of prompts[i] that sequence i has in its cache from earlier calls and that are not run again (ignored
  // for models whose frequencies depend on a sequence's length); empty: none. Throws InvalidArgument for an empty
  // prompt, more prompts than sequences, a prompt longer than the context (with both numbers), a prompt that is cached
  // as a whole, an invalid sampling option, or a rule about a token that the model does not have.
  void start(std::span<const std::vector<int32_t>> prompts, const Sampling& sampling, uint64_t seed,
             uint64_t offset = 0, const TokenRules& rules = {}, std::span<const int64_t> cached = {});
  // Returns the newest token of each active sequence, in the order of active(). Waits for the device. Throws
  // NumericalError if a sequence has no token, because its logits contain a NaN or +infinity, or are all -infinity (a
  // row without a token in the terms of "sample" in abi/ops.h); the message names the sequence and the position. All
  // ranks of a model throw it. Other sequences are not affected, but call start() again: a step() without that fails or
  // produces meaningless tokens.
  std::span<const int32_t> tokens();
  // Returns the logits from which the newest tokens were chosen, before rules and penalties: fp32 [active, V] on the
  // device, in the order of active(), valid until the next call of retain(), step() or start(). Call it after tokens().
  // Throws InvalidArgument without SessionOptions::keep_logits. On rank 0 only, if the model is sharded.
  Tensor step_logits() const;
  // Returns the sequences that are still running, in increasing order.
  std::span<const int32_t> active() const noexcept;
  // Removes sequences: active()[i] continues if keep[i] is true. Waits for the device if one is removed. Throws
  // InvalidArgument unless there is one flag for each active sequence.
  void retain(std::span<const bool> keep);
  // Replaces the newest tokens and the sequences that they continue, as a search over several answers does: afterwards
  // active()[i] is a sequence with the tokens of what was active()[parents[i]] before its newest token, and tokens[i]
  // as its newest token. There may be more or fewer rows than before, up to SessionOptions::sequences; rows that are no
  // parent end. The first child of a row stays in its sequence; for others, keys and values are copied on the device
  // from where the two sequences differ. Call it after tokens(). Throws InvalidArgument for a row or token out of
  // range, and if start() was given rules or penalties, which belong to sequences.
  void continue_as(std::span<const int32_t> parents, std::span<const int32_t> tokens);
  // Runs the newest tokens and samples the next ones. Replays a captured step if the accelerator supports graphs,
  // implements every op itself, and get_compile_backend() is "graph". Does not wait for the device, except with rules
  // (see start()) and Sampling::typical_p, and for models with RopeConfig::renews_cache, of which it runs all tokens of a
  // sequence again where the sequence outgrows the short factors. Does nothing without active sequences. Throws
  // InvalidArgument when a sequence is full.
  void step();
  // Returns the number of tokens of active()[i] that are in the cache or about to be stored there, including the
  // prompt. Throws InvalidArgument if there is no such row.
  int64_t length(size_t i) const;
  // Returns the number of steps so far that were replayed from a graph.
  uint64_t replayed_steps() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace anyaccel::llm
