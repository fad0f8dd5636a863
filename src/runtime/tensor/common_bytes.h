// Whether views share bytes of memory.
#pragma once

#include <cstdint>

#include "anyaccel/abi/base.h"
#include "anyaccel/dtype.h"

namespace anyaccel {

// The addresses that a view spans: [begin, end). Empty if it has no elements, or no address.
struct AddressRange {
  uintptr_t begin;
  uintptr_t end;

  bool meets(const AddressRange& other) const noexcept { return (begin < other.end) & (other.begin < end); }
};

inline AddressRange address_range(const aa_tensor& t) noexcept {
  if (t.data == nullptr) return {};
  int64_t low = 0, high = 0;
  bool empty = false;
  for (int32_t d = 0; d < t.ndim; ++d) {
    empty |= t.shape[d] == 0;
    const int64_t reach = (t.shape[d] - 1) * t.strides[d];
    low += reach < 0 ? reach : 0;
    high += reach < 0 ? 0 : reach;
  }
  if (empty) return {};
  const auto base = reinterpret_cast<uintptr_t>(t.data);
  const auto size = static_cast<int64_t>(dtype_size(static_cast<DType>(t.dtype)));
  return {base + static_cast<uintptr_t>(low * size), base + static_cast<uintptr_t>((high + 1) * size)};
}

// Returns whether the views of equal shape have the same elements of memory in the same order.
bool are_same_elements(const aa_tensor& a, const aa_tensor& b) noexcept;

// Returns whether some element of one view lies in the memory of an element of the other. Views whose strides are not
// multiples of each other may share bytes unnoticed.
bool have_common_bytes(const aa_tensor& a, const aa_tensor& b);

// Returns whether two elements of the view lie in the same memory; with the same limit.
bool repeats_bytes(const aa_tensor& t);

}  // namespace anyaccel
