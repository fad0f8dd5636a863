// The section of kernels/cuda/warp.h for host C++, which AA_HOST_WARP selects when the simulators compile the tuned
// kernels. A block's threads are fibers, its warps 32 of them; every access to global memory is checked and recorded.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "simulators/engine/kernel.h"
#include "simulators/engine/warp.h"

#define AA_TUNED_KERNEL(name, threads, blocks) static void name
#define AA_REGISTER_TUNED(name, threads) AA_HOST_REGISTER_TUNED_(name, threads)
#define AA_HOST_REGISTER_TUNED_(name, threads) \
  static const ::sim::KernelRegistration aa_register_##name(AA_HOST_TEXT(name), threads, &name, 32);
#define AA_WARP (static_cast<aa_i32>(::sim::GroupRunner::current().item() >> 5))
#define AA_LANE (static_cast<aa_i32>(::sim::GroupRunner::current().item() & 31))
#define AA_WARP_SYNC() ::sim::warp_sync()
#define AA_CALL [[maybe_unused]] static
#define AA_DYNAMIC_LOCAL(name) aa_u8* const name = static_cast<aa_u8*>(::sim::GroupRunner::current().dynamic_local())

AA_FN aa_i32 aa_opaque(aa_i32 v) { return v; }

struct alignas(16) aa_u32x4 {
  aa_u32 x, y, z, w;
};

template <class Pointer>
AA_FN aa_u32x4 aa_load16(const Pointer& p, aa_i64 bytes) {
  aa_u32x4 v;
  std::memcpy(&v, p.touch(bytes, 16, 16), 16);
  return v;
}
template <class Pointer>
AA_FN aa_u32x4 aa_load16_stream(const Pointer& p, aa_i64 bytes) {
  return aa_load16(p, bytes);
}
AA_FN void aa_store16(const AA_OUT(void) & p, aa_i64 bytes, aa_u32x4 v) { std::memcpy(p.touch(bytes, 16, 16), &v, 16); }
// Allowed outside of allocations, and nothing to see.
template <class Pointer>
AA_FN void aa_prefetch(const Pointer&, aa_i64) {}
AA_FN aa_u32 aa_atomic_add(const AA_OUT(aa_u32) & p, aa_i64 i, aa_u32 v) {
  aa_u32& at = p[i];
  const aa_u32 old = at;
  at = old + v;
  return old;
}
AA_FN void aa_device_fence() {}

AA_FN void aa_grid_wait() { ::sim::GroupRunner::current().wait_previous(); }
AA_FN void aa_grid_launch_next() {}

AA_FN aa_u32 aa_shuffle_u32(aa_u32 v, aa_i32 lane) { return ::sim::warp_shuffle(v, lane); }
AA_FN aa_u32 aa_shuffle_xor_u32(aa_u32 v, aa_i32 mask) { return ::sim::warp_shuffle(v, AA_LANE ^ mask); }
AA_FN float aa_shuffle(float v, aa_i32 lane) { return aa_float(aa_shuffle_u32(aa_bits(v), lane)); }
AA_FN float aa_shuffle_xor(float v, aa_i32 mask) { return aa_float(aa_shuffle_xor_u32(aa_bits(v), mask)); }

template <class Pointer>
AA_FN void aa_async_copy16(void* local, const Pointer& p, aa_i64 bytes, bool there) {
  static const char zeros[16] = {};
  ::sim::GroupRunner::current().async_copy16(local, there ? p.touch(bytes, 16, 16) : zeros);
}
template <class Pointer>
AA_FN void aa_async_copy_part(void* local, const Pointer& p, aa_i64 bytes, aa_i32 count) {
  char all[16] = {};
  if (count > 0) std::memcpy(all, p.touch(bytes, count, 16), static_cast<std::size_t>(count));
  ::sim::GroupRunner::current().async_copy16(local, all);
}
AA_FN aa_u64 aa_read_once() { return 0; }
template <class Pointer>
AA_FN void aa_async_copy_part_once(void* local, const Pointer& p, aa_i64 bytes, aa_i32 count, aa_u64) {
  aa_async_copy_part(local, p, bytes, count);
}
template <class Pointer>
AA_FN void aa_async_copy16_once(void* local, const Pointer& p, aa_i64 bytes, bool there, aa_u64) {
  aa_async_copy16(local, p, bytes, there);
}
AA_FN void aa_async_commit() { ::sim::GroupRunner::current().async_commit(); }
#define aa_async_wait(left) ::sim::GroupRunner::current().async_wait(left)

