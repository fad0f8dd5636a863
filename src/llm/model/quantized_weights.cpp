// Places quantized weights: as blocks, or decoded.
#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/block_format.h"
#include "base/process/all_cores.h"
#include "llm/checkpoint/packed_matrix.h"
#include "llm/model/weight_placer.h"
#include "llm/quantize/quantize_rows.h"

namespace anyaccel::llm {

namespace {

// Decodes rows of a quantized tensor on the host's cores.
Tensor decoded_rows(const BlockFormat& format, std::span<const std::byte> blocks, const Shape& shape) {
  constexpr int64_t rows_at_once = 16;
  Tensor values = Tensor::empty(shape, DType::F32);
  const int64_t rows = shape[0];
  const auto columns = static_cast<size_t>(shape[1]);
  const size_t row_bytes = blocks.size() / static_cast<size_t>(rows);
  const std::span<float> out(static_cast<float*>(values.data()), values.nbytes() / sizeof(float));
  std::atomic<int64_t> next{0};
  on_all_cores(static_cast<size_t>((rows + rows_at_once - 1) / rows_at_once), [&] {
    for (int64_t row = next.fetch_add(rows_at_once); row < rows; row = next.fetch_add(rows_at_once)) {
      const auto first = static_cast<size_t>(row);
      const auto count = static_cast<size_t>(std::min(rows_at_once, rows - row));
      decode_blocks(format, blocks.subspan(first * row_bytes, count * row_bytes),
                    out.subspan(first * columns, count * columns));
    }
  });
  return values;
}

}  // namespace

Tensor WeightPlacer::place_blocks(const TensorView& view, const TensorSlot& slot, bool paired) {
  const Slice part = plan_.held(slot);
  const bool whole_rows = slot.split_dim == 0 || part.size() == slot.shape[slot.split_dim];
  const Shape shape = held_shape(slot, part);
  if (view.packed != nullptr) return place_packed(*view.packed, slot, DType::U8);
  const auto row_bytes = [&view](int64_t values) { return values / view.format->values * view.format->bytes; };
  const int64_t rows = whole_rows ? shape[0] : slot.shape[0];
  const Shape stored({rows, row_bytes(whole_rows ? shape[1] : slot.shape[1])});
  if (whole_rows && !paired && accelerator_.is_host_coherent() && view.data != nullptr) {
    if (std::shared_ptr<void> owner = usable_in_place(checkpoint_.files()[view.file])) {
      mapped_bytes_ += view.bytes;
      return Tensor::from_blob(const_cast<std::byte*>(view.data), stored, DType::U8, std::move(owner), device_);
    }
  }
  Tensor source;
  if (view.data != nullptr) {
    source = Tensor::from_blob(const_cast<std::byte*>(view.data), stored, DType::U8, nullptr);
  } else {
    source = Tensor::empty(stored, DType::U8);
    checkpoint_.read(view, bytes_of(source));
  }
  if (paired) source = unpaired(source, view.paired_rows);
  if (!whole_rows) source = source.slice(1, row_bytes(part.begin), row_bytes(part.end));
  Tensor blocks = Tensor::empty(source.shape(), DType::U8, device_);
  blocks.copy_from(source);
  checkpoint_.release(view);
  return blocks;
}

Tensor WeightPlacer::place_packed(const PackedMatrix& matrix, const TensorSlot& slot, DType wanted) {
  constexpr int64_t piece_values = int64_t{4} << 20;
  constexpr int64_t rows_at_once = 16;
  const bool as_blocks = wanted == DType::U8;
  const auto width = [&](int64_t values) {  // elements of a row
    if (!as_blocks) return values;
    const BlockFormat& format = *matrix.block_format();
    return values / format.values * format.bytes;
  };
  const Slice part = plan_.held(slot);
  const bool by_rows = slot.split_dim == 0;
  const Slice rows = by_rows ? part : Slice{0, matrix.rows()};
  const Slice columns = by_rows ? Slice{0, matrix.columns()} : part;
  const std::unique_ptr<PackedValues> values = matrix.read(checkpoint_);
  Tensor placed = Tensor::empty(Shape({rows.size(), width(columns.size())}), wanted, device_);
  const int64_t step = std::max<int64_t>(piece_values / matrix.columns() / rows_at_once, 1) * rows_at_once;
  for (int64_t begin = rows.begin; begin < rows.end; begin += step) {
    const int64_t end = std::min(begin + step, rows.end);
    Tensor piece = Tensor::empty(Shape({end - begin, width(matrix.columns())}), as_blocks ? DType::U8 : DType::F32);
    std::byte* out = bytes_of(piece).data();
    const size_t row_bytes = piece.nbytes() / static_cast<size_t>(end - begin);
    std::atomic<int64_t> next{begin};
    on_all_cores(static_cast<size_t>((end - begin + rows_at_once - 1) / rows_at_once), [&] {
      for (int64_t row = next.fetch_add(rows_at_once); row < end; row = next.fetch_add(rows_at_once)) {
        const int64_t count = std::min(rows_at_once, end - row);
        std::byte* to = out + static_cast<size_t>(row - begin) * row_bytes;
        if (as_blocks) {
          values->encode(row, count, to);
        } else {
          values->decode(row, count, reinterpret_cast<float*>(to));
        }
      }
    });
    if (columns.size() < matrix.columns()) piece = piece.slice(1, width(columns.begin), width(columns.end));
    placed.slice(0, begin - rows.begin, end - rows.begin).copy_from(piece);
  }
  return placed;
}

Tensor WeightPlacer::place_quantized_as(DType wanted, const TensorView& view, const TensorSlot& slot,
                                        const BlockFormat& format) {
  constexpr int64_t piece_values = int64_t{4} << 20;
  const Slice part = plan_.held(slot);
  const bool whole_rows = slot.split_dim == 0 || part.size() == slot.shape[slot.split_dim];
  const Shape shape = held_shape(slot, part);
  const int64_t rows = shape[0];
  const int64_t stored_columns = slot.shape[1];
  const bool as_blocks = wanted == DType::U8;
  const auto row_bytes = [&format](int64_t values) { return values / format.values * format.bytes; };
  const auto width = [&](int64_t values) { return as_blocks ? row_bytes(values) : values; };  // elements of a row
  Tensor placed = Tensor::empty(Shape({rows, width(shape[1])}), wanted, device_);
  const int64_t unit = std::max<int64_t>(view.paired_rows, 1);
  const int64_t step = (std::max<int64_t>(piece_values / stored_columns, 1) + unit - 1) / unit * unit;
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t end = std::min(begin + step, rows);
    std::vector<float> floats = values_as_floats(checkpoint_, row_slice(view, rows, {begin, end}));
    Tensor values = Tensor::from_blob(floats.data(), Shape({end - begin, stored_columns}), DType::F32, nullptr);
    if (view.paired_rows > 0) values = unpaired(values, view.paired_rows);
    Tensor made = Tensor::empty(Shape({end - begin, row_bytes(stored_columns)}), DType::U8);
    quantize_rows({format, plan_.number_scales(view), {}},
                  {static_cast<const float*>(values.data()), static_cast<size_t>(values.numel())}, bytes_of(made),
                  slot.name);
    if (!as_blocks) made = decoded_rows(format, bytes_of(made), values.shape());
    if (!whole_rows) made = made.slice(1, width(part.begin), width(part.end));
    placed.slice(0, begin, end).copy_from(made);
  }
  checkpoint_.release(view);
  return placed;
}

