// What an op does with each tensor of a call: see the table of abi/ops.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace anyaccel::conformance {

struct TensorRole {
  const char* name;  // "out", "x"
  bool written;
  uint32_t in_place = 0;  // one bit for each tensor of the call that this one, which is written, may be
};

// In the order of a call's tensors; "linear_multi" has the longest form.
std::span<const TensorRole> roles_of(std::string_view op);

}  // namespace anyaccel::conformance
