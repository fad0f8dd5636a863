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
// A session belongs to one thread at a time: a call while another is under way is an InvalidArgument. Threads that generate at
// once have a session each, over one model. All work of a session runs on a stream of its own, where it captures its steps,
// so that neither records or waits for what other threads do; no call may be made while the thread captures a graph. start()
// and forward() come after what the caller has enqueued on its current stream of the model's device, and what forward()
// returns is ready for later work there.
// Of a model that is split over ranks each has a session with the same options and makes the same calls with the same
// arguments; rank 0 draws the tokens for all, and logits are whole on every rank. A failure on one rank makes calls of the
// others throw CommunicationError.
// Once somebody has written to a file that weights are used from, forward() and tokens() throw CheckpointError.
// The key/value cache holds, for each layer, [B, Hk, S, D] keys and as many values in the model's dtype: B sequences of
// at most S tokens. Hidden states and everything between the products are fp32.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "anyaccel/dtype.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/token_rules.h"
#include "anyaccel/tensor.h"

namespace anyaccel::llm {

struct SessionOptions {
  int64_t sequences = 1;  // B
  int64_t context = 0;    // S: most tokens of a sequence, prompt and answer together
  int64_t chunk = 512;    // tokens that go through the model in one step; bounds the memory between the layers
  // What a sequence gets depends neither on its neighbours, nor on chunks, nor on its place in the batch: products and
  // attention take their sums in an order that the number of rows does not change, and a draw takes its random number from
  // the seed and the token's position alone (so that the same prompt twice in a batch gives the same text twice). Results
  // are those of one accelerator and instruction set. NotImplementedError where the accelerator does not promise it, and
  // for a model that is split over ranks. docs/architecture.md tells what it costs.
  bool deterministic = false;
};

// How the next token is chosen from the logits; the ranges are those of the "sample" op.
struct Sampling {
  float temperature = 0.0f;  // 0: the most likely token
  int32_t top_k = 0;         // 0: all
  float top_p = 1.0f;
  float repetition_penalty = 1.0f;  // 1: none
  float min_p = 0.0f;               // 0: all
  // As OpenAI's API has them: taken from the logit of a token once if the answer has it, and as often as it has it.
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
  // Allocates the cache. InvalidArgument for a count that is not positive; OutOfMemoryError.
  Session(std::shared_ptr<const Model> model, const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Model& model() const noexcept;
  const SessionOptions& options() const noexcept;
  // Bytes of keys and values.
  uint64_t cache_bytes() const noexcept;

  // Runs the tokens, in chunks, and returns the logits after those of them that `rows` names (rising indices into the
  // batch): fp32 [rows, V] on the device, valid until the next call. Does not wait for the device. InvalidArgument for
  // lengths that differ, an id, sequence or position out of range, or rows that do not rise.
  Tensor forward(const TokenBatch& tokens, std::span<const int32_t> rows);

  // -- decode loop: one new token for each active sequence in every step --

  // Runs the prompts (prompts[i] in sequence i, from position 0) and draws the first new token of each; these are
  // returned by the first call of tokens(). rng: seed and offset of the draws. With rules, step() waits for the newest tokens.
  // Biases of the rules come before the penalties of `sampling`. InvalidArgument for an empty prompt, more prompts than
  // sequences, a prompt longer than the context (with both numbers), an invalid sampling option, or a rule about a token that
  // the model does not have.
  void start(std::span<const std::vector<int32_t>> prompts, const Sampling& sampling, uint64_t seed,
             uint64_t offset = 0, const TokenRules& rules = {});
  // The newest token of each active sequence, in the order of active(). Waits for the device. NumericalError when a sequence
  // has none, because its logits hold a NaN, +infinity or nothing but -infinity (what "sample" of abi/ops.h calls a row
  // without a token); the message names the sequence and the position. All ranks of a model throw it. Other sequences are
  // not harmed, but the session is to be started anew: a step() that follows nevertheless ends in an error or gives tokens
  // that mean nothing.
  std::span<const int32_t> tokens();
  // Sequences that still run, rising.
  std::span<const int32_t> active() const noexcept;
  // Takes sequences out: keep[i] tells whether active()[i] goes on.
  void retain(std::span<const bool> keep);
  // Runs the newest tokens and draws the next ones. Replays a captured step where the accelerator has graphs, has every
  // op itself, and get_compile_backend() says "graph". Does not wait for the device. InvalidArgument when a sequence is
  // full.
  void step();
  // Tokens that active()[i] has in the cache or about to be put there, prompt included.
  int64_t length(size_t i) const;
  // Steps so far that were replayed from a graph.
  uint64_t replayed_steps() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace anyaccel::llm
