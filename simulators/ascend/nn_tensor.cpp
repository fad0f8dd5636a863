// Implements what libnnopbase.so and libopapi.so both know of tensors.
#include "simulators/ascend/nn_objects.h"

namespace sim_library {

std::size_t nn_type_bytes(int type) {
  switch (type) {
    case kNnFloat:
    case kNnInt32: return 4;
    case kNnHalf:
    case kNnBfloat16: return 2;
    case kNnInt64: return 8;
    case kNnBool: return 1;
    default: return 0;
  }
}

std::int64_t NnTensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : dims) count *= size;
  return count;
}

std::size_t NnTensor::bytes() const {
  if (elements() == 0) return 0;
  if (format == kNnFractalNz) {
    std::size_t all = nn_type_bytes(type);
    for (const std::int64_t size : blocks()) all *= static_cast<std::size_t>(size);
    return all;
  }
  std::int64_t last = 0;
  for (std::size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
  return static_cast<std::size_t>(last + 1) * nn_type_bytes(type);
}

std::array<std::int64_t, 4> NnTensor::blocks() const {
  const std::int64_t width = kNnBlockBytes / static_cast<std::int64_t>(nn_type_bytes(type));
  const std::int64_t rows = dims[transposed() ? 1 : 0], columns = dims[transposed() ? 0 : 1];
  return {(columns + width - 1) / width, (rows + kNnBlockRows - 1) / kNnBlockRows, kNnBlockRows, width};
}

std::int64_t NnTensor::place(std::int64_t row, std::int64_t column) const {
  const std::array<std::int64_t, 4> sizes = blocks();
  const std::int64_t block = column / sizes[3] * sizes[1] + row / kNnBlockRows;
  return (block * kNnBlockRows + row % kNnBlockRows) * sizes[3] + column % sizes[3];
}

}  // namespace sim_library
