// The ops of a decoder model, typed: what "InferenceBuilder" loads.
//
// Each method checks its tensors (InvalidArgument names op and tensor), then enqueues on the calling thread's current
// stream of the outputs' device and returns; nothing blocks. Shapes and meaning are those of abi/ops.h. For every op the
// implementation is looked up once: the accelerator's own, else the CPU's with copies there and back, which is logged
// once per op, counted, and an error (NotImplementedError) under ANYACCEL_FALLBACK=error. A default-constructed Tensor
// stands for an absent optional one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anyaccel/abi/ops.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/tensor.h"

namespace anyaccel::ops {

enum class Activation : int32_t {
  Silu = AA_ACTIVATION_SILU,
  Gelu = AA_ACTIVATION_GELU,
  GeluTanh = AA_ACTIVATION_GELU_TANH,
  Relu = AA_ACTIVATION_RELU,
  Sigmoid = AA_ACTIVATION_SIGMOID,
  Tanh = AA_ACTIVATION_TANH,
};

struct LinearPart {
  const Tensor& out;
  const Tensor& w;
  const Tensor& bias;
};

// How one op is carried out on the active accelerator.
struct OpPlacement {
  std::string op;
  bool native = false;     // false: falls back to the CPU
  uint64_t fallbacks = 0;  // calls that fell back so far
};

class Inference : public OpLibrary {
 public:
  explicit Inference(Accelerator& accelerator);
  ~Inference() override;

  void embedding(const Tensor& out, const Tensor& table, const Tensor& ids);
  void rms_norm(const Tensor& out, const Tensor& x, const Tensor& weight, float eps, const Tensor& residual = {});
  void layer_norm(const Tensor& out, const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                  const Tensor& residual = {});
  void linear(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias = {},
              const Tensor& residual = {});
  // Runs as single linears where the accelerator has only those.
  void linear_multi(const Tensor& x, std::span<const LinearPart> parts);
  // Runs as two linears and a gated activation where the accelerator has only those.
  void gated_linear(const Tensor& out, const Tensor& x, const Tensor& w_gate, const Tensor& w_up, Activation kind,
                    const Tensor& bias_gate = {}, const Tensor& bias_up = {});
  void rope_table(const Tensor& cos, const Tensor& sin, const Tensor& inv_freq, const Tensor& positions, float scale);
  void rope(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin, bool interleaved = false);
  void cache_write(const Tensor& k_cache, const Tensor& v_cache, const Tensor& k, const Tensor& v,
                   const Tensor& sequence, const Tensor& positions);
  void attention(const Tensor& out, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                 const Tensor& sequence, const Tensor& positions, float scale, int window = 0, float softcap = 0.0f);
  void activation(const Tensor& out, const Tensor& x, Activation kind);
  void gated_activation(const Tensor& out, const Tensor& gate, const Tensor& up, Activation kind);
  void softmax(const Tensor& out, const Tensor& x, float scale = 1.0f);
  void add(const Tensor& out, const Tensor& a, const Tensor& b);
  void copy(const Tensor& out, const Tensor& x);
  void increment(const Tensor& x, int64_t amount);
  void argmax(const Tensor& out, const Tensor& x);
  void repetition_penalty(const Tensor& logits, const Tensor& seen, float penalty);
  void sample(const Tensor& out, const Tensor& logits, const Tensor& rng, float temperature, int top_k, float top_p,
              const Tensor& seen = {});
  void random(const Tensor& out, aa_random_kind kind, uint64_t seed, uint64_t offset, double low, double high);

  // Every op, where it runs, and how often it fell back.
  std::vector<OpPlacement> placements() const;
  // Whether every op of the list above runs on the accelerator itself, so that a step of it can be captured in a graph.
  bool all_native() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace anyaccel::ops
