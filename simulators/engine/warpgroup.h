// Implements the products of matrices of Hopper's warpgroups, for kernels compiled for the host (kernels/host_warpgroup.h):
// operands in local memory are found by descriptors as PTX defines them for wgmma, with the swizzle of 128 bytes. A product is
// done when it is waited for: operands that were changed by then, and results that are used before, show.
#pragma once

#include <cstdint>

namespace sim {

// The address of local memory in descriptors. It begins at no multiple of 1024, as on a device a kernel may find it.
std::uint32_t local_address(const void* local);

// Called by all items of a warp: its 16 of 64 rows of d, 16 columns of a and `columns` of d. `a`: null, or 4 registers, and
// a_rows does not count.
struct WarpgroupProduct {
  float* d;
  int columns;
  const std::uint32_t* a;
  std::uint64_t a_rows, b;
  bool add;
  bool b_by_rows;  // else b is 16 x columns, by rows of columns
  bool f16;        // else bf16
};
void warpgroup_product(const WarpgroupProduct& product);
void warpgroup_commit();
void warpgroup_wait(int groups_left);

}  // namespace sim
