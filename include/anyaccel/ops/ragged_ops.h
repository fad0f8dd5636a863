// Batches of sequences of different lengths with a paged cache of keys and values, and mixtures of experts: the
// libraries that "RaggedOpsBuilder" and "RaggedUtilsBuilder" load.
//
// The T rows of a ragged batch are the new tokens of its sequences, one sequence after another. Rows from
// batch.n_tokens on are padding: they are neither read nor written. A sequence keeps its keys and values in blocks of a
// cache [n_blocks, block_size, 2, n_kv_heads, d] (0: keys, 1: values); position p lies in block kv_blocks[sequence][p /
// block_size], place p % block_size.
//
// Where DeepSpeed's kernels take descriptors and pointers in device memory, these functions take tensors on the device:
// `seqs` int32 [n_sequences, 4] (rows of InflightSeq), `tokens_to_seq` int32 [T], `kv_blocks` int32 [n_sequences,
// blocks of the longest]. Values in them that point outside a tensor are ignored: nothing is read or written for them.
// Floats are float32, float16 or bfloat16, one dtype per call; arithmetic is fp32. Tensors that are not contiguous are
// copied, outputs included. Calls enqueue on the calling thread's current stream, except that an accelerator without
// portable kernels computes on the host and returns when the result is complete. An InvalidArgument names the tensor,
// what was found and what was expected. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "anyaccel/op_builder.h"
#include "anyaccel/tensor.h"

namespace anyaccel::ops {

struct RaggedBatch {
  int32_t n_tokens = 0;
  int32_t n_sequences = 0;
};

// A row of `seqs`.
struct InflightSeq {
  int32_t start_idx = 0;    // its first row of the batch
  int32_t n_tokens = 0;     // number of its rows
  int32_t seen_tokens = 0;  // positions that are in the cache already
  int32_t pad = 0;
};

// A row of `atoms`: up to q_block queries of a sequence.
struct AttentionAtom {
  int32_t sequence = 0;  // the row of kv_blocks that it reads
  int32_t q_start_idx = 0;
  int32_t q_len = 0;
  int32_t kv_blocks = 0;
  int32_t total_extent = 0;  // number of positions up to its last query's, inclusive
  int32_t global_q_idx = 0;  // position of its first query
  int32_t unused[2] = {0, 0};
};
static_assert(sizeof(InflightSeq) == 16 && sizeof(AttentionAtom) == 32);

class RaggedOps : public OpLibrary {
 public:
  RaggedOps(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code);
  ~RaggedOps() override;

  // Fills rows of `atoms` int32 [max, 8] in host memory from `seqs` int32 [n, 4] in host memory; returns their number.
  // Each sequence, in order, gets ceil(n_tokens / q_block) atoms.
  int64_t build_atoms(const Tensor& atoms, const RaggedBatch& batch, const Tensor& seqs, int64_t q_block,
                      int64_t kv_block) const;
  // out, q [T, nh * d]; the caches [n_blocks, block, n_kv, d], usually kv_cache.select(2, 0) and (2, 1); nh is a
  // multiple of n_kv; d at most 256. atoms int32 [n, 8] on the device; the call waits until they are complete. Query i
  // of an atom is at position global_q_idx + i, and sees the positions up to total_extent, or with is_causal up to its
  // own.
  void flash_attn_by_atoms(const Tensor& out, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                           const Tensor& atoms, const Tensor& kv_blocks, float softmax_scale, bool is_causal);
  // Rotates the first rotary_dim elements of each head of q [T, nq * d] (in place) and of k [T, nkv * d] by the angles
  // position / theta_base^(2 j / rotary_dim), elements j and j + rotary_dim / 2 together, and writes k and v to the
  // cache.
  void kv_rotary_embeddings(const Tensor& kv_cache, const Tensor& q, const Tensor& k, const Tensor& v,
                            int64_t rotary_dim, float theta_base, const RaggedBatch& batch, const Tensor& seqs,
                            const Tensor& tokens_to_seq, const Tensor& kv_blocks);
  // The same with given frequencies, float32 [rotary_dim / 2].
  void kv_trained_rotary_embeddings(const Tensor& kv_cache, const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& inv_freq, const RaggedBatch& batch, const Tensor& seqs,
                                    const Tensor& tokens_to_seq, const Tensor& kv_blocks);
  // Writes k and v to the cache unchanged.
  void linear_kv_copy(const Tensor& kv_cache, const Tensor& q, const Tensor& k, const Tensor& v,
                      const RaggedBatch& batch, const Tensor& seqs, const Tensor& tokens_to_seq,
                      const Tensor& kv_blocks);
  // out [T, E] = table[ids] (+ position_table[position + position_offset], clamped to its rows). ids int32 or int64
  // [T]; an id outside the table leaves its row unchanged.
  void ragged_embed(const Tensor& out, const Tensor& ids, const Tensor& table, const Tensor& position_table,
                    int64_t position_offset, const RaggedBatch& batch, const Tensor& seqs, const Tensor& tokens_to_seq);
  // out [n_sequences, E]: the last row of each sequence in x [T, E].
  void gather_for_logits(const Tensor& out, const Tensor& x, const RaggedBatch& batch, const Tensor& seqs);
  // Finds the k experts with the largest logits [T, E] of each token (the lower number if equal), and writes their
  // numbers, their values of the softmax over all experts, and each token's place among those of its expert, in the
  // order of tokens; padding gets -1. counts int32 [E]: tokens of each expert. scores float32, experts and offsets
  // int32 [T, k].
  void top_k_gating(const Tensor& counts, const Tensor& scores, const Tensor& experts, const Tensor& offsets,
                    const Tensor& logits, const RaggedBatch& batch);
  // moe_input [T * k, C] = x [T, C] ordered by expert; slots int32 [T, k] receives the rows, -1 where a token is not
  // assigned; cumsum int64 [E] receives the sums of counts up to and including each expert.
  void moe_scatter(const Tensor& moe_input, const Tensor& cumsum, const Tensor& slots, const Tensor& x,
                   const Tensor& counts, const Tensor& experts, const Tensor& offsets);
  // out [T, C] = the sum of scores * moe_output [T * k, C] rows, scores divided by their sum with `normalize`; rows
  // without a slot are unchanged. Sets counts to zeros.
  void moe_gather(const Tensor& out, const Tensor& moe_output, const Tensor& scores, const Tensor& slots,
                  const Tensor& counts, bool normalize);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class RaggedUtils : public OpLibrary {
 public:
  explicit RaggedUtils(Accelerator& accelerator) : accelerator_(accelerator) {}

  // Allocates page-locked host memory with a device tensor's shape and dtype.
  Tensor allocate_fast_host_buffer(const Tensor& device_tensor) const;
  // Returns a view of `buffer`'s bytes from offset_bytes on, with the shape, strides and dtype of `like`.
  Tensor allocate_view_on(const Tensor& like, const Tensor& buffer, int64_t offset_bytes) const;
  // The same, with shape, strides and dtype given one by one; strides are in elements.
  Tensor allocate_view_like(const Shape& shape, std::span<const int64_t> strides, const Tensor& dtype_example,
                            const Tensor& buffer, int64_t offset_bytes) const;

 private:
  Accelerator& accelerator_;
};

}  // namespace anyaccel::ops
