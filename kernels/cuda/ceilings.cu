// Loops that do one thing as fast as the device can, for the ceilings that benchmarks print beside their figures
// (src/accelerators/cuda/ceilings.cpp).
#include "dialect.h"

#include "warp.h"

// A block reads pieces of 64 KiB: every thread has 8 loads of 16 bytes in flight before it uses the first, so a
// multiprocessor with two blocks has 128 KiB in flight, three times what hides the latency of device memory.
#define CEILING_THREADS 512
#define CEILING_LOADS 8
#define CEILING_PIECE (CEILING_THREADS * CEILING_LOADS * 16)

// sums[warp] = the exclusive or of all that the warp read, so that every load counts.
AA_TUNED_KERNEL(ceiling_read, CEILING_THREADS, 2)(AA_OUT(aa_u32) sums, AA_IN(void) data, aa_i64 pieces) {
  aa_u32 sum = 0;
  for (aa_i64 piece = AA_GROUP_ID(0); piece < pieces; piece += AA_GROUP_COUNT(0)) {
    const aa_i64 at = piece * CEILING_PIECE + AA_LOCAL_ID * 16;
    aa_u32x4 loaded[CEILING_LOADS];
    AA_PRAGMA_UNROLL
    for (aa_i32 i = 0; i < CEILING_LOADS; ++i) loaded[i] = aa_load16_stream(data, at + i * (CEILING_THREADS * 16));
    AA_PRAGMA_UNROLL
    for (aa_i32 i = 0; i < CEILING_LOADS; ++i) sum ^= loaded[i].x ^ loaded[i].y ^ loaded[i].z ^ loaded[i].w;
  }
  for (aa_i32 d = 16; d > 0; d /= 2) sum ^= aa_shuffle_xor_u32(sum, d);
  if (AA_LANE == 0) sums[AA_GROUP_ID(0) * (CEILING_THREADS / 32) + AA_WARP] = sum;
}
AA_REGISTER_TUNED(ceiling_read, CEILING_THREADS)

// Two bf16 numbers, uniform in [-1, 1), from 32 random bits.
AA_FN aa_u32 ceiling_numbers(aa_u32 word) {
  const float low = (float)(word & 0xffffu) * 3.0517578125e-5f - 1.0f;  // 2^-15
  const float high = (float)(word >> 16) * 3.0517578125e-5f - 1.0f;
  return (aa_u32)aa_to_bf16(low) | (aa_u32)aa_to_bf16(high) << 16;
}

// Random words, by the mixing function of SplitMix64 (Steele, Lea, Flood 2014) of the word's number: memory of zeros, or of
// anything regular, is read faster than data on some devices. With `numbers` 1 they are bf16 numbers.
AA_TUNED_KERNEL(ceiling_fill, CEILING_THREADS, 2)(AA_OUT(void) data, aa_i64 pieces, aa_i32 numbers) {
  for (aa_i64 piece = AA_GROUP_ID(0); piece < pieces; piece += AA_GROUP_COUNT(0)) {
    for (aa_i32 i = 0; i < CEILING_LOADS; ++i) {
      const aa_i64 at = piece * CEILING_PIECE + (i * CEILING_THREADS + AA_LOCAL_ID) * 16;
      aa_u32 words[4];
      for (aa_i32 w = 0; w < 2; ++w) {
        aa_u64 z = (aa_u64)(at / 8 + w + 1) * 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        words[2 * w] = numbers ? ceiling_numbers((aa_u32)z) : (aa_u32)z;
        words[2 * w + 1] = numbers ? ceiling_numbers((aa_u32)(z >> 32)) : (aa_u32)(z >> 32);
      }
      aa_u32x4 value;
      value.x = words[0];
      value.y = words[1];
      value.z = words[2];
      value.w = words[3];
      aa_store16(data, at, value);
    }
  }
}
AA_REGISTER_TUNED(ceiling_fill, CEILING_THREADS)

// Independent chains of multiply-adds on registers: 8 a thread hide their latency of 4 cycles with any number of warps.
// `rounds` times 128 of them a thread; the values stay near 0.5.
#define CEILING_CHAINS 8
#define CEILING_STEPS 16
#define CEILING_FMA_THREADS 256
AA_TUNED_KERNEL(ceiling_fma, CEILING_FMA_THREADS, 4)(AA_OUT(float) out, float factor, float term, aa_i32 rounds) {
  float chain[CEILING_CHAINS];
  AA_PRAGMA_UNROLL
  for (aa_i32 i = 0; i < CEILING_CHAINS; ++i) chain[i] = term * (float)(AA_LOCAL_ID + i);
  for (aa_i32 round = 0; round < rounds; ++round) {
    AA_PRAGMA_UNROLL
    for (aa_i32 step = 0; step < CEILING_STEPS; ++step) {
      AA_PRAGMA_UNROLL
      for (aa_i32 i = 0; i < CEILING_CHAINS; ++i) chain[i] = aa_fma(chain[i], factor, term);
    }
  }
  float sum = 0;
  for (aa_i32 i = 0; i < CEILING_CHAINS; ++i) sum += chain[i];
  out[AA_GROUP_ID(0) * CEILING_FMA_THREADS + AA_LOCAL_ID] = sum;
}
AA_REGISTER_TUNED(ceiling_fma, CEILING_FMA_THREADS)

// Measures the cost of a launch on the host.
AA_TUNED_KERNEL(ceiling_nothing, 32, 1)(aa_i32 unused) { (void)unused; }
AA_REGISTER_TUNED(ceiling_nothing, 32)
