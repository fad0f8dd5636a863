// Two models that can be trained: a decoder with the layers and the names of Llama, and an encoder with
// ops::Transformer's layers.
#pragma once

#include <memory>
#include <vector>

#include "anyaccel/nn/layers.h"

namespace anyaccel::nn {

// The input of one pass: `sequences` times `length` tokens, one sequence after the other, on the device.
struct Batch {
  int64_t sequences = 0, length = 0;
  Tensor ids;           // I32 [sequences * length]
  Tensor targets;       // I32, the same shape: the token to predict at each position; negative: none
  int64_t counted = 0;  // number of targets that are not negative

  // Copies from the host. Blocks. Throws InvalidArgument if a span's length is not sequences * length.
  static Batch from_host(Context& context, int64_t sequences, int64_t length, std::span<const int32_t> ids,
                         std::span<const int32_t> targets);
};

// A model that a Trainer can train.
class Model {
 public:
  virtual ~Model() = default;
  // Returns the losses F32 [sequences * length] of the batch.
  virtual Tensor losses(const Batch& batch) = 0;
  // The same, and adds the gradients of scale * their sum. Calls Parameters::ready() for each group. The context must
  // train.
  virtual Tensor losses_and_gradients(const Batch& batch, float scale) = 0;
};

struct DecoderSizes {
  int64_t tokens = 0;  // of the vocabulary
  int64_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
  double rope_theta = 10000;
  double norm_eps = 1e-5;
  bool tied = true;  // the output matrix is the embedding
  double deviation =
      0.02;  // of initial weights; divided by sqrt(2 * layers) for those that write to the residual stream
};

// Predicts the next token. Its parameters have the names of Hugging Face's LlamaForCausalLM. A pass with other sizes
// than the one before waits for the work on the stream while tables of positions are copied to the device.
class Decoder : public Model {
 public:
  // Adds its parameters to `parameters`; call allocate() afterwards.
  Decoder(Parameters& parameters, const DecoderSizes& sizes);
  Tensor losses(const Batch& batch) override;
  Tensor losses_and_gradients(const Batch& batch, float scale) override;

 private:
  Tensor forward(const Batch& batch);

  Parameters& parameters_;
  Context& context_;
  DecoderSizes sizes_;
  std::unique_ptr<Embedding> embedding_;
  std::vector<std::unique_ptr<DecoderLayer>> layers_;
  std::unique_ptr<Norm> norm_;
  std::unique_ptr<LanguageHead> head_;
  std::unique_ptr<Positions> positions_;
};

struct EncoderSizes {
  int64_t tokens = 0, positions = 0;
  int64_t hidden = 0, layers = 0, heads = 0, intermediate = 0;
  int64_t largest_batch = 1;  // sequences
  double norm_eps = 1e-5;
  float dropout = 0.1f;
  bool pre_norm = true;
  double deviation = 0.02;
};

// Predicts tokens from those on both sides: it has embeddings of tokens and positions, layers of ops::Transformer, a
// norm, and an output matrix that is the embedding. Each pass waits for the work on the stream while the positions are
// copied to the device.
class Encoder : public Model {
 public:
  Encoder(Parameters& parameters, const EncoderSizes& sizes);
  Tensor losses(const Batch& batch) override;
  Tensor losses_and_gradients(const Batch& batch, float scale) override;

 private:
  Tensor forward(const Batch& batch);

  Parameters& parameters_;
  Context& context_;
  EncoderSizes sizes_;
  std::unique_ptr<Embedding> embedding_, place_embedding_;
  std::vector<std::unique_ptr<EncoderLayer>> layers_;
  std::unique_ptr<Norm> norm_;
  std::unique_ptr<LanguageHead> head_;
};

}  // namespace anyaccel::nn
