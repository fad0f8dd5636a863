// Maxima and sums over rows of fp32 numbers, of which each item takes pieces of AA_PIECE neighbours: a vector where an item has a
// row alone, one element where a group shares it. Include after dialect.h and products.h.
#ifndef ANYACCEL_KERNELS_PIECES_H_
#define ANYACCEL_KERNELS_PIECES_H_

#if AA_GROUP_SIZE == 1
#define AA_PIECE AA_WIDE
#else
#define AA_PIECE 1
#endif

#define AA_NEGATIVE_INFINITY (-aa_float(0x7f800000u))

// The result of an item's pass over its elements: the maxima, or sums, of whole pieces by position, and of the rest of
// a block.
typedef struct aa_maxima {
#if defined(AA_HAS_WIDE_MAX)
  aa_wide places;
#else
  float places[AA_PIECE];
#endif
  float rest;
} aa_maxima;

AA_FN aa_maxima aa_no_maxima() {
  aa_maxima maxima;
#if defined(AA_HAS_WIDE_MAX)
  maxima.places = aa_wide_all(AA_NEGATIVE_INFINITY);
#else
  for (int j = 0; j < AA_PIECE; ++j) maxima.places[j] = AA_NEGATIVE_INFINITY;
#endif
  maxima.rest = AA_NEGATIVE_INFINITY;
  return maxima;
}
AA_FN aa_maxima aa_more_maxima(aa_maxima maxima, AA_IN(float) x, aa_i64 at, const aa_i64 n) {
  if (n == AA_PIECE) {
#if defined(AA_HAS_WIDE_MAX)
    maxima.places = aa_wide_max(maxima.places, AA_LOAD_WIDE(f32, x, at));
#else
    for (int j = 0; j < AA_PIECE; ++j) maxima.places[j] = x[at + j] > maxima.places[j] ? x[at + j] : maxima.places[j];
#endif
  } else {
    for (aa_i64 j = 0; j < n; ++j) maxima.rest = aa_fmax(maxima.rest, x[at + j]);
  }
  return maxima;
}
AA_FN float aa_largest(aa_maxima maxima) {
#if defined(AA_HAS_WIDE_MAX)
  maxima.rest = aa_fmax(maxima.rest, aa_wide_largest(maxima.places));
#else
  for (int j = 0; j < AA_PIECE; ++j) maxima.rest = aa_fmax(maxima.rest, maxima.places[j]);
#endif
  return maxima.rest;
}

typedef struct aa_running {
#if AA_GROUP_SIZE == 1
  aa_wide places;
#endif
  float rest;
} aa_running;

AA_FN aa_running aa_running_from(float value) {
  aa_running running;
#if AA_GROUP_SIZE == 1
  running.places = aa_wide_all(value);
#endif
  running.rest = value;
  return running;
}
// + the sum of x * y
AA_FN aa_running aa_running_dot(aa_running running, AA_IN(float) x, AA_IN(float) y, aa_i64 at, aa_i64 n) {
#if AA_GROUP_SIZE == 1
  if (n == AA_PIECE) {
    running.places = aa_wide_fma(AA_LOAD_WIDE(f32, x, at), AA_LOAD_WIDE(f32, y, at), running.places);
    return running;
  }
#endif
  for (aa_i64 j = 0; j < n; ++j) running.rest = aa_fma(x[at + j], y[at + j], running.rest);
  return running;
}
AA_FN aa_running aa_running_add(aa_running running, AA_IN(float) x, aa_i64 at, aa_i64 n) {
#if AA_GROUP_SIZE == 1
  if (n == AA_PIECE) {
    running.places = aa_wide_fma(AA_LOAD_WIDE(f32, x, at), aa_wide_all(1.0f), running.places);
    return running;
  }
#endif
  for (aa_i64 j = 0; j < n; ++j) running.rest += x[at + j];
  return running;
}
AA_FN float aa_total_sum(aa_running running) {
#if AA_GROUP_SIZE == 1
  running.rest += aa_wide_sum(running.places);
#endif
  return running.rest;
}

// x += bias, whose element type is known when running only.
AA_FN void aa_add_piece(const aa_i64 n, AA_OUT(float) x, aa_i64 at, AA_IN(void) bias, aa_i32 dtype, aa_i64 bias_at) {
#if AA_GROUP_SIZE == 1
  if (n == AA_PIECE) {
    const aa_wide sum = aa_wide_fma(AA_LOAD_WIDE(f32, x, at), aa_wide_all(1.0f), aa_load_wide(bias, dtype, bias_at));
    aa_wide_store_f32(x, at, sum);
    return;
  }
#endif
  for (aa_i64 j = 0; j < n; ++j) x[at + j] += aa_load(bias, dtype, bias_at + j);
}
AA_FN void aa_exp_piece(const aa_i64 n, AA_OUT(float) x, aa_i64 at, float largest) {
#if defined(AA_HAS_WIDE_EXP)
  if (n == AA_PIECE) {
    aa_wide_store_f32(x, at, aa_wide_exp(AA_LOAD_WIDE(f32, x, at), largest));
    return;
  }
#endif
  for (aa_i64 j = 0; j < n; ++j) x[at + j] = aa_exp(x[at + j] - largest);
}
AA_FN void aa_scale_piece(const aa_i64 n, AA_OUT(float) x, aa_i64 at, float factor) {
  for (aa_i64 j = 0; j < n; ++j) x[at + j] *= factor;
}
// dy = y * (dy - dot) * scale: the gradient of a softmax.
AA_FN void aa_gradient_piece(const aa_i64 n, AA_IN(float) y, AA_OUT(float) dy, aa_i64 at, float dot, float scale) {
  for (aa_i64 j = 0; j < n; ++j) dy[at + j] = y[at + j] * (dy[at + j] - dot) * scale;
}

#endif  // ANYACCEL_KERNELS_PIECES_H_
