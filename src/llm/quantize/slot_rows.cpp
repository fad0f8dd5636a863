// Implements slot_rows.h: a reader for each layout that a tensor can have in its file.
#include "llm/quantize/slot_rows.h"

#include <algorithm>

#include "anyaccel/error.h"
#include "llm/checkpoint/packed_matrix.h"
#include "llm/quantize/quantize_rows.h"

namespace anyaccel::llm {
namespace {

// Returns the row of the file's matrix that has this one.
int64_t stored_row(const TensorSource& source, int64_t row) {
  return source.first + row / source.block * source.stride + row % source.block;
}

}  // namespace

SlotRows::SlotRows(const ModelFiles& files, const TensorSlot& slot)
    : files_(files), slot_(slot), view_(files.at(slot)) {
  if (slot.part) throw InvalidArgument("SlotRows: " + slot.name + " is a part of each head's rows");
  if (view_.packed != nullptr) {
    packed_ = view_.packed->read(files.checkpoint());
  } else if (slot.source && slot.source->transposed) {
    const int64_t all = slot.source->shape[0];
    transposed_ = file_rows(all, {0, all});
  }
}

// Returns rows of the file's tensor, which has `all`.
std::vector<float> SlotRows::file_rows(int64_t all, const Slice& rows) const {
  TensorView piece = view_;
  const uint64_t row_bytes = view_.bytes / static_cast<uint64_t>(all);
  const uint64_t skipped = row_bytes * static_cast<uint64_t>(rows.begin);
  piece.offset += skipped;
  if (piece.data != nullptr) piece.data += skipped;
  piece.bytes = row_bytes * static_cast<uint64_t>(rows.size());
  std::vector<float> values = values_as_floats(files_.checkpoint(), piece);
  files_.checkpoint().release(piece);
  return values;
}

std::vector<float> SlotRows::gathered(const Slice& rows) const {
  const TensorSource& source = *slot_.source;
  std::vector<float> values;
  if (source.transposed) {
    const int64_t inputs = source.shape[0], outputs = source.shape[1];
    values.reserve(static_cast<size_t>(rows.size() * inputs));
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const int64_t column = stored_row(source, row);
      for (int64_t i = 0; i < inputs; ++i) values.push_back(transposed_[static_cast<size_t>(i * outputs + column)]);
    }
    return values;
  }
  for (int64_t row = rows.begin; row < rows.end;) {
    const int64_t count = std::min(source.block - row % source.block, rows.end - row);
    const int64_t first = stored_row(source, row);
    const std::vector<float> block = file_rows(source.shape[0], {first, first + count});
    values.insert(values.end(), block.begin(), block.end());
    row += count;
  }
  return values;
}

std::vector<float> SlotRows::read(const Slice& rows) const {
  std::vector<float> values;
  if (packed_ != nullptr) {
    values.resize(static_cast<size_t>(rows.size() * slot_.shape[1]));
    packed_->decode(rows.begin, rows.size(), values.data());
  } else if (slot_.is_gathered()) {
    values = gathered(rows);
  } else {
    values = file_rows(slot_.shape[0], rows);
  }
  if (slot_.adds_one) {
    for (float& value : values) value += 1.0f;
  }
  return values;
}

void SlotRows::read_blocks(const Slice& rows, std::span<std::byte> blocks) const {
  packed_->encode(rows.begin, rows.size(), blocks.data());
}

std::vector<float> head_parts(const TensorSlot& slot, const std::vector<float>& whole) {
  const HeadPart& part = *slot.part;
  const int64_t columns = slot.shape[1];
  std::vector<float> values;
  for (int64_t head = part.first; head < slot.shape[0]; head += slot.head_size) {
    for (int64_t i = 0; i < part.rows * columns; ++i) {
      const int64_t row = part.transposed ? i % part.rows : i / columns;
      const int64_t column = part.transposed ? i / part.rows : i % columns;
      values.push_back(whole[static_cast<size_t>((head + row) * columns + column)]);
    }
  }
  return values;
}

}  // namespace anyaccel::llm
