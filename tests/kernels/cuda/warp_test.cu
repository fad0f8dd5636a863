// Kernels that prove what the host's execution of kernels/cuda/warp.h does: every primitive once, and the mistakes it must
// find.
#include "dialect.h"
#include "warp.h"

// out[4 * t ..]: shuffles of in[t], and sum and maximum over the warp.
AA_TUNED_KERNEL(warp_shuffles, 64, 1)(AA_OUT(float) out, AA_IN(float) in, AA_IN(aa_u32) words, AA_OUT(aa_u32) word_out) {
  const aa_i32 t = AA_LOCAL_ID;
  const float v = in[t];
  out[4 * t] = aa_shuffle_xor(v, 5);
  out[4 * t + 1] = aa_shuffle(v, (AA_LANE + 7) % 32);
  out[4 * t + 2] = aa_warp_sum(v);
  out[4 * t + 3] = aa_warp_max(v);
  word_out[2 * t] = aa_shuffle_xor_u32(words[t], 16);
  word_out[2 * t + 1] = aa_shuffle_u32(words[t], 3 + AA_WARP);
}
AA_REGISTER_TUNED(warp_shuffles, 64)

// r[lane * 8 ..]: four registers of ldmatrix and of its transpose, from 32 rows of 8 elements.
AA_TUNED_KERNEL(warp_matrices, 32, 1)(AA_OUT(aa_u32) r, AA_IN(aa_u16) rows) {
  AA_LOCAL_ARRAY(aa_u32x4, tile, 32);
  tile[AA_LANE] = aa_load16(rows, 16 * AA_LANE);
  AA_WARP_SYNC();
  aa_u32 plain[4], transposed[4];
  aa_ldmatrix(plain, &tile[AA_LANE]);
  aa_ldmatrix_transposed(transposed, &tile[AA_LANE]);
  for (int i = 0; i < 4; ++i) {
    r[8 * AA_LANE + i] = plain[i];
    r[8 * AA_LANE + 4 + i] = transposed[i];
  }
}
AA_REGISTER_TUNED(warp_matrices, 32)

// d (16x8) = d + a (16x16 by rows) * b, with b stored as 8 columns of 16.
AA_FN void warp_product(AA_OUT(float) d, AA_IN(aa_u16) a, AA_IN(aa_u16) b, aa_i32 bf16) {
  const aa_i32 g = AA_LANE / 4, p = 2 * (AA_LANE % 4);
  const aa_u32 fa[4] = {a[16 * g + p] | (aa_u32)a[16 * g + p + 1] << 16,
                        a[16 * (g + 8) + p] | (aa_u32)a[16 * (g + 8) + p + 1] << 16,
                        a[16 * g + p + 8] | (aa_u32)a[16 * g + p + 9] << 16,
                        a[16 * (g + 8) + p + 8] | (aa_u32)a[16 * (g + 8) + p + 9] << 16};
  const aa_u32 b0 = b[16 * g + p] | (aa_u32)b[16 * g + p + 1] << 16;
  const aa_u32 b1 = b[16 * g + p + 8] | (aa_u32)b[16 * g + p + 9] << 16;
  float fd[4] = {d[8 * g + p], d[8 * g + p + 1], d[8 * (g + 8) + p], d[8 * (g + 8) + p + 1]};
  if (bf16) {
    aa_mma_bf16(fd, fa, b0, b1);
  } else {
    aa_mma_f16(fd, fa, b0, b1);
  }
  d[8 * g + p] = fd[0];
  d[8 * g + p + 1] = fd[1];
  d[8 * (g + 8) + p] = fd[2];
  d[8 * (g + 8) + p + 1] = fd[3];
}
AA_TUNED_KERNEL(warp_products, 32, 1)(AA_OUT(float) d, AA_IN(aa_u16) a, AA_IN(aa_u16) b, aa_i32 bf16) {
  warp_product(d, a, b, bf16);
}
AA_REGISTER_TUNED(warp_products, 32)

// Copies 3 blocks of 16 bytes a thread through dynamic local memory, each in a group of its own; the last one is not
// there. `wait` 0 to 3: how many of the groups are waited for.
AA_TUNED_KERNEL(warp_copies, 64, 1)(AA_OUT(aa_u8) y, AA_IN(aa_u8) x, aa_i32 wait, aa_i32 barrier) {
  AA_DYNAMIC_LOCAL(tile);
  const aa_i32 t = AA_LOCAL_ID;
  for (int i = 0; i < 3; ++i) {
    aa_async_copy16(tile + 1024 * i + 16 * t, x, 1024 * i + 16 * t, i < 2);
    aa_async_commit();
  }
  if (wait == 1) aa_async_wait(2);
  if (wait == 2) aa_async_wait(1);
  if (wait == 3) aa_async_wait(0);
  if (barrier) AA_BARRIER();
  const aa_i32 from = 63 - t;
  for (int i = 0; i < 3; ++i) aa_store16(y, 1024 * i + 16 * t, *(aa_u32x4*)(tile + 1024 * i + 16 * from));
}
AA_REGISTER_TUNED(warp_copies, 64)