Tensor WeightPlacer::place_decoded(const TensorView& view, const Shape& stored, const Shape& shape, int split_dim,
                                   const Slice& columns, DType wanted) {
  constexpr int64_t piece_values = int64_t{4} << 20;
  Tensor tensor = Tensor::empty(shape, wanted, device_);
  const int64_t rows = stored[0];
  // A piece consists of whole heads, whose rows are reordered.
  const int64_t unit = std::max<int64_t>(view.paired_rows, 1);
  const int64_t step = (std::max<int64_t>(piece_values / stored[1], 1) + unit - 1) / unit * unit;
  std::vector<std::byte> buffer;
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t end = std::min(begin + step, rows);
    const TensorView piece = row_slice(view, rows, {begin, end});
    std::span<const std::byte> blocks;
    if (piece.data != nullptr) {
      blocks = {piece.data, piece.bytes};
    } else {
      buffer.resize(piece.bytes);
      checkpoint_.read(piece, buffer);
      blocks = buffer;
    }
    Tensor values = decoded_rows(*view.format, blocks, Shape({end - begin, stored[1]}));
    if (view.paired_rows > 0) values = unpaired(values, view.paired_rows);
    if (columns.size() > 0) values = values.slice(split_dim, columns.begin, columns.end);
    tensor.slice(0, begin, end).copy_from(values);
  }
  checkpoint_.release(view);
  return tensor;
}

}  // namespace anyaccel::llm
