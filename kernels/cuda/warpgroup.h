// Additions of Hopper (compute capability 9.0) to warp.h, for kernels that are compiled for sm_90a: products of matrices by
// four warps at once that run in the background, barriers in shared memory and between some of a block's warps, and registers
// that warps hand to each other. Include warp.h first.
//
// A warpgroup is four warps, of which the first has a number divisible by 4. All 128 threads reach every aa_wg_* together.
#ifndef ANYACCEL_KERNELS_WARPGROUP_H_
#define ANYACCEL_KERNELS_WARPGROUP_H_

#if defined(AA_HOST_KERNELS)
#include AA_HOST_WARPGROUP

#else

// The address that descriptors and barriers count in: from the start of the block's shared memory.
AA_FN aa_u32 aa_shared_address(const void* local) { return (aa_u32)__cvta_generic_to_shared(local); }

// ---- barriers ----------------------------------------------------------------------------------------------------------

// A barrier in shared memory (8 aligned bytes) that passes through phases: one ends when `count` threads have arrived. One
// thread makes it, and a block barrier after aa_phase_made() precedes its use.
AA_FN void aa_phase_make(aa_u64* barrier, aa_i32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(aa_shared_address(barrier)), "r"(count) : "memory");
}
AA_FN void aa_phase_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
AA_FN void aa_phase_arrive(aa_u64* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(aa_shared_address(barrier)) : "memory");
}
// Waits for the end of the latest phase of this parity: 0 for the first, third, ... phase. A barrier on which nobody has
// arrived yet counts as one whose phase of parity 1 has ended.
AA_FN void aa_phase_wait(aa_u64* barrier, aa_u32 parity) {
  asm volatile(
      "{\n"
      ".reg .pred ended;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
      "@!ended bra again;\n"
      "}" ::"r"(aa_shared_address(barrier)),
      "r"(parity)
      : "memory");
}
// Barriers of whole warps, 1 to 15, of `threads` threads in all. Those that arrive do not wait.
AA_FN void aa_some_sync(aa_i32 barrier, aa_i32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
AA_FN void aa_some_arrive(aa_i32 barrier, aa_i32 threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// What this thread has written to shared memory, or seen there, comes before what the matrix units read afterwards.
AA_FN void aa_matrix_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Registers of each thread of the warpgroup from here on, a multiple of 8; a warpgroup that wants more waits for them.
#define aa_fewer_registers(count) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count))
#define aa_more_registers(count) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count))

// ---- products ----------------------------------------------------------------------------------------------------------

// Before the first product after this thread has written registers that the product takes or changes.
AA_FN void aa_wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// The products since the last call are a group.
AA_FN void aa_wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `left` (a constant) groups run. Then aa_wg_landed() for each result, which keeps the compiler from
// using it earlier.
#define aa_wg_wait(left) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory")
template <int kCount>
AA_FN void aa_wg_landed(float (&d)[kCount]) {
  AA_PRAGMA_UNROLL for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int kSteps>
AA_FN void aa_wg_landed(aa_u32 (&a)[kSteps][4]) {
  AA_PRAGMA_UNROLL for (int i = 0; i < kSteps; ++i) {
    AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) asm volatile("" : "+r"(a[i][e])::"memory");
  }
}

#define AA_WG_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define AA_WG_16(d, i) AA_WG_4(d, i), AA_WG_4(d, i + 4), AA_WG_4(d, i + 8), AA_WG_4(d, i + 12)
#define AA_WG_32(d) AA_WG_16(d, 0), AA_WG_16(d, 16)
#define AA_WG_64(d) AA_WG_16(d, 0), AA_WG_16(d, 16), AA_WG_16(d, 32), AA_WG_16(d, 48)
#define AA_WG_NAMES_32                                                                             \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25," \
  "%26,%27,%28,%29,%30,%31}"
#define AA_WG_NAMES_64                                                                             \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25," \
  "%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,"   \
  "%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"

// d = a * transpose(b), or d += that: a 64 x 16, b N x 16, both in shared memory by rows (aa_rows_descriptor), N 64 or 128.
// Thread t of the warpgroup holds of d, for each 8 columns j: (16 (t / 32) + t % 32 / 4, 8 j + 2 (t % 4)) in d[4 j], the next
// column in d[4 j + 1], and the same of the row 8 further in d[4 j + 2] and d[4 j + 3].
#define AA_WG_PRODUCT(name, type, n, count, a, b, p)                                                              \
  AA_FN void name(float(&d)[count], aa_u64 a_rows, aa_u64 b_rows, bool add) {                                      \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" p ", 0;\n"                                                   \
                 "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " " AA_CAT(AA_WG_NAMES_, count)     \
                 ", %" a ", %" b ", p, 1, 1, 0, 0;\n}"                                                             \
                 : AA_CAT(AA_WG_, count)(d)                                                                        \
                 : "l"(a_rows), "l"(b_rows), "r"((aa_i32)add));                                                    \
  }
AA_WG_PRODUCT(aa_wg_rows_bf16, "bf16", "64", 32, "32", "33", "34")
AA_WG_PRODUCT(aa_wg_rows_bf16, "bf16", "128", 64, "64", "65", "66")
AA_WG_PRODUCT(aa_wg_rows_f16, "f16", "64", 32, "32", "33", "34")
AA_WG_PRODUCT(aa_wg_rows_f16, "f16", "128", 64, "64", "65", "66")

// d += a * b: a 64 x 16 in registers, each warp's 16 rows as aa_mma_bf16 has them; b 16 x N in shared memory by rows of N
// (aa_columns_descriptor).
#define AA_WG_PRODUCT_OF_REGISTERS(name, type, n, count, a0, a1, a2, a3, b)                                        \
  AA_FN void name(float(&d)[count], const aa_u32(&a)[4], aa_u64 b_columns) {                                       \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"                                                        \
                 "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " " AA_CAT(AA_WG_NAMES_, count)     \
                 ", {%" a0 ",%" a1 ",%" a2 ",%" a3 "}, %" b ", p, 1, 1, 1;\n}"                                     \
                 : AA_CAT(AA_WG_, count)(d)                                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_columns));                                    \
  }