// bits[0 .. 3]: conversions of low and high; bits[4]: 2^low.
AA_TUNED_KERNEL(warp_conversions, 32, 1)(AA_OUT(aa_u32) bits, float low, float high) {
  if (AA_LANE != 0) return;
  bits[0] = aa_pack_bf16(low, high);
  bits[1] = aa_pack_f16(low, high);
  bits[2] = aa_bits(aa_unpack_f16((aa_u16)(bits[1] & 0xffff)));
  bits[3] = aa_bits(aa_unpack_f16((aa_u16)(bits[1] >> 16)));
  bits[4] = aa_bits(aa_exp2(low));
}
AA_REGISTER_TUNED(warp_conversions, 32)

// The last block to finish adds up what all have written, and leaves the counter as it was.
AA_TUNED_KERNEL(warp_last_block, 32, 1)(AA_OUT(float) sum, AA_OUT(float) parts, AA_OUT(aa_u32) counter, AA_IN(float) x) {
  AA_LOCAL_ARRAY(aa_u32, before, 1);
  aa_prefetch(x, -4096);
  aa_grid_launch_next();
  aa_grid_wait();
  const float v = aa_warp_sum(x[AA_GROUP_ID(0) * 32 + AA_LANE]);
  if (AA_LANE == 0) {
    parts[AA_GROUP_ID(0)] = v;
    aa_device_fence();
    before[0] = aa_atomic_add(counter, 0, 1);
  }
  AA_BARRIER();
  if (before[0] + 1 != (aa_u32)AA_GROUP_COUNT(0)) return;
  if (AA_LANE == 0) {
    float all = 0;
    for (aa_i64 i = 0; i < AA_GROUP_COUNT(0); ++i) all += parts[i];
    sum[0] = all;
    counter[0] = 0;
  }
}
AA_REGISTER_TUNED(warp_last_block, 32)

// `mistake` selects the error.
AA_TUNED_KERNEL(warp_mistakes, 64, 1)(AA_OUT(float) y, AA_IN(float) x, aa_i32 mistake) {
  AA_LOCAL_ARRAY(aa_u32x4, tile, 64);
  AA_DYNAMIC_LOCAL(dynamic);
  const aa_i32 t = AA_LOCAL_ID;
  tile[t].x = (aa_u32)t;
  aa_u32 r[4];
  switch (mistake) {
    case 1:  // half a warp in a shuffle
      if (AA_LANE < 16) y[t] = aa_shuffle_xor(1.0f, 1);
      break;
    case 2:  // one warp at a barrier
      if (AA_WARP == 0) AA_BARRIER();
      break;
    case 3:  // different collectives
      if (AA_LANE < 16) {
        AA_WARP_SYNC();
      } else {
        y[t] = aa_shuffle_xor(1.0f, 1);
      }
      break;
    case 4:  // a vector that is not aligned
      aa_store16(y, 16 * t, aa_load16(x, 4 * t));
      break;
    case 5:  // a vector beyond the end
      aa_store16(y, 16 * t, aa_load16(x, 16 * t + 16));
      break;
    case 6:  // writes beyond the end
      aa_store16(y, 16 * t + 16, aa_load16(x, 16 * t));
      break;
    case 7:  // an asynchronous copy from beyond the end
      aa_async_copy16(&tile[t], x, 16 * t + 16, true);
      aa_async_wait(0);
      break;
    case 8:  // a copy to where no local memory is
      aa_async_copy16(&tile[t] + 1, x, 0, false);
      break;
    case 9:  // rows of a matrix that are not aligned
      aa_ldmatrix(r, (const char*)&tile[AA_LANE] + 4);
      break;
    case 10:  // writes behind local memory
      if (t == 63) ((aa_u32*)&tile[64])[0] = 1;
      break;
    case 11:  // writes behind what the launch asked for
      dynamic[t] = 1;
      break;
    case 12:  // reads another warp's local memory without a barrier
      y[t] = (float)tile[63 - t].x;
      break;
    case 13:  // never waits for the kernel before
      return;
    case 14:  // uses its result too early
      y[t] = x[t];
      break;
  }
  aa_grid_wait();
}
AA_REGISTER_TUNED(warp_mistakes, 64)

// Resembles the work of a block of a product for one token: loads, products (of the low half of each word), a sum over
// warps.
AA_TUNED_KERNEL(warp_sums, 256, 2)(AA_OUT(float) y, AA_IN(aa_u16) w, AA_IN(aa_u16) x, aa_i64 columns) {
  AA_LOCAL_ARRAY(float, parts, 8);
  float sum = 0;
  for (aa_i64 c = AA_LOCAL_ID * 8; c < columns; c += 2048) {
    const aa_u32x4 a = aa_load16_stream(w, 2 * (AA_GROUP_ID(0) * columns + c));
    const aa_u32x4 b = aa_load16(x, 2 * c);
    sum = aa_fma(aa_float(a.x << 16), aa_float(b.x << 16), sum);
    sum = aa_fma(aa_float(a.y << 16), aa_float(b.y << 16), sum);
    sum = aa_fma(aa_float(a.z << 16), aa_float(b.z << 16), sum);
    sum = aa_fma(aa_float(a.w << 16), aa_float(b.w << 16), sum);
  }
  sum = aa_warp_sum(sum);
  if (AA_LANE == 0) parts[AA_WARP] = sum;
  AA_BARRIER();
  if (AA_LOCAL_ID == 0) {
    for (int i = 1; i < 8; ++i) sum += parts[i];
    y[AA_GROUP_ID(0)] = sum;
  }
}
AA_REGISTER_TUNED(warp_sums, 256)