AA_FN void aa_ldmatrix(aa_u32 (&r)[4], const void* local) { ::sim::warp_ldmatrix(r, local, false); }
AA_FN void aa_ldmatrix_transposed(aa_u32 (&r)[4], const void* local) { ::sim::warp_ldmatrix(r, local, true); }
AA_FN void aa_mma_bf16(float (&d)[4], const aa_u32 (&a)[4], aa_u32 b0, aa_u32 b1) {
  ::sim::warp_mma_bf16(d, a, b0, b1);
}
AA_FN void aa_mma_f16(float (&d)[4], const aa_u32 (&a)[4], aa_u32 b0, aa_u32 b1) { ::sim::warp_mma_f16(d, a, b0, b1); }

AA_FN aa_u32 aa_pack_bf16(float low, float high) {
  return static_cast<aa_u32>(::sim::bf16_from_float(low)) | static_cast<aa_u32>(::sim::bf16_from_float(high)) << 16;
}
AA_FN aa_u32 aa_pack_f16(float low, float high) {
  return static_cast<aa_u32>(::sim::f16_from_float(low)) | static_cast<aa_u32>(::sim::f16_from_float(high)) << 16;
}
AA_FN aa_u32 aa_masked_or(aa_u32 a, aa_u32 mask, aa_u32 bits) { return (a & mask) | bits; }
// (Twice rounded: the kernels multiply and add what is exact.)
AA_FN aa_u32 aa_fma_bf16x2(aa_u32 a, aa_u32 b, aa_u32 c) {
  const auto half = [](aa_u32 u, aa_u32 v, aa_u32 w) { return std::fma(aa_float(u), aa_float(v), aa_float(w)); };
  constexpr aa_u32 high = 0xffff0000u;
  return aa_pack_bf16(half(a << 16, b << 16, c << 16), half(a & high, b & high, c & high));
}
AA_FN float aa_unpack_f16(aa_u16 bits) { return ::sim::float_from_f16(bits); }

AA_FN aa_u32 aa_bytes_of(aa_u32 a, aa_u32 b, aa_u32 which) {
  const aa_u64 all = static_cast<aa_u64>(b) << 32 | a;
  aa_u32 v = 0;
  for (int i = 0; i < 4; ++i) v |= static_cast<aa_u32>(all >> (8 * ((which >> (4 * i)) & 7u)) & 0xffu) << (8 * i);
  return v;
}
AA_FN aa_u32 aa_subtract_bf16(aa_u32 a, aa_u32 b) {
  const float low = aa_float(a << 16) - aa_float(b << 16), high = aa_float(a & 0xffff0000u) - aa_float(b & 0xffff0000u);
  return aa_pack_bf16(low, high);
}
AA_FN aa_u32 aa_subtract_f16(aa_u32 a, aa_u32 b) {
  const auto half = [](aa_u32 v, int place) {
    return ::sim::float_from_f16(static_cast<std::uint16_t>(v >> (16 * place)));
  };
  return aa_pack_f16(half(a, 0) - half(b, 0), half(a, 1) - half(b, 1));
}
AA_FN aa_u32 aa_e4m3_as_f16(aa_u32 word, bool upper) {
  aa_u32 v = 0;
  for (int i = 0; i < 2; ++i) {
    const aa_u32 code = (word >> (upper ? 16 : 0) >> (8 * i)) & 0xffu, magnitude = code & 0x7fu;
    const float size =
        magnitude >= 8 ? aa_float((magnitude << 20) + (120u << 23)) : static_cast<float>(magnitude) / 512;
    const aa_u32 half = magnitude == 0x7fu ? 0x7fffu : ::sim::f16_from_float(size) | (code & 0x80u) << 8;
    v |= half << (16 * i);
  }
  return v;
}

AA_FN float aa_exp2(float x) { return std::exp2(x); }
AA_FN float aa_reciprocal(float x) { return 1.0f / x; }
