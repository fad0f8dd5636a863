// Implements the description of a call.
#include "comm/messages/message_call.h"

#include <iterator>

#include "anyaccel/comm/process_group.h"
#include "anyaccel/dtype.h"

namespace anyaccel::comm {

std::string MessageCall::text() const {
  static constexpr const char* kKinds[] = {"barrier",    "all_reduce", "reduce",  "reduce_scatter", "broadcast",
                                           "all_gather", "gather",     "scatter", "all_to_all",     "send and recv"};
  const bool known = kind >= 0 && kind < static_cast<int32_t>(std::size(kKinds));
  std::string text = known ? kKinds[kind] : "an unknown call";
  const auto type = static_cast<DType>(dtype);
  if (op >= 0) {
    text += " of " + std::to_string(amount) + " " + std::string(dtype_name(type)) + " (" +
            reduce_op_name(static_cast<ReduceOp>(op)) + ")";
  } else if (kind != kBarrier && dtype_size(type) != 0) {
    text += " of " + std::to_string(amount / dtype_size(type)) + " " + std::string(dtype_name(type));
  } else if (kind != kBarrier) {
    text += " of " + std::to_string(amount) + " bytes";
  }
  if (root >= 0) text += " with root " + std::to_string(root);
  if (sequence > 0) text += ", number " + std::to_string(sequence) + " of the group";
  return text;
}

}  // namespace anyaccel::comm
