// Lists the blocks of a layout for the kernels of kernels/portable/block_sparse.cl.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "anyaccel/ops/sparse_attn.h"

namespace anyaccel::ops {

// The blocks of each row, or of each column, of each head. List number `list` has the pairs begins[list] .. begins[list
// + 1] in `entries`; a pair is the column (or row) of a block and its number.
struct BlockLists {
  int64_t per_head = 0;
  std::vector<int32_t> begins;
  std::vector<int32_t> entries;
};

// The lists of a layout for a number of heads, in the memory of a device.
struct PlacedLists {
  struct Pair {
    Tensor begins, entries;
  };
  Tensor places;  // int32 [nnz, 3]: head, row, column
  Pair rows, columns;
};

class SparseAttn::Layout {
 public:
  // `layout` is as in sparse_attn.h; `op` is for error messages. Throws InvalidArgument.
  Layout(const char* op, const Tensor& layout, int64_t block);
  // Takes a part of a layout that is known to be valid: [heads][rows][columns].
  Layout(std::vector<uint8_t> seen, int64_t heads, int64_t rows, int64_t columns, int64_t block);

  int64_t block() const noexcept { return block_; }
  int64_t rows() const noexcept { return rows_; }
  int64_t columns() const noexcept { return columns_; }
  // Returns 0 if all heads share the layout, however many there are.
  int64_t heads() const noexcept { return heads_; }
  // Returns the number of blocks: of all heads, or of one if they share the layout.
  int64_t blocks() const noexcept { return static_cast<int64_t>(places_.size()) / 3; }

  struct ForHeads {
    int64_t heads = 0;
    int64_t blocks = 0;
    BlockLists rows, columns;
    std::vector<int32_t> places;
  };
  // The layout owns the results. Thread-safe.
  const ForHeads& for_heads(int64_t heads);
  const PlacedLists& placed(int64_t heads, Device device);

 private:
  void find_places(const std::vector<uint8_t>& seen);

  int64_t heads_, rows_, columns_, block_;
  std::vector<int32_t> places_;  // head, row, column
  std::mutex mutex_;
  std::map<int64_t, ForHeads> lists_;
  std::vector<std::pair<std::pair<int64_t, Device>, std::unique_ptr<PlacedLists>>> placed_;
};

}  // namespace anyaccel::ops
