// Describes a collective.
#include "comm/shared_memory/operation.h"

namespace anyaccel::comm::shm {

Operation Operation::unpacked(uint64_t word) noexcept {
  const auto bits = [&](int from, int count) { return (word >> from) & ((uint64_t{1} << count) - 1); };
  Operation result;
  result.count = bits(0, kCountBits);
  result.root = static_cast<int>(bits(kCountBits, kRootBits));
  result.kind = static_cast<Kind>(bits(kCountBits + kRootBits, 4));
  result.dtype = static_cast<DType>(bits(kCountBits + kRootBits + 4, 5));
  result.op = static_cast<ReduceOp>(bits(kCountBits + kRootBits + 9, 3));
  return result;
}

std::string Operation::text() const {
  static constexpr const char* names[] = {"barrier",    "all_reduce", "reduce",        "reduce_scatter",
                                          "broadcast",  "all_gather", "gather",        "scatter",
                                          "all_to_all", "share",      "gather_columns"};
  const auto index = static_cast<size_t>(kind);
  if (index >= std::size(names)) return "an unknown operation";
  std::string result = names[index];
  if (kind == Kind::Barrier) return result;
  const bool reduces = kind == Kind::AllReduce || kind == Kind::Reduce || kind == Kind::ReduceScatter;
  const uint64_t amount = reduces || dtype_size(dtype) == 0 ? count : count / dtype_size(dtype);
  result += " of " + std::to_string(amount) + ' ' + (dtype == DType::None ? "bytes" : std::string(dtype_name(dtype)));
  if (reduces) result += std::string(" (") + reduce_op_name(op) + ')';
  if (kind == Kind::Reduce || kind == Kind::Gather) result += " to rank " + std::to_string(root);
  if (kind == Kind::Broadcast || kind == Kind::Scatter) result += " from rank " + std::to_string(root);
  return result;
}

}  // namespace anyaccel::comm::shm
