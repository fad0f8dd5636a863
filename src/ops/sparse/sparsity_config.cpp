// Implements anyaccel/ops/sparsity_config.h, the layouts of block-sparse attention.
#include "anyaccel/ops/sparsity_config.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "anyaccel/error.h"
#include "anyaccel/philox.h"

namespace anyaccel::ops {
namespace {

[[noreturn]] void refuse_layout(const std::string& what) { throw InvalidArgument("sparsity config: " + what); }

int64_t at_least(const char* name, int64_t value, int64_t least) {
  if (value < least) {
    refuse_layout(std::string(name) + " must be at least " + std::to_string(least) + ", and is " +
                  std::to_string(value));
  }
  return value;
}

void check_horizontal(AttentionDirection attention, bool horizontal) {
  if (horizontal && attention != AttentionDirection::Bidirectional) {
    refuse_layout("only \"bi-directional\" attentions can support horizontal global attention!");
  }
}

// Returns the ends of global blocks: the given ones, or ends that make each of them one block.
std::vector<int64_t> ends_of(const std::vector<int64_t>& begins, std::vector<int64_t> ends) {
  for (const int64_t begin : begins) at_least("a global block's index", begin, 0);
  if (ends.empty()) {
    for (const int64_t begin : begins) ends.push_back(begin + 1);
  }
  if (ends.size() != begins.size()) {
    refuse_layout("Global block start indices length, " + std::to_string(begins.size()) +
                  ", must be same as global block end indices length, " + std::to_string(ends.size()) + "!");
  }
  for (size_t i = 0; i < ends.size(); ++i) {
    if (begins[i] >= ends[i]) {
      refuse_layout("Global block start index, " + std::to_string(begins[i]) +
                    ", must be smaller than global block end index, " + std::to_string(ends[i]) + "!");
    }
  }
  return ends;
}

void check_row_holds(const char* kind, int64_t count, int64_t n) {
  if (n < count) {
    refuse_layout(std::string("Number of ") + kind + " blocks, " + std::to_string(count) +
                  ", must be smaller than overall number of blocks in a row, " + std::to_string(n) + "!");
  }
}

// Returns `count` different numbers below n (all of them if there are fewer), which are the first draws of a shuffle.
std::vector<int64_t> sample(Generator& generator, int64_t n, int64_t count) {
  count = std::min(count, n);
  std::vector<int64_t> numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  const RngState state = generator.reserve(static_cast<uint64_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const auto words = philox_words(state.seed, state.offset + static_cast<uint64_t>(i));
    const uint64_t word = uint64_t{words[1]} << 32 | words[0];
    // The remainder of 64 bits divided by a number of blocks is uniform to one part in billions.
    std::swap(numbers[static_cast<size_t>(i)],
              numbers[static_cast<size_t>(i) + static_cast<size_t>(word % static_cast<uint64_t>(n - i))]);
  }
  numbers.resize(static_cast<size_t>(count));
  return numbers;
}

}  // namespace

void SparsityConfig::Grid::set(int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
  const int64_t last_row = std::min(row_end, n_), last_column = std::min(column_end, n_);
  for (int64_t row = std::max<int64_t>(row_begin, 0); row < last_row; ++row) {
    for (int64_t column = std::max<int64_t>(column_begin, 0); column < last_column; ++column) {
      seen_[static_cast<size_t>(row * n_ + column)] = 1;
    }
  }
}

void SparsityConfig::Grid::clear_above_diagonal() {
  for (int64_t row = 0; row < n_; ++row) {
    for (int64_t column = row + 1; column < n_; ++column) seen_[static_cast<size_t>(row * n_ + column)] = 0;
  }
}

SparsityConfig::SparsityConfig(int64_t num_heads, int64_t block, bool different_layout_per_head)
    : num_heads_(at_least("num_heads", num_heads, 1)),
      block_(at_least("block", block, 1)),
      different_(different_layout_per_head) {}

Tensor SparsityConfig::make_layout(int64_t seq_len) {
  if (seq_len < 0 || seq_len % block_ != 0) {
    refuse_layout("Sequence Length, " + std::to_string(seq_len) + ", needs to be dividable by Block size " +
                  std::to_string(block_) + "!");
  }
  const int64_t n = seq_len / block_;
  const Tensor layout = Tensor::empty({num_heads_, n, n}, DType::I64);
  auto* out = layout.data_as<int64_t>();
  for (int64_t head = 0; head < num_heads_; ++head) {
    if (head > 0 && !different_) {
      std::copy_n(layout.data_as<int64_t>(), n * n, out);
    } else {
      Grid grid(n);
      fill(head, grid);
      std::copy(grid.values().begin(), grid.values().end(), out);
    }
    out += n * n;
  }
  return layout;
}

void DenseSparsityConfig::fill(int64_t, Grid& grid) { grid.set(0, grid.n(), 0, grid.n()); }

FixedSparsityConfig::FixedSparsityConfig(int64_t num_heads, int64_t block, bool different_layout_per_head,
                                         int64_t num_local_blocks, int64_t num_global_blocks,
                                         AttentionDirection attention, bool horizontal_global_attention,
                                         int64_t num_different_global_patterns)
    : SparsityConfig(num_heads, block, different_layout_per_head),
      local_(at_least("num_local_blocks", num_local_blocks, 1)),
      global_(at_least("num_global_blocks", num_global_blocks, 1)),
      attention_(attention),
      horizontal_(horizontal_global_attention),
      patterns_(at_least("num_different_global_patterns", num_different_global_patterns, 1)) {
  if (local_ % global_ != 0) {
    refuse_layout("Number of blocks in a local window, " + std::to_string(local_) +
                  ", must be dividable by number of global blocks, " + std::to_string(global_) + "!");
  }
  check_horizontal(attention_, horizontal_);
  if (patterns_ > 1 && !different_layout_per_head) {
    refuse_layout(
        "Number of different layouts cannot be more than one when you have set a single layout for all heads! Set "
        "different_layout_per_head to True.");
  }
  if (patterns_ > local_ / global_) {
    refuse_layout("Number of layout versions (num_different_global_patterns), " + std::to_string(patterns_) +
                  ", cannot be larger than number of local window blocks divided by number of global blocks, " +
                  std::to_string(local_) + " / " + std::to_string(global_) + " = " + std::to_string(local_ / global_) +
                  "!");
  }
}

void FixedSparsityConfig::fill(int64_t head, Grid& grid) {
  const int64_t n = grid.n();
  const bool both_ways = attention_ == AttentionDirection::Bidirectional;
  for (int64_t begin = 0; begin < n; begin += local_) {
    for (int64_t row = begin; row < std::min(begin + local_, n); ++row) {
      grid.set(row, row + 1, begin, both_ways ? begin + local_ : row + 1);
    }
  }
  const auto set_global = [&](int64_t begin) {
    grid.set(both_ways ? 0 : begin, n, begin, begin + global_);
    if (horizontal_) grid.set(begin, begin + global_, 0, n);
  };
  const int64_t first = local_ - (1 + head % patterns_) * global_;
  const int64_t whole = n - n % local_;  // blocks in whole windows
  for (int64_t begin = first; begin < whole; begin += local_) set_global(begin);
  if (whole == n) return;
  int64_t last = std::min(whole + first, n - global_);
  // With fewer blocks than global ones DeepSpeed counts from the end, and models are trained with its layouts.
  if (last < 0) last = std::max<int64_t>(n + last, 0);
  set_global(last);
}

VariableSparsityConfig::VariableSparsityConfig(int64_t num_heads, int64_t block, bool different_layout_per_head,
                                               int64_t num_random_blocks, std::vector<int64_t> local_window_blocks,
                                               std::vector<int64_t> global_block_indices,
                                               std::vector<int64_t> global_block_end_indices,
                                               AttentionDirection attention, bool horizontal_global_attention,
                                               uint64_t seed)
    : SparsityConfig(num_heads, block, different_layout_per_head),
      random_(at_least("num_random_blocks", num_random_blocks, 0)),
      windows_(std::move(local_window_blocks)),
      global_begin_(std::move(global_block_indices)),
      global_end_(ends_of(global_begin_, std::move(global_block_end_indices))),
      attention_(attention),
      horizontal_(horizontal_global_attention) {
  if (windows_.empty()) refuse_layout("local_window_blocks must name one window at least, and is empty");
  for (const int64_t window : windows_) at_least("a window of local_window_blocks", window, 1);
  check_horizontal(attention_, horizontal_);
  generator_.manual_seed(seed);
}

void VariableSparsityConfig::fill(int64_t, Grid& grid) {
  const int64_t n = grid.n();
  const bool both_ways = attention_ == AttentionDirection::Bidirectional;
  check_row_holds("random", random_, n);
  for (int64_t row = 0; row < n && random_ > 0; ++row) {
    for (const int64_t column : sample(generator_, n, random_)) grid.set(row, row + 1, column, column + 1);
  }
  size_t window = 0;
  for (int64_t begin = 0; begin < n;) {
    const int64_t end = std::min(begin + windows_[window], n);
    for (int64_t row = begin; row < end; ++row) grid.set(row, row + 1, begin, both_ways ? end : row + 1);
    begin = end;
    if (window + 1 < windows_.size()) ++window;
  }
  for (size_t i = 0; i < global_begin_.size(); ++i) {
    if (global_begin_[i] >= n) continue;
    if (horizontal_) grid.set(global_begin_[i], global_end_[i], 0, n);
    grid.set(both_ways ? 0 : global_begin_[i], n, global_begin_[i], global_end_[i]);
  }
}

BigBirdSparsityConfig::BigBirdSparsityConfig(int64_t num_heads, int64_t block, bool different_layout_per_head,
                                             int64_t num_random_blocks, int64_t num_sliding_window_blocks,
                                             int64_t num_global_blocks, AttentionDirection attention, uint64_t seed)
    : SparsityConfig(num_heads, block, different_layout_per_head),
      random_(at_least("num_random_blocks", num_random_blocks, 0)),
      window_(at_least("num_sliding_window_blocks", num_sliding_window_blocks, 0)),
      global_(at_least("num_global_blocks", num_global_blocks, 0)),
      attention_(attention) {
  generator_.manual_seed(seed);
}

void BigBirdSparsityConfig::fill(int64_t, Grid& grid) {
  const int64_t n = grid.n();
  check_row_holds("random", random_, n);
  check_row_holds("sliding window", window_, n);
  check_row_holds("global", global_, n);
  const bool both_ways = attention_ == AttentionDirection::Bidirectional;
  for (int64_t row = 0; row < n; ++row) {
    if (random_ > 0) {
      for (const int64_t column : sample(generator_, both_ways ? n : row + 1, random_)) {
        grid.set(row, row + 1, column, column + 1);
      }
    }
    grid.set(row, row + 1, row - window_ / 2, row + window_ / 2 + 1);
  }
  grid.set(0, global_, 0, n);
  grid.set(0, n, 0, global_);
  if (!both_ways) grid.clear_above_diagonal();
}

BSLongformerSparsityConfig::BSLongformerSparsityConfig(int64_t num_heads, int64_t block, bool different_layout_per_head,
                                                       int64_t num_sliding_window_blocks,
                                                       std::vector<int64_t> global_block_indices,
                                                       std::vector<int64_t> global_block_end_indices,
                                                       AttentionDirection attention)
    : SparsityConfig(num_heads, block, different_layout_per_head),
      window_(at_least("num_sliding_window_blocks", num_sliding_window_blocks, 0)),
      global_begin_(std::move(global_block_indices)),
      global_end_(ends_of(global_begin_, std::move(global_block_end_indices))),
      attention_(attention) {}

void BSLongformerSparsityConfig::fill(int64_t, Grid& grid) {
  const int64_t n = grid.n();
  check_row_holds("sliding window", window_, n);
  for (int64_t row = 0; row < n; ++row) grid.set(row, row + 1, row - window_ / 2, row + window_ / 2 + 1);
  for (size_t i = 0; i < global_begin_.size(); ++i) {
    if (global_begin_[i] >= n) continue;
    grid.set(global_begin_[i], global_end_[i], 0, n);
    grid.set(0, n, global_begin_[i], global_end_[i]);
  }
  if (attention_ == AttentionDirection::Unidirectional) grid.clear_above_diagonal();
}

LocalSlidingWindowSparsityConfig::LocalSlidingWindowSparsityConfig(int64_t num_heads, int64_t block,
                                                                   int64_t num_sliding_window_blocks,
                                                                   AttentionDirection attention)
    : SparsityConfig(num_heads, block, false),
      window_(at_least("num_sliding_window_blocks", num_sliding_window_blocks, 0)),
      attention_(attention) {}

void LocalSlidingWindowSparsityConfig::fill(int64_t, Grid& grid) {
  check_row_holds("sliding window", window_, grid.n());
  const bool both_ways = attention_ == AttentionDirection::Bidirectional;
  for (int64_t row = 0; row < grid.n(); ++row) {
    grid.set(row, row + 1, row - window_ / 2, both_ways ? row + window_ / 2 + 1 : row + 1);
  }
}

}  // namespace anyaccel::ops
