// Describes each op of include/anyaccel/abi/ops.h, and checks every call before it reaches a driver. All of it is
// generated from the rows of runtime/ops/op_list.h.
#pragma once

#include <span>
#include <string_view>

#include "anyaccel/abi/ops.h"

namespace anyaccel::ops {

enum class Role { Out, In, InOut };

// A bit for every dtype of abi/base.h.
inline constexpr uint32_t any_dtype = (2u << AA_DTYPE_F8_E5M2) - 2u;

struct TensorSchema {
  const char* name;  // as in the table of abi/ops.h: "out", "x", "w_gate"
  Role role;
  bool optional;
  uint32_t dtypes;  // one bit for each aa_dtype that it may have
  // One character for each dimension; a leading '.' stands for any number of leading dimensions, the same in all
  // tensors of the call. The letters are those of abi/ops.h except 'q' (Hq), 'k' (Hk), 'x' (Hq * D), 'y' (Hk * D) and
  // 'a'..'d' (N of linear_multi). A digit stands for itself.
  const char* shape;
  // One bit for each tensor of the call that this one, which is written, may be: the same elements.
  uint32_t in_place = 0;
};

struct OpSchema {
  std::string_view name;
  std::span<const TensorSchema> tensors;  // for "linear_multi": the longest form
  uint32_t min_tensors;                   // equal to tensors.size() except for "linear_multi"
  uint32_t params_size;                   // sizeof the params struct; 0 for none
  uint32_t written;                       // one bit for each tensor that is not just an input
  // Checks dtypes, ranks, shapes, optional tensors, parameter values, and that no tensor that is written shares memory
  // with another one unless it may be that one. Throws InvalidArgument that names the op, the tensor, what was found and
  // what was expected. Does not read tensor data (pointers may be NULL).
  void (*check)(const aa_op_call& call);
};

// The part of OpSchema::check about memory.
void check_memory(const OpSchema& schema, const aa_op_call& call);

std::span<const OpSchema> op_schemas();                 // in the order of abi/ops.h
const OpSchema* find_op_schema(std::string_view name);  // null when unknown

}  // namespace anyaccel::ops
