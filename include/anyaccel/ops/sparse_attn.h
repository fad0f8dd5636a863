// Attention and products of matrices in which only some square blocks exist: the library that "SparseAttnBuilder"
// loads.
//
// A layout says which blocks of a matrix exist: int32 or int64 [H, rows, columns] of 0 and 1, or [rows, columns] for a
// layout that all heads share (anyaccel/ops/sparsity_config.h makes the usual ones). A sparse matrix is a dense tensor
// [Z, nnz, block, block] of the blocks that exist, in the row-major order of the layout (head, row, column; a shared
// layout counts once per head). Time and memory grow with the number of blocks: nothing with the size of the dense
// matrix is allocated.
//
// Tensors are float32, float16 or bfloat16, all tensors of a call having the same dtype and device; products and sums
// are fp32, and results are rounded to that dtype once. Objects are thread-safe; calls enqueue on the calling thread's
// current stream of the device, except that an accelerator without portable kernels (and the host) computes on the host
// and returns when the result is complete. The first call with a layout on a device blocks while lists of its blocks
// are copied there. An InvalidArgument names the tensor, what was found and what was expected.
//
// The layout and gradients are those of DeepSpeed's classes of these names, with two differences: a row that sees
// nothing (all its scores are -infinity, or it has no blocks) gives zeros where the original gives NaN, and gradients
// of transposed operands have the shape of the operand.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/sparsity_config.h"
#include "anyaccel/tensor.h"

namespace anyaccel::ops {

class SparseAttn : public OpLibrary {
 public:
  struct Impl;
  class Layout;
  SparseAttn(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code);
  ~SparseAttn() override;

  // Groups of width x width blocks.
  struct Segment {
    int64_t width;
    Tensor blocks;  // int32 [n, 4], host memory: head, row, column and number of a block; width * width rows a group
  };
  // Partitions the blocks of an int32 layout [H, M, N] in host memory into groups: for width = start_width, start_width
  // / 2, ... 1, it takes groups of width x width remaining blocks that are adjacent apart from empty blocks between
  // them, greedily in row-major order. Sets the layout to zeros. Widths without a group are left out.
  std::vector<Segment> sdd_segment(const Tensor& layout, int64_t start_width) const;

  // c = op(a) op(b), where op transposes the last two dimensions (of a sparse matrix: of the whole matrix; `layout` is
  // that of the tensor as given) when trans_a or trans_b is set. `mode` says which of c, a and b is sparse:
  //   "sdd"  c [Z, nnz, block, block] of a [Z, H, M, K] and b [Z, H, K, N]
  //   "dsd"  c [Z, H, M, N] of the sparse a and b [Z, H, K, N]
  //   "dds"  c [Z, H, M, N] of a [Z, H, M, K] and the sparse b
  class MatMul {
   public:
    struct Gradients {
      Tensor a, b;
    };
    Tensor operator()(const Tensor& a, const Tensor& b) const;
    // Returns the gradients of a and b, given that of c.
    Gradients backward(const Tensor& a, const Tensor& b, const Tensor& dc) const;

   private:
    friend class SparseAttn;
    std::shared_ptr<Impl> impl_;
    std::shared_ptr<Layout> layout_;
    char c_ = 0, a_ = 0, b_ = 0;  // 's' or 'd'
    bool trans_a_ = false, trans_b_ = false;
  };
  MatMul matmul(const Tensor& layout, int64_t block, const std::string& mode, bool trans_a = false,
                bool trans_b = false) const;

  // Computes the softmax of x * scale + rpe + masks over the rows of a sparse matrix x of scores, in place. rpe is [Z,
  // H, S, S], key_padding_mask [Z, S] and attn_mask [S, S] (or absent), of x's dtype, S the rows and columns of the
  // dense matrix. Mode "add" adds a mask; "mul" hides where it is 0 and leaves the rest unchanged. Infinities are
  // allowed in all of them.
  class Softmax {
   public:
    Tensor operator()(const Tensor& x, float scale = 1, const Tensor& rpe = {}, const Tensor& key_padding_mask = {},
                      const Tensor& attn_mask = {}, const std::string& key_padding_mask_mode = "add",
                      const std::string& attn_mask_mode = "add") const;
    // Overwrites dy with the gradient of x: y * (dy - the row's sum of y * dy) * scale. y is the result of the forward
    // call.
    Tensor backward(const Tensor& y, const Tensor& dy, float scale = 1) const;

   private:
    friend class SparseAttn;
    std::shared_ptr<Impl> impl_;
    std::shared_ptr<Layout> layout_;
  };
  Softmax softmax(const Tensor& layout, int64_t block) const;

  // Computes softmax(q k^T / sqrt(d) + rpe + masks) v over the blocks of a layout. The configuration's layout for
  // max_seq_length is created once, and shorter sequences use its upper left part.
  class SelfAttention {
   public:
    struct Gradients {
      Tensor q, k, v;
    };
    // q, k, v [Z, H, S, d], all of one shape, S a multiple of the block and at most max_seq_length; masks as for
    // Softmax. `weights` receives the softmax's results, float32 [Z, nnz, block, block], which backward() needs;
    // without it a call keeps only a part of the scores at a time.
    Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& rpe = {},
                   const Tensor& key_padding_mask = {}, const Tensor& attn_mask = {}, Tensor* weights = nullptr) const;
    Gradients backward(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                       const Tensor& weights) const;

   private:
    friend class SparseAttn;
    std::shared_ptr<Impl> impl_;
    struct State;
    std::shared_ptr<State> state_;
  };
  SelfAttention self_attention(SparsityConfig& config, const std::string& key_padding_mask_mode = "add",
                               const std::string& attn_mask_mode = "mul", int64_t max_seq_length = 2048) const;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace anyaccel::ops