AA_WG_PRODUCT_OF_REGISTERS(aa_wg_columns_bf16, "bf16", "64", 32, "32", "33", "34", "35", "36")
AA_WG_PRODUCT_OF_REGISTERS(aa_wg_columns_bf16, "bf16", "128", 64, "64", "65", "66", "67", "68")
AA_WG_PRODUCT_OF_REGISTERS(aa_wg_columns_f16, "f16", "64", 32, "32", "33", "34", "35", "36")
AA_WG_PRODUCT_OF_REGISTERS(aa_wg_columns_f16, "f16", "128", 64, "64", "65", "66", "67", "68")

#endif

// ---- the same in every language ----------------------------------------------------------------------------------------

// A matrix of 16-bit elements in shared memory: panels of 64 columns, a panel's rows of 128 bytes one after the other, from an
// address divisible by 1024 on; of each row the eight 16-byte chunks are exchanged by row % 8, as the matrix units want it
// ("128-byte swizzle"). Gives the offset of a chunk of 8 elements.
AA_FN aa_i32 aa_panel_chunk(aa_i32 row, aa_i32 chunk, aa_i32 panel_bytes) {
  return chunk / 8 * panel_bytes + row * 128 + ((chunk ^ row) & 7) * 16;
}
// The descriptor of such a matrix as an operand of a product over its columns (16 of them, from column 16 i of a panel: the
// address plus 32 i): 8 rows of a panel are 1024 bytes.
AA_FN aa_u64 aa_rows_descriptor(aa_u32 address) {
  return (aa_u64)(address >> 4) | (aa_u64)1 << 16 | (aa_u64)(1024 >> 4) << 32 | (aa_u64)1 << 62;
}
// As an operand of a product over its rows (16 of them, from row 16 i: the address plus 2048 i). `panel_bytes`: from one panel
// to the next.
AA_FN aa_u64 aa_columns_descriptor(aa_u32 address, aa_u32 panel_bytes) {
  return (aa_u64)(address >> 4) | (aa_u64)(panel_bytes >> 4) << 16 | (aa_u64)(1024 >> 4) << 32 | (aa_u64)1 << 62;
}
// The descriptor of what lies `bytes`, a multiple of 16, further on.
AA_FN aa_u64 aa_descriptor_at(aa_u64 descriptor, aa_u32 bytes) { return descriptor + (bytes >> 4); }

#endif  // ANYACCEL_KERNELS_WARPGROUP_H_
