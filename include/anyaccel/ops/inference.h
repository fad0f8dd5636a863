// The ops of a decoder model as C++ functions: the library that "InferenceBuilder" loads.
//
// Each method checks its tensors (InvalidArgument names op and tensor), then enqueues on the calling thread's current
// stream of the tensors' device and returns without waiting for the device. Shapes and meaning are those of abi/ops.h.
// All tensors of a call are on one device; an accelerator whose memory the host can access takes host tensors too.
// A tensor that is written has memory of its own, or is exactly (address, strides, dtype) an input that abi/ops.h says it
// may be; InvalidArgument names the tensors that share memory otherwise.
// Every call is run by the accelerator's driver if it can, else by the portable kernels, else by the CPU with copies
// there and back. Such a fallback blocks, is logged once per op and counted, and throws NotImplementedError if
// ANYACCEL_FALLBACK=error is set. A default-constructed Tensor stands for an absent optional one.
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

// One of the products of linear_multi.
struct LinearPart {
  const Tensor& out;
  const Tensor& w;
  const Tensor& bias;  // may be absent
};

// The weights of norm_qkv_rope: w_q [Hq*D, K], w_k and w_v [Hk*D, K], biases [Hq*D] or [Hk*D] or absent.
struct QkvWeights {
  const Tensor& w_q;
  const Tensor& bias_q;
  const Tensor& w_k;
  const Tensor& bias_k;
  const Tensor& w_v;
  const Tensor& bias_v;
  // [D] or absent: each head of the queries and keys is normed by rms_norm with these before it is rotated.
  const Tensor& q_norm;
  const Tensor& k_norm;
};

// The slots of T tokens in a cache of keys and values.
struct CacheSlots {
  const Tensor& keys;       // [B, Hk, S, D]
  const Tensor& values;     // [B, Hk, S, D]
  const Tensor& sequence;   // I32 [T]
  const Tensor& positions;  // I32 [T]
};

// The angles by which the heads of T tokens are rotated, as rope_table gives them.
struct Rotation {
  const Tensor& cos;  // F32 [T, R]
  const Tensor& sin;  // F32 [T, R]
  bool interleaved = false;
};

// Where one op runs on the active accelerator. If none of the three flags is set, the op falls back to the CPU.
struct OpPlacement {
  std::string op;
  bool native = false;       // the driver or the portable kernels have it
  uint64_t fallbacks = 0;    // number of calls that have fallen back to the CPU so far
  bool as_sequence = false;  // the accelerator lacks it and runs a sequence of other ops instead
  // The accelerator lacks it, and models do without it: they decode quantized weights, and do not quantize caches.
  bool avoided = false;
};

class Inference : public OpLibrary {
 public:
  explicit Inference(Accelerator& accelerator);
  ~Inference() override;

  void embedding(const Tensor& out, const Tensor& table, const Tensor& ids);
  // The table holds the rows from `first` on of a larger one; ids of other rows give zeros.
  void embedding_shard(const Tensor& out, const Tensor& table, const Tensor& ids, int64_t first);
  void rms_norm(const Tensor& out, const Tensor& x, const Tensor& weight, float eps, const Tensor& residual = {});
  void layer_norm(const Tensor& out, const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                  const Tensor& residual = {});
  void linear(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias = {},
              const Tensor& residual = {});
  // `w` U8 [N, C]: rows of blocks of the format. `rounded`: x and the decoded weights may be rounded, which is faster.
  void quantized_linear(const Tensor& out, const Tensor& x, const Tensor& w, aa_block_format format, bool rounded,
                        const Tensor& bias = {}, const Tensor& residual = {});
  void quantized_embedding(const Tensor& out, const Tensor& table, aa_block_format format, const Tensor& ids);
  // The table has the rows from `first` on of a larger one; ids of other rows give zeros.
  void quantized_embedding_shard(const Tensor& out, const Tensor& table, aa_block_format format, const Tensor& ids,
                                 int64_t first);
  // True when the accelerator itself implements all three.
  bool takes_quantized_weights() const;
  // The caches are U8 [B, Hk, S, C]: rows of the format.
  void quantized_cache_write(const Tensor& k_cache, const Tensor& v_cache, aa_cache_format format, const Tensor& k,
                             const Tensor& v, const Tensor& sequence, const Tensor& positions);
  void quantized_attention(const Tensor& out, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                           aa_cache_format format, const Tensor& sequence, const Tensor& positions, float scale,
                           int window = 0, float softcap = 0.0f, const Tensor& slopes = {}, const Tensor& sinks = {});
  // True when the accelerator itself implements both.
  bool takes_quantized_caches() const;
  // Returns the weight of a linear in the layout with which the accelerator's driver is fastest, for inputs of the
  // dtype; `w` itself if that is as good. The products accept it in place of `w`. See Accelerator::pack_weight.
  Tensor pack_linear_weight(const Tensor& w, DType input);
  // Runs as single linears if the accelerator has only those.
  void linear_multi(const Tensor& x, std::span<const LinearPart> parts);
  // Runs as two linears and a gated activation if the accelerator has only those.
  void gated_linear(const Tensor& out, const Tensor& x, const Tensor& w_gate, const Tensor& w_up, Activation kind,
                    const Tensor& bias_gate = {}, const Tensor& bias_up = {});
  void rope_table(const Tensor& cos, const Tensor& sin, const Tensor& inv_freq, const Tensor& positions, float scale);
  void rope(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin, bool interleaved = false);
  void cache_write(const Tensor& k_cache, const Tensor& v_cache, const Tensor& k, const Tensor& v,
                   const Tensor& sequence, const Tensor& positions);
  // `slopes` and `sinks` are fp32 [Hq], or absent.
  void attention(const Tensor& out, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                 const Tensor& sequence, const Tensor& positions, float scale, int window = 0, float softcap = 0.0f,
                 const Tensor& slopes = {}, const Tensor& sinks = {});
  void activation(const Tensor& out, const Tensor& x, Activation kind);
  void gated_activation(const Tensor& out, const Tensor& gate, const Tensor& up, Activation kind);
  void softmax(const Tensor& out, const Tensor& x, float scale = 1.0f);
  void add(const Tensor& out, const Tensor& a, const Tensor& b);
  // out = alpha * a + beta * b; b may be absent. out may be a or b.
  void scaled_add(const Tensor& out, const Tensor& a, float alpha, const Tensor& b = {}, float beta = 1.0f);
  void copy(const Tensor& out, const Tensor& x);
  void increment(const Tensor& x, int64_t amount);
  void argmax(const Tensor& out, const Tensor& x);
  void repetition_penalty(const Tensor& logits, const Tensor& seen, float penalty);
  // First adds `ids`, if given, to `counts`.
  void frequency_penalty(const Tensor& logits, const Tensor& counts, float presence, float frequency,
                         const Tensor& ids = {});
  void sample(const Tensor& out, const Tensor& logits, const Tensor& rng, float temperature, int top_k, float top_p,
              const Tensor& seen = {}, float min_p = 0.0f);
  void random(const Tensor& out, aa_random_kind kind, uint64_t seed, uint64_t offset, double low, double high);

