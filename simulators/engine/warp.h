// Implements the collective operations of a GPU's warps, for kernels compiled for the host (kernels/host_warp.h): every
// function is called by all 32 items of a warp, on fibers of a GroupRunner whose sub-groups are 32 wide.
#pragma once

#include <cstdint>

namespace sim {

std::uint32_t warp_shuffle(std::uint32_t value, int from_lane);
void warp_sync();

// Fragments as PTX lays them out for ldmatrix.x4 and mma.m16n8k16 with row and col. `row` is checked to be 16 aligned
// bytes of local memory.
void warp_ldmatrix(std::uint32_t (&r)[4], const void* row, bool transposed);
void warp_mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);
void warp_mma_f16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);

float float_from_f16(std::uint16_t bits);
// To nearest even; NaNs become the one NaN that the devices make.
std::uint16_t f16_from_float(float x);
std::uint16_t bf16_from_float(float x);

}  // namespace sim
