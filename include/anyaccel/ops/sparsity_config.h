// The layouts of block-sparse attention (anyaccel/ops/sparse_attn.h), which define the blocks of a matrix of attention
// scores that exist, with DeepSpeed's names and rules.
//
// A layout is a tensor int64 [num_heads, S / block, S / block] in host memory; 1: the queries of that row of blocks see
// the keys of that column of blocks. Unless `different_layout_per_head`, every head has the layout of head 0.
// Constructors and make_layout() throw InvalidArgument for settings that contradict each other or do not fit the
// length. "Unidirectional" applies to whole blocks: within a block on the diagonal, every query sees every key unless a
// mask hides it.
//
// Random blocks are drawn without replacement from the object's own generator, seeded with `seed`: two objects created
// with the same arguments give the same layouts in the same order.
#pragma once

#include <cstdint>
#include <vector>

#include "anyaccel/generator.h"
#include "anyaccel/tensor.h"

namespace anyaccel::ops {

enum class AttentionDirection { Bidirectional, Unidirectional };

class SparsityConfig {
 public:
  virtual ~SparsityConfig() = default;
  int64_t num_heads() const noexcept { return num_heads_; }
  int64_t block() const noexcept { return block_; }
  bool different_layout_per_head() const noexcept { return different_; }
  // seq_len: a multiple of block(), else "Sequence Length, {S}, needs to be dividable by Block size {block}!".
  Tensor make_layout(int64_t seq_len);

 protected:
  // The layout of one head; n is the number of blocks in a row.
  class Grid {
   public:
    explicit Grid(int64_t n) : n_(n), seen_(static_cast<size_t>(n * n)) {}
    int64_t n() const noexcept { return n_; }
    // Sets blocks. Ranges are [begin, end), clamped to the grid.
    void set(int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end);
    void clear_above_diagonal();
    const std::vector<uint8_t>& values() const noexcept { return seen_; }

   private:
    int64_t n_;
    std::vector<uint8_t> seen_;
  };

  SparsityConfig(int64_t num_heads, int64_t block, bool different_layout_per_head);
  // Sets the blocks of one head.
  virtual void fill(int64_t head, Grid& grid) = 0;

 private:
  int64_t num_heads_;
  int64_t block_;
  bool different_;
};

// All blocks.
class DenseSparsityConfig final : public SparsityConfig {
 public:
  explicit DenseSparsityConfig(int64_t num_heads, int64_t block = 16, bool different_layout_per_head = false)
      : SparsityConfig(num_heads, block, different_layout_per_head) {}

 private:
  void fill(int64_t head, Grid& grid) override;
};

// Each row of blocks sees its window of `num_local_blocks`. The last `num_global_blocks` of each window are global:
// every row sees them (unidirectional: the rows from theirs on), and with `horizontal_global_attention` they see every
// column. With `num_different_global_patterns` above 1, head h takes run number h % patterns of that length, counted
// from the end of the window.
class FixedSparsityConfig final : public SparsityConfig {
 public:
  explicit FixedSparsityConfig(int64_t num_heads, int64_t block = 16, bool different_layout_per_head = false,
                               int64_t num_local_blocks = 4, int64_t num_global_blocks = 1,
                               AttentionDirection attention = AttentionDirection::Bidirectional,
                               bool horizontal_global_attention = false, int64_t num_different_global_patterns = 1);

 private:
  void fill(int64_t head, Grid& grid) override;
  int64_t local_, global_;
  AttentionDirection attention_;
  bool horizontal_;
  int64_t patterns_;
};

// Windows of the given sizes, of which the last repeats; columns of global blocks, single ones or, with
// `global_block_end_indices`, ranges [start, end); and random blocks in each row, on both sides of the diagonal even if
// it is unidirectional.
class VariableSparsityConfig final : public SparsityConfig {
 public:
  explicit VariableSparsityConfig(int64_t num_heads, int64_t block = 16, bool different_layout_per_head = false,
                                  int64_t num_random_blocks = 0, std::vector<int64_t> local_window_blocks = {4},
                                  std::vector<int64_t> global_block_indices = {0},
                                  std::vector<int64_t> global_block_end_indices = {},
                                  AttentionDirection attention = AttentionDirection::Bidirectional,
                                  bool horizontal_global_attention = false, uint64_t seed = Generator::default_seed);

 private:
  void fill(int64_t head, Grid& grid) override;
  int64_t random_;
  std::vector<int64_t> windows_, global_begin_, global_end_;
  AttentionDirection attention_;
  bool horizontal_;
  Generator generator_;
};

// Random blocks, a sliding window, and the first rows and columns. Unidirectional: random blocks are those at or before
// the row's own; a row that has fewer than `num_random_blocks` of them takes all.
class BigBirdSparsityConfig final : public SparsityConfig {
 public:
  explicit BigBirdSparsityConfig(int64_t num_heads, int64_t block = 16, bool different_layout_per_head = false,
                                 int64_t num_random_blocks = 1, int64_t num_sliding_window_blocks = 3,
                                 int64_t num_global_blocks = 1,
                                 AttentionDirection attention = AttentionDirection::Bidirectional,
                                 uint64_t seed = Generator::default_seed);

 private:
  void fill(int64_t head, Grid& grid) override;
  int64_t random_, window_, global_;
  AttentionDirection attention_;
  Generator generator_;
};

// A sliding window, and rows and columns of global blocks.
class BSLongformerSparsityConfig final : public SparsityConfig {
 public:
  explicit BSLongformerSparsityConfig(int64_t num_heads, int64_t block = 16, bool different_layout_per_head = false,
                                      int64_t num_sliding_window_blocks = 3,
                                      std::vector<int64_t> global_block_indices = {0},
                                      std::vector<int64_t> global_block_end_indices = {},
                                      AttentionDirection attention = AttentionDirection::Bidirectional);

 private:
  void fill(int64_t head, Grid& grid) override;
  int64_t window_;
  std::vector<int64_t> global_begin_, global_end_;
  AttentionDirection attention_;
};

// A sliding window alone; unidirectional by default, unlike the others.
class LocalSlidingWindowSparsityConfig final : public SparsityConfig {
 public:
  explicit LocalSlidingWindowSparsityConfig(int64_t num_heads, int64_t block = 16,
                                            int64_t num_sliding_window_blocks = 3,
                                            AttentionDirection attention = AttentionDirection::Unidirectional);

 private:
  void fill(int64_t head, Grid& grid) override;
  int64_t window_;
  AttentionDirection attention_;
};

}  // namespace anyaccel::ops
