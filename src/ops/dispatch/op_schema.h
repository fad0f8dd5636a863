// What the host knows about each op of include/anyaccel/abi/ops.h: how its tensors are used, and the checks every call
// passes before a driver sees it.
#pragma once

#include <span>
#include <string_view>

#include "anyaccel/abi/ops.h"

namespace anyaccel::ops {

enum class Role { Out, In, InOut };

struct TensorSchema {
  const char* name;  // as in the table of abi/ops.h: "out", "x", "w_gate"
  Role role;
  bool optional;
};

struct OpSchema {
  std::string_view name;
  std::span<const TensorSchema> tensors;  // for "linear_multi": the longest form
  uint32_t min_tensors;                   // equal to tensors.size() but for "linear_multi"
  uint32_t params_size;                   // sizeof the params struct; 0 for none
  // Dtypes, ranks, shapes, optional tensors and parameter values. Throws InvalidArgument that names op, tensor, what was
  // found and what was expected. Does not read tensor data (pointers may be NULL).
  void (*check)(const aa_op_call& call);
};

std::span<const OpSchema> op_schemas();                 // in the order of abi/ops.h
const OpSchema* find_op_schema(std::string_view name);  // null when unknown

}  // namespace anyaccel::ops