  // -- fused ops: the accelerator's own where it has one and runs this call, else the sequence of ops of abi/ops.h,
  //    with memory between them that the object keeps for each stream (in a capture, the graph's own). They never go
  //    to the CPU as one op, and under amp the sequence runs everywhere. `between` is the dtype of the norm's result,
  //    F32, BF16 or F16: the rows that go into the products are rounded to it.
  void norm_linear(const Tensor& out, const Tensor& x, const Tensor& norm, const Tensor& w, float eps,
                   const Tensor& bias = {}, DType between = DType::F32);
  void norm_gated_linear(const Tensor& out, const Tensor& x, const Tensor& norm, const Tensor& w_gate,
                         const Tensor& w_up, Activation kind, float eps, const Tensor& bias_gate = {},
                         const Tensor& bias_up = {}, DType between = DType::F32);
  // The heads of q [T, Hq, D] are contiguous. With norms of heads the sequence always runs.
  void norm_qkv_rope(const Tensor& q, const CacheSlots& cache, const Tensor& x, const Tensor& norm,
                     const QkvWeights& weights, const Rotation& rotation, float eps, DType between = DType::F32);

  // The same two with quantized weights, of one format: the products are those of quantized_linear. Without norms of
  // heads.
  void norm_quantized_gated_linear(const Tensor& out, const Tensor& x, const Tensor& norm, const Tensor& w_gate,
                                   const Tensor& w_up, aa_block_format format, bool rounded, Activation kind, float eps,
                                   const Tensor& bias_gate = {}, const Tensor& bias_up = {});
  void norm_quantized_qkv_rope(const Tensor& q, const CacheSlots& cache, const Tensor& x, const Tensor& norm,
                               const QkvWeights& weights, aa_block_format format, bool rounded,
                               const Rotation& rotation, float eps);

  // Returns for every op where it runs and how often it fell back.
  std::vector<OpPlacement> placements() const;
  // True when every op of the list above, except those for quantized weights and caches, runs on the accelerator
  // itself, as one op or a sequence of others, so that a step that uses them can be captured in a graph.
  bool all_native() const;
  // The ops "linear_by_row" and so on, which ByRow needs, that the accelerator lacks; empty if it lacks none.
  std::vector<std::string> missing_by_row() const;

 protected:
  struct Impl;
  std::unique_ptr<Impl> impl_;

 private:
  friend class ByRow;
};

// While an object of this class lives, products and attention on this thread sum each row of the result in an order
// that depends neither on the number of rows nor on the row's place among them. This is slower. Use it with Inference
// objects for which missing_by_row() is empty; with others the ops run on the CPU, like any that an accelerator lacks.
class ByRow {
 public:
  ByRow() noexcept;
  ~ByRow();
  ByRow(const ByRow&) = delete;
  ByRow& operator=(const ByRow&) = delete;
};

}  // namespace anyaccel::ops
