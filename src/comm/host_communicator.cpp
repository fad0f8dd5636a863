// Implements what a communicator may leave to its other operations.
#include "comm/host_communicator.h"

#include <cstring>

namespace anyaccel::comm {

void HostCommunicator::gather_columns(void* data, int64_t rows, const size_t* begins) {
  // A sum of bytes that are zero on all members but one.
  const auto own = static_cast<size_t>(rank()), members = static_cast<size_t>(size());
  const size_t row_bytes = begins[members];
  auto* row = static_cast<char*>(data);
  for (int64_t i = 0; i < rows; ++i, row += row_bytes) {
    std::memset(row, 0, begins[own]);
    std::memset(row + begins[own + 1], 0, row_bytes - begins[own + 1]);
  }
  all_reduce(data, rows * static_cast<int64_t>(row_bytes), DType::U8, ReduceOp::Sum);
}

}  // namespace anyaccel::comm
