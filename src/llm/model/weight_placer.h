// Puts the weights of a model on a device: in place in the mapped file where possible, else converted and copied one at a
// time. load_plan.h decides in which form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "anyaccel/accelerator.h"
#include "anyaccel/device.h"
#include "anyaccel/dtype.h"
#include "anyaccel/llm/safetensors.h"
#include "anyaccel/tensor.h"
#include "base/block_format.h"
#include "llm/model/load_plan.h"
#include "llm/model/lora_adapter.h"

namespace anyaccel::llm {

inline std::span<std::byte> bytes_of(const Tensor& host) {
  return {static_cast<std::byte*>(host.data()), host.nbytes()};
}

// Reorders rows that are stored as pairs (TensorView::paired_rows). `rows` are whole heads, contiguous, on the host.
Tensor unpaired(const Tensor& rows, int64_t head_rows);

// The views given to its functions are results of LoadPlan::part_to_read() that are not empty. Copies to the device may
// be unfinished when they return; CheckpointError, OutOfMemoryError.
class WeightPlacer {
 public:
  // Keeps references to the first three.
  WeightPlacer(Accelerator& accelerator, const Checkpoint& checkpoint, const LoadPlan& plan, Device device)
      : accelerator_(accelerator), checkpoint_(checkpoint), plan_(plan), device_(device) {}

  // Places a tensor in LoadPlan::held_dtype(), and decodes it if it is quantized.
  Tensor place(const TensorView& view, const TensorSlot& slot);
  // Places a matrix with the adapter's product added.
  Tensor place_adapted(const LoraAdapter& adapter, const TensorView& view, const TensorSlot& slot);
  // Places the blocks of a quantized matrix; they stay in the mapped file if possible. If `paired`, the rows are stored
  // as pairs and must be reordered.
  Tensor place_blocks(const TensorView& view, const TensorSlot& slot, bool paired);
  // Decodes a tensor that has a part of each head's rows (TensorSlot::part) into the whole matrix, which is made first if
  // there is none.
  void place_part(const TensorView& view, const TensorSlot& slot, Tensor& whole);
  // Quantizes a matrix, a piece at a time.
  Tensor place_quantized(const TensorView& view, const TensorSlot& slot, const BlockFormat& format) {
    return place_quantized_as(DType::U8, view, slot, format);
  }
  // Places the numbers that the blocks of the whole matrix have, in LoadPlan::held_dtype().
  Tensor place_rounded(const TensorView& view, const TensorSlot& slot, const BlockFormat& format) {
    return place_quantized_as(plan_.held_dtype(slot), view, slot, format);
  }

  // Returns the number of bytes that were placed without copying them from their mapped file.
  uint64_t mapped_bytes() const noexcept { return mapped_bytes_; }

 private:
  bool is_registered(void* address, size_t bytes);
  // Returns the owner of tensors that lie in a file's mapping; null if the device cannot use the mapping. A device that
  // is the host can use it; with any other device it must be registered.
  std::shared_ptr<void> usable_in_place(const std::shared_ptr<const WeightFile>& file);
  // Places a tensor that is not a contiguous copy of the file's values or rows.
  Tensor place_changed(const TensorView& view, const TensorSlot& slot, DType wanted);
  // Places a matrix of a quantized directory, a piece at a time: decoded to `wanted`, or as blocks if that is U8.
  Tensor place_packed(const PackedMatrix& matrix, const TensorSlot& slot, DType wanted);
  // Divides each row of a matrix by its length (TensorSlot::divides_rows), a piece at a time.
  Tensor place_divided(const TensorView& view, const Shape& shape, DType wanted);
  // Quantizes a matrix, a piece at a time, and places its blocks if `wanted` is U8, else what they decode to.
  Tensor place_quantized_as(DType wanted, const TensorView& view, const TensorSlot& slot, const BlockFormat& format);
  // Decodes a quantized tensor, a piece at a time, so that the values in fp32 never take much memory in addition to the
  // result. `columns` are those that are kept if `split_dim` is 1; empty means all. `stored` is the shape of the view.
  Tensor place_decoded(const TensorView& view, const Shape& stored, const Shape& shape, int split_dim,
                       const Slice& columns, DType wanted);

  Accelerator& accelerator_;
  const Checkpoint& checkpoint_;
  const LoadPlan& plan_;
  Device device_;
  uint64_t mapped_bytes_ = 0;
  std::map<const WeightFile*, std::shared_ptr<void>> registered_files_;  // null: refused
};

}  // namespace anyaccel::llm
