#include "llm/model/weight_placer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/copy_bytes.h"
#include "llm/quantize/quantize_rows.h"

namespace anyaccel::llm {

namespace {

bool is_aligned(const TensorView& view) { return reinterpret_cast<uintptr_t>(view.data) % dtype_size(view.dtype) == 0; }

// Returns the tensor as ordinary host memory: a view, or a copy if the file is not mapped or does not align the tensor.
Tensor host_view(const Checkpoint& checkpoint, const TensorView& view, const Shape& shape) {
  if (view.data != nullptr && is_aligned(view)) {
    return Tensor::from_blob(const_cast<std::byte*>(view.data), shape, view.dtype, nullptr);
  }
  Tensor copied = Tensor::empty(shape, view.dtype);
  checkpoint.read(view, bytes_of(copied));
  return copied;
}

// Returns the rows of a slot, which are blocks of rows, or columns, of a file's tensor; `whole` is that tensor.
Tensor gathered(const Tensor& whole, const TensorSource& source, const Shape& shape) {
  const Tensor rows = source.transposed ? whole.transpose(0, 1) : whole;
  Tensor result = Tensor::empty(shape, whole.dtype());
  int64_t from = source.first;
  for (int64_t to = 0; to < shape[0]; to += source.block, from += source.stride) {
    result.slice(0, to, to + source.block).copy_from(rows.slice(0, from, from + source.block));
  }
  return result;
}

}  // namespace

Tensor unpaired(const Tensor& rows, int64_t head_rows) {
  Tensor result = Tensor::empty(rows.shape(), rows.dtype());
  const int64_t count = rows.shape()[0];
  const size_t row_bytes = rows.nbytes() / static_cast<size_t>(count);
  const std::byte* from = bytes_of(rows).data();
  std::byte* to = bytes_of(result).data();
  for (int64_t stored = 0; stored < count; ++stored) {
    const int64_t within = stored % head_rows;
    const int64_t row = stored - within + within % 2 * (head_rows / 2) + within / 2;
    copy_bytes(to + static_cast<size_t>(row) * row_bytes, from + static_cast<size_t>(stored) * row_bytes, row_bytes);
  }
  return result;
}

bool WeightPlacer::is_registered(void* address, size_t bytes) {
  try {
    return accelerator_.register_host_memory(address, bytes);
  } catch (const OutOfMemoryError& error) {
    log_warning("weights are copied out of their file: " + std::string(error.what()));
    return false;
  }
}

std::shared_ptr<void> WeightPlacer::usable_in_place(const std::shared_ptr<const WeightFile>& file) {
  if ((accelerator_.device_properties(device_.index).caps & AA_CAP_IS_HOST) != 0) {
    return std::const_pointer_cast<WeightFile>(file);
  }
  const auto [known, is_new] = registered_files_.try_emplace(file.get());
  if (is_new) {
    const std::span<const std::byte> mapping = file->mapping();
    void* const address = const_cast<std::byte*>(mapping.data());
    if (is_registered(address, mapping.size())) {
      known->second = std::shared_ptr<void>(address, [file, &accelerator = accelerator_](void* registered) {
        try {
          accelerator.unregister_host_memory(registered);
        } catch (const Error& error) {
          log_warning("the mapping of " + file->path().string() + " cannot be unregistered: " + error.what());
        }
      });
    }
  }
  return known->second;
}

Tensor WeightPlacer::place(const TensorView& view, const TensorSlot& slot) {
  const Slice part = plan_.held(slot);
  const Shape shape = held_shape(slot, part);
  const bool contiguous = slot.split_dim == 0 || part.size() == slot.shape[slot.split_dim];
  const DType wanted = plan_.held_dtype(slot);
  const bool paired = view.paired_rows > 0;
  if (view.packed != nullptr) return place_packed(*view.packed, slot, wanted);
  if (slot.divides_rows) return place_divided(view, shape, wanted);
  if (view.format != nullptr) {
    return place_decoded(view, contiguous ? shape : slot.shape, shape, slot.split_dim, contiguous ? Slice{} : part,
                         wanted);
  }
  if (slot.is_gathered() || slot.adds_one) return place_changed(view, slot, wanted);
  const bool in_place = contiguous && !paired && view.dtype == wanted && accelerator_.is_host_coherent();
  if ((in_place || plan_.uses_columns_in_place(slot)) && view.data != nullptr && is_aligned(view)) {
    if (std::shared_ptr<void> owner = usable_in_place(checkpoint_.files()[view.file])) {
      // Weights are never written.
      auto* data = const_cast<std::byte*>(view.data);
      const Shape& stored = contiguous ? shape : slot.shape;
      const Tensor whole = Tensor::from_blob(data, stored, view.dtype, std::move(owner), device_);
      const Tensor held = contiguous ? whole : whole.slice(slot.split_dim, part.begin, part.end);
      mapped_bytes_ += held.nbytes();
      return held;
    }
  }
  Tensor tensor = Tensor::empty(shape, wanted, device_);
  if (in_place && view.data == nullptr) {
    checkpoint_.read(view, bytes_of(tensor));
    return tensor;
  }
  Tensor source = host_view(checkpoint_, view, contiguous ? shape : slot.shape);
  if (paired) source = unpaired(source, view.paired_rows);
  tensor.copy_from(contiguous ? source : source.slice(slot.split_dim, part.begin, part.end));
  // Small tensors share a page; the others on it are read again from the system's cache.
  checkpoint_.release(view);
  return tensor;
}

Tensor WeightPlacer::place_adapted(const LoraAdapter& adapter, const TensorView& view, const TensorSlot& slot) {
  const Slice part = plan_.held(slot);
  const bool by_rows = slot.split_dim == 0;
  const bool gathers = slot.is_gathered();
  // The rows of the file's tensor that the view has.
  const Shape shape = gathers ? slot.source->shape : by_rows ? held_shape(slot, part) : slot.shape;
  const int64_t first = gathers ? 0 : (slot.source ? slot.source->first : 0) + (by_rows ? part.begin : 0);
  Tensor values = Tensor::empty(shape, DType::F32);
  values.copy_from(host_view(checkpoint_, view, shape));
  adapter.add_to(slot.name, first, shape[1], slot.source && slot.source->transposed,
                 {static_cast<float*>(values.data()), static_cast<size_t>(values.numel())});
  if (gathers) values = gathered(values, *slot.source, slot.shape);
  if (gathers || !by_rows) values = values.slice(slot.split_dim, part.begin, part.end);
  Tensor tensor = Tensor::empty(values.shape(), plan_.held_dtype(slot), device_);
  tensor.copy_from(values);
  checkpoint_.release(view);
  return tensor;
}

void WeightPlacer::place_part(const TensorView& view, const TensorSlot& slot, Tensor& whole) {
  const HeadPart& part = *slot.part;
  const Slice held = plan_.held(slot);
  const int64_t columns = slot.shape[1];
  if (whole.data() == nullptr) whole = Tensor::empty(Shape({held.size(), columns}), plan_.held_dtype(slot), device_);
  const int64_t values = part.rows * columns;
  std::vector<float> floats = values_as_floats(checkpoint_, view);
  for (int64_t row = held.begin; row < held.end; row += slot.head_size) {
    const Shape stored = part.transposed ? Shape{columns, part.rows} : Shape{part.rows, columns};
    float* const first = floats.data() + row / slot.head_size * values;
    Tensor head = Tensor::from_blob(first, stored, DType::F32, nullptr);
    if (part.transposed) head = head.transpose(0, 1);
    const int64_t to = row - held.begin + part.first;
    whole.slice(0, to, to + part.rows).copy_from(head);
  }
  checkpoint_.release(view);
}

// The length is at least 1e-12, as in PyTorch's normalize().
Tensor WeightPlacer::place_divided(const TensorView& view, const Shape& shape, DType wanted) {
  constexpr int64_t piece_values = int64_t{4} << 20;
  Tensor tensor = Tensor::empty(shape, wanted, device_);
  const int64_t rows = shape[0];
  const auto columns = static_cast<size_t>(shape[1]);
  const int64_t step = std::max<int64_t>(piece_values / shape[1], 1);
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t end = std::min(begin + step, rows);
    std::vector<float> values = values_as_floats(checkpoint_, row_slice(view, rows, {begin, end}));
    for (size_t first = 0; first < values.size(); first += columns) {
      const std::span<float> row(values.data() + first, columns);
      double squares = 0;
      for (const float value : row) squares += static_cast<double>(value) * static_cast<double>(value);
      const auto length = static_cast<float>(std::max(std::sqrt(squares), 1e-12));
      for (float& value : row) value /= length;
    }
    const Shape piece{end - begin, shape[1]};
    tensor.slice(0, begin, end).copy_from(Tensor::from_blob(values.data(), piece, DType::F32, nullptr));
  }
  checkpoint_.release(view);
  return tensor;
}

Tensor WeightPlacer::place_changed(const TensorView& view, const TensorSlot& slot, DType wanted) {
  const Slice part = plan_.held(slot);
  Tensor source;
  if (slot.is_gathered()) {
    source = gathered(host_view(checkpoint_, view, slot.source->shape), *slot.source, slot.shape);
  } else {
    source = host_view(checkpoint_, view, held_shape(slot, part));
  }
  if (slot.adds_one) {
    Tensor sum = Tensor::empty(source.shape(), DType::F32);
    sum.copy_from(source);
    auto* values = static_cast<float*>(sum.data());
    for (int64_t i = 0; i < sum.numel(); ++i) values[i] += 1.0f;
    source = std::move(sum);
  }
  if (slot.is_gathered()) source = source.slice(slot.split_dim, part.begin, part.end);
  Tensor tensor = Tensor::empty(source.shape(), wanted, device_);
  tensor.copy_from(source);
  checkpoint_.release(view);
  return tensor;
}

}  // namespace anyaccel::llm
