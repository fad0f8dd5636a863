// Additions of the tuned CUDA kernels to kernels/portable/dialect.h: warps, vector loads, asynchronous copies, matrix
// units, overlap with the kernel before. Include dialect.h first (with AA_GROUP_SIZE 1 settings: tuned kernels choose
// their own block sizes) and nothing else of a language: then a kernel compiles by NVRTC without vendor headers, and as
// host C++ for the simulator, where a block's threads are fibers and every access to global memory is checked.
//
//   AA_TUNED_KERNEL(name, threads, blocks_per_multiprocessor)(AA_OUT(float) y, AA_IN(void) w, aa_i64 n) { ... }
//   AA_REGISTER_TUNED(name, threads)
//
// Threads of a block are one-dimensional: AA_LOCAL_ID, AA_WARP (AA_LOCAL_ID / 32), AA_LANE. Every lane of a warp reaches
// every aa_shuffle*, aa_warp_*, aa_ldmatrix*, aa_mma* and AA_WARP_SYNC.
#ifndef ANYACCEL_KERNELS_WARP_H_
#define ANYACCEL_KERNELS_WARP_H_

#if defined(AA_HOST_KERNELS)
#include AA_HOST_WARP

#else

#define AA_TUNED_KERNEL(name, threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks) name
#define AA_REGISTER_TUNED(name, threads)
#define AA_WARP ((aa_i32)(threadIdx.x >> 5))
#define AA_LANE ((aa_i32)(threadIdx.x & 31))
#define AA_WARP_SYNC() __syncwarp()
// A function that is not expanded where it is called: for what is seldom or costly, so that a kernel compiles fast.
#define AA_CALL static __device__ __noinline__
// Dynamic shared memory of the launch, aligned to 128 bytes.
#define AA_DYNAMIC_LOCAL(name) extern __shared__ __align__(128) aa_u8 name[]

struct __align__(16) aa_u32x4 {
  aa_u32 x, y, z, w;
};

// The same number, of which the compiler knows nothing: keeps it from computing what depends on the number ahead of a loop, and
// from making a copy of the loop for each of its values.
AA_FN aa_i32 aa_opaque(aa_i32 v) {
  aa_i32 same;
  asm volatile("mov.s32 %0, %1;" : "=r"(same) : "r"(v));
  return same;
}

// ---- global memory: addresses are byte offsets from a pointer, aligned to 16 -------------------------------------------

// Data read once by the whole grid (weights): past the first-level cache.
AA_FN aa_u32x4 aa_load16_stream(const void* p, aa_i64 bytes) {
  aa_u32x4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"((const char*)p + bytes));
  return v;
}
// Data that other threads read too, and that an earlier kernel may have written.
AA_FN aa_u32x4 aa_load16(const void* p, aa_i64 bytes) {
  aa_u32x4 v;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"((const char*)p + bytes));
  return v;
}
AA_FN void aa_store16(void* p, aa_i64 bytes, aa_u32x4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"((char*)p + bytes), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
// Asks for the 128 bytes around an address to come to the second-level cache. Allowed before aa_grid_wait(), also for what a
// kernel before writes: what is read later is what it wrote.
AA_FN void aa_prefetch(const void* p, aa_i64 bytes) { asm volatile("prefetch.global.L2 [%0];" ::"l"((const char*)p + bytes)); }
// Adds on the whole device; returns the value before.
AA_FN aa_u32 aa_atomic_add(aa_u32* p, aa_i64 i, aa_u32 v) { return atomicAdd(p + i, v); }
// Threads that see later atomics of this thread also see its earlier writes.
AA_FN void aa_device_fence() { __threadfence(); }

// ---- overlap with the kernel before (programmatic dependent launch) ----------------------------------------------------

// Waits until the kernels before have ended and what they wrote can be seen.
AA_FN void aa_grid_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel may start; it still waits at its own aa_grid_wait().
AA_FN void aa_grid_launch_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// ---- warps -------------------------------------------------------------------------------------------------------------

AA_FN float aa_shuffle_xor(float v, aa_i32 mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
AA_FN aa_u32 aa_shuffle_xor_u32(aa_u32 v, aa_i32 mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
AA_FN float aa_shuffle(float v, aa_i32 lane) { return __shfl_sync(0xffffffffu, v, lane); }
AA_FN aa_u32 aa_shuffle_u32(aa_u32 v, aa_i32 lane) { return __shfl_sync(0xffffffffu, v, lane); }

// ---- shared memory and matrix units ------------------------------------------------------------------------------------

// 16 bytes of global memory to shared memory, in the background; zeros instead when `there` is false (nothing is read).
AA_FN void aa_async_copy16(void* local, const void* p, aa_i64 bytes, bool there) {
  const aa_u32 to = (aa_u32)__cvta_generic_to_shared(local);
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"((const char*)p + bytes),
               "r"(there ? 16 : 0)
               : "memory");
}
// The first `count` of 16 bytes, 0 to 16, and zeros for the others, which are not read.
AA_FN void aa_async_copy_part(void* local, const void* p, aa_i64 bytes, aa_i32 count) {
  const aa_u32 to = (aa_u32)__cvta_generic_to_shared(local);
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"((const char*)p + bytes), "r"(count)
               : "memory");
}
// The same for data that is read once: it leaves the second-level cache first. `policy`: aa_read_once().
AA_FN aa_u64 aa_read_once() {
  aa_u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
AA_FN void aa_async_copy_part_once(void* local, const void* p, aa_i64 bytes, aa_i32 count, aa_u64 policy) {
  const aa_u32 to = (aa_u32)__cvta_generic_to_shared(local);
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to), "l"((const char*)p + bytes),
               "r"(count), "l"(policy)
               : "memory");
}
AA_FN void aa_async_copy16_once(void* local, const void* p, aa_i64 bytes, bool there, aa_u64 policy) {
  aa_async_copy_part_once(local, p, bytes, there ? 16 : 0, policy);
}
AA_FN void aa_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `left` (a constant) of this thread's committed groups are still in flight.
#define aa_async_wait(left) asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory")

