// Implements block_lists.h, the lists of a layout's blocks, and sdd_segment.
#include "ops/sparse/block_lists.h"

#include <algorithm>
#include <string>

#include "anyaccel/error.h"
#include "ops/host/quant_support.h"

namespace anyaccel::ops {
namespace {

Tensor to_device(const std::vector<int32_t>& numbers, const Shape& shape, Device device) {
  return Tensor::from_host(numbers.data(), shape, DType::I32, device);
}

BlockLists make_lists(const std::vector<int32_t>& places, int64_t heads, int64_t per_head, bool by_column) {
  BlockLists lists;
  lists.per_head = per_head;
  lists.begins.assign(static_cast<size_t>(heads * per_head + 1), 0);
  const size_t blocks = places.size() / 3;
  const auto list_of = [&](size_t n) {
    return static_cast<size_t>(places[3 * n] * per_head + places[3 * n + (by_column ? 2 : 1)]);
  };
  for (size_t n = 0; n < blocks; ++n) ++lists.begins[list_of(n) + 1];
  for (size_t i = 1; i < lists.begins.size(); ++i) lists.begins[i] += lists.begins[i - 1];
  std::vector<int32_t> next(lists.begins.begin(), lists.begins.end() - 1);
  lists.entries.resize(2 * blocks);
  for (size_t n = 0; n < blocks; ++n) {
    const auto at = static_cast<size_t>(2 * next[list_of(n)]++);
    lists.entries[at] = places[3 * n + (by_column ? 1 : 2)];
    lists.entries[at + 1] = static_cast<int32_t>(n);
  }
  return lists;
}

}  // namespace

SparseAttn::Layout::Layout(const char* op, const Tensor& layout, int64_t block) : block_(block) {
  check_present(op, "layout", layout);
  if (layout.dtype() != DType::I32 && layout.dtype() != DType::I64) {
    refuse_call(op, "layout must be int32 or int64, and is " + tensor_text(layout));
  }
  if (layout.ndim() != 2 && layout.ndim() != 3) {
    refuse_call(op, "layout must be [heads, rows, columns] or [rows, columns], and is " + tensor_text(layout));
  }
  if (layout.ndim() == 3 && layout.size(0) == 0) {
    refuse_call(op, "layout must be of at least one head, and is " + tensor_text(layout));
  }
  if (block < 1) refuse_call(op, "block must be at least 1, and is " + std::to_string(block));
  heads_ = layout.ndim() == 3 ? layout.size(0) : 0;
  rows_ = layout.size(-2);
  columns_ = layout.size(-1);
  const std::vector<int64_t> values = layout.to_vector<int64_t>();
  std::vector<uint8_t> seen(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 0 && values[i] != 1) {
      refuse_call(op,
                  "layout must hold 0 and 1, and element " + std::to_string(i) + " is " + std::to_string(values[i]));
    }
    seen[i] = values[i] != 0;
  }
  find_places(seen);
}

SparseAttn::Layout::Layout(std::vector<uint8_t> seen, int64_t heads, int64_t rows, int64_t columns, int64_t block)
    : heads_(heads), rows_(rows), columns_(columns), block_(block) {
  find_places(seen);
}

void SparseAttn::Layout::find_places(const std::vector<uint8_t>& seen) {
  for (int64_t head = 0, i = 0; head < std::max<int64_t>(heads_, 1); ++head) {
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t column = 0; column < columns_; ++column, ++i) {
        if (!seen[static_cast<size_t>(i)]) continue;
        for (const int64_t coordinate : {head, row, column}) places_.push_back(static_cast<int32_t>(coordinate));
      }
    }
  }
}

const SparseAttn::Layout::ForHeads& SparseAttn::Layout::for_heads(int64_t heads) {
  std::lock_guard lock(mutex_);
  const auto [found, fresh] = lists_.try_emplace(heads);
  ForHeads& lists = found->second;
  if (fresh) {
    lists.heads = heads;
    const int64_t copies = heads_ == 0 ? heads : 1;
    lists.blocks = blocks() * copies;
    if (lists.blocks > INT32_MAX / 2) {
      lists_.erase(found);
      throw InvalidArgument("a sparse matrix of " + std::to_string(blocks() * copies) +
                            " blocks: their numbers would not fit 32 bits");
    }
    lists.places.reserve(static_cast<size_t>(3 * lists.blocks));
    for (int64_t copy = 0; copy < copies; ++copy) {
      for (size_t i = 0; i < places_.size(); ++i) {
        lists.places.push_back(places_[i] + (i % 3 == 0 ? static_cast<int32_t>(copy) : 0));
      }
    }
    lists.rows = make_lists(lists.places, heads, rows_, false);
    lists.columns = make_lists(lists.places, heads, columns_, true);
  }
  return lists;
}

const PlacedLists& SparseAttn::Layout::placed(int64_t heads, Device device) {
  const ForHeads& lists = for_heads(heads);
  std::lock_guard lock(mutex_);
  for (const auto& [key, known] : placed_) {
    if (key.first == heads && key.second == device) return *known;
  }
  const auto pair = [&](const BlockLists& from) {
    return PlacedLists::Pair{to_device(from.begins, {static_cast<int64_t>(from.begins.size())}, device),
                             to_device(from.entries, {lists.blocks, 2}, device)};
  };
  placed_.emplace_back(std::pair(heads, device),
                       std::make_unique<PlacedLists>(PlacedLists{to_device(lists.places, {lists.blocks, 3}, device),
                                                                 pair(lists.rows), pair(lists.columns)}));
  return *placed_.back().second;
}

// ---- sdd_segment ----------------------------------------------------------------------------------------------------

namespace {

// Finds the groups of one width in one head. A block's square is the size of the largest group that ends there (at its
// bottom right corner). A group consists of the last `width` blocks that were found in the row, in the rows of the
// blocks that were found last in the column.
class HeadSegments {
 public:
  HeadSegments(int32_t* layout, const int32_t* numbers, int64_t rows, int64_t columns, int32_t head)
      : layout_(layout), numbers_(numbers), rows_(rows), columns_(columns), head_(head) {}

  void take(int64_t width, std::vector<int32_t>& taken) {
    const auto depth = static_cast<size_t>(width);
    std::vector<int32_t> square(static_cast<size_t>(rows_ * columns_), 0);
    std::vector<std::vector<int64_t>> above(static_cast<size_t>(columns_));  // rows of the blocks found in each column
    const auto at = [&](int64_t row, int64_t column) { return static_cast<size_t>(row * columns_ + column); };
    for (int64_t row = 0; row < rows_; ++row) {
      std::vector<int64_t> before;  // columns of the blocks found in this row
      for (int64_t column = 0; column < columns_; ++column) {
        if (layout_[at(row, column)] == 0) continue;
        std::vector<int64_t>& met = above[static_cast<size_t>(column)];
        const int64_t last_row = met.empty() ? -1 : met.back(), last_column = before.empty() ? -1 : before.back();
        int32_t size = 1;
        if (last_row >= 0 && last_column >= 0) {
          size +=
              std::min({square[at(row, last_column)], square[at(last_row, column)], square[at(last_row, last_column)]});
        }
        // A block in a column in between, below the previous block of this column, would lie inside the group.
        for (int64_t between = last_column + 1; between < column; ++between) {
          const std::vector<int64_t>& other = above[static_cast<size_t>(between)];
          if (!other.empty() && other.back() > last_row) size = 1;
        }
        square[at(row, column)] = size;
        before.push_back(column);
        met.push_back(row);
        if (size != width || before.size() < depth || met.size() < depth) continue;
        for (size_t i = met.size() - depth; i < met.size(); ++i) {
          for (size_t j = before.size() - depth; j < before.size(); ++j) {
            const size_t block = at(met[i], before[j]);
            layout_[block] = 0;
            square[block] = 0;
            taken.insert(taken.end(),
                         {head_, static_cast<int32_t>(met[i]), static_cast<int32_t>(before[j]), numbers_[block]});
          }
        }
      }
    }
  }

 private:
  int32_t* layout_;
  const int32_t* numbers_;
  int64_t rows_, columns_;
  int32_t head_;
};

}  // namespace

std::vector<SparseAttn::Segment> SparseAttn::sdd_segment(const Tensor& layout, int64_t start_width) const {
  const char* op = "sdd_segment";
  check_dtype(op, "layout", layout, DType::I32);
  if (layout.ndim() != 3 || !layout.device().is_host() || !layout.is_contiguous()) {
    refuse_call(op, "layout must be [heads, rows, columns], contiguous and in host memory, and is " +
                        tensor_text(layout) + " on " + layout.device().name());
  }
  if (start_width < 1) refuse_call(op, "start_width must be at least 1, and is " + std::to_string(start_width));
  const int64_t heads = layout.size(0), rows = layout.size(1), columns = layout.size(2);
  auto* values = layout.data_as<int32_t>();
  std::vector<int32_t> numbers(static_cast<size_t>(layout.numel()), 0);
  int32_t number = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (values[i] != 0 && values[i] != 1) {
      refuse_call(op,
                  "layout must hold 0 and 1, and element " + std::to_string(i) + " is " + std::to_string(values[i]));
    }
    if (values[i]) numbers[i] = number++;
  }
  std::vector<Segment> segments;
  for (int64_t width = start_width; width > 0; width /= 2) {
    std::vector<int32_t> taken;
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t first = head * rows * columns;
      HeadSegments(values + first, numbers.data() + first, rows, columns, static_cast<int32_t>(head))
          .take(width, taken);
    }
    if (taken.empty()) continue;
    segments.push_back(
        {width, Tensor::from_host(taken.data(), {static_cast<int64_t>(taken.size()) / 4, 4}, DType::I32)});
  }
  return segments;
}

}  // namespace anyaccel::ops