// Four 8x8 matrices of 16-bit elements from shared memory; lane l gives the address of row l % 8 of matrix l / 8 (16 bytes,
// aligned) and receives elements (l / 4, 2 * (l % 4)) and the next one of each matrix.
AA_FN void aa_ldmatrix(aa_u32 (&r)[4], const void* local) {
  const aa_u32 at = (aa_u32)__cvta_generic_to_shared(local);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}
// The same, each matrix transposed.
AA_FN void aa_ldmatrix_transposed(aa_u32 (&r)[4], const void* local) {
  const aa_u32 at = (aa_u32)__cvta_generic_to_shared(local);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}
// d += a * b with a 16x16 by rows, b 16x8 by columns, d 16x8 in fp32, as PTX lays out mma.m16n8k16: lane l holds
// a: (l/4, 2(l%4)..), (l/4 + 8, ..), (l/4, 8 + ..), (l/4 + 8, 8 + ..); b: (2(l%4).., l/4), (8 + .., l/4);
// d: (l/4, 2(l%4)), (l/4, 2(l%4) + 1), (l/4 + 8, ..), (l/4 + 8, .. + 1).
#define AA_MMA(name, type)                                                                                        \
  AA_FN void name(float(&d)[4], const aa_u32(&a)[4], aa_u32 b0, aa_u32 b1) {                                      \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "     \
                 "{%8,%9}, {%0,%1,%2,%3};"                                                                        \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                 \
  }
AA_MMA(aa_mma_bf16, "bf16")
AA_MMA(aa_mma_f16, "f16")

// Two floats rounded to 16 bits, the first in the low half.
AA_FN aa_u32 aa_pack_bf16(float low, float high) {
  aa_u32 v;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
  return v;
}
AA_FN aa_u32 aa_pack_f16(float low, float high) {
  aa_u32 v;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
  return v;
}
// (a & mask) | bits in one instruction, which the compiler makes two of where both are constants.
AA_FN aa_u32 aa_masked_or(aa_u32 a, aa_u32 mask, aa_u32 bits) {
  aa_u32 v;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(v) : "r"(a), "r"(mask), "r"(bits));
  return v;
}
// a * b + c of each of two bf16, rounded once.
AA_FN aa_u32 aa_fma_bf16x2(aa_u32 a, aa_u32 b, aa_u32 c) {
  aa_u32 v;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(c));
  return v;
}
AA_FN float aa_unpack_f16(aa_u16 bits) {
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
  return v;
}

// Bytes of a pair of words, by the four digits of `which` from the lowest on: 0 to 3 of a, 4 to 7 of b.
AA_FN aa_u32 aa_bytes_of(aa_u32 a, aa_u32 b, aa_u32 which) { return __byte_perm(a, b, which); }
// Two numbers of 16 bits less two others, where that is exact.
AA_FN aa_u32 aa_subtract_bf16(aa_u32 a, aa_u32 b) {
  aa_u32 v;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(b), "r"(0xbf80bf80u), "r"(a));
  return v;
}
AA_FN aa_u32 aa_subtract_f16(aa_u32 a, aa_u32 b) {
  aa_u32 v;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
  return v;
}
// The two floats E4M3 in the lower half of a word (or its upper one) as f16, exactly.
AA_FN aa_u32 aa_e4m3_as_f16(aa_u32 word, bool upper) {
  const aa_u32 two = upper ? word >> 16 : word & 0xffffu;
  aa_u32 v;
#if __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(v) : "h"((aa_u16)two));
#else
  // Exponents have a bias of 15 instead of 7.
  const aa_u32 wide = __byte_perm(two, 0u, 0x1404u);
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(v) : "r"((wide & 0x80008000u) | ((wide & 0x7f007f00u) >> 1)), "r"(0x5c005c00u));
  if ((two & 0x7fu) == 0x7fu) v = (v & 0xffff0000u) | 0x7fffu;
  if ((two & 0x7f00u) == 0x7f00u) v = (v & 0xffffu) | 0x7fff0000u;
#endif
  return v;
}

// 2^x, to about two units in the last place.
AA_FN float aa_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 1 / x, to about one unit in the last place.
AA_FN float aa_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif

// ---- the same in every language ----------------------------------------------------------------------------------------

// The name of a kernel that is compiled for several element types of weights: AA_NAME_W(gemv) is gemv_bf16 with AA_W bf16.
#define AA_NAME_W(base) AA_CAT(base, AA_CAT(_, AA_W))

AA_FN float aa_warp_sum(float v) {
  for (aa_i32 d = 16; d > 0; d /= 2) v += aa_shuffle_xor(v, d);
  return v;
}
AA_FN float aa_warp_max(float v) {
  for (aa_i32 d = 16; d > 0; d /= 2) v = aa_fmax(v, aa_shuffle_xor(v, d));
  return v;
}

#endif  // ANYACCEL_KERNELS_WARP_H_
