// The op "random": words of Philox 4x32-10, as bits, uniform or normal numbers.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "accelerators/cpu/kernels/parallel.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/ops.h"
#include "anyaccel/philox.h"
#include "base/scalar_convert.h"
#include "base/simd/dispatch.h"
#include "runtime/ops/op_params.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/random.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/philox-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

void random_words(uint64_t seed, uint64_t first, int64_t counters, uint32_t* words) {
  philox_fill(seed, first, counters, words);
}

void write_numbers(const Row& row, int64_t begin, int64_t n, const float* from) { write_row(row, begin, n, from); }

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(random_words);
AA_CPU_EXPORT(write_numbers);

namespace {

// Elements made at once.
constexpr int64_t kChunk = 1024;

bool is_dense(const aa_tensor& t) {
  int64_t expected = 1;
  for (int d = t.ndim - 1; d >= 0; --d) {
    if (t.shape[d] != 1 && t.strides[d] != expected) return false;
    expected *= t.shape[d];
  }
  return true;
}

void* element(const Row& row, int64_t i) {
  return row.data + i * row.stride * static_cast<int64_t>(dtype_size(row.dtype));
}

// Elements [begin, begin + n) of a row whose element 0 has the row-major number `number`; n <= kChunk.
void fill_piece(const aa_random_params& params, const Row& row, uint64_t number, int64_t begin, int64_t n) {
  const uint64_t per_element = params.kind == AA_RANDOM_BITS && row.dtype == DType::I64 ? 2 : 1;
  const uint64_t first_word = (number + static_cast<uint64_t>(begin)) * per_element;
  const uint64_t counter = first_word / 4;
  const int64_t skip = static_cast<int64_t>(first_word % 4);
  alignas(64) uint32_t words[2 * kChunk + 4 + 4 * 64];
  AA_CPU_DISPATCH(random_words)
  (params.seed, params.offset + counter, (skip + n * static_cast<int64_t>(per_element) + 3) / 4, words);
  const uint32_t* word = words + skip;

  if (params.kind == AA_RANDOM_UNIFORM) {
    const float low = static_cast<float>(params.low);
    const float range = static_cast<float>(params.high) - low;
    float values[kChunk];
    for (int64_t i = 0; i < n; ++i) values[i] = range * philox_unit(word[i]);
    for (int64_t i = 0; i < n; ++i) values[i] += low;
    if (is_op_float(row.dtype)) return AA_CPU_DISPATCH(write_numbers)(row, begin, n, values);
    for (int64_t i = 0; i < n; ++i) store_number(element(row, begin + i), row.dtype, values[i]);
  } else if (params.kind == AA_RANDOM_NORMAL) {
    // Pairs begin at even elements, so the first or the last element may be half of a pair.
    for (int64_t i = -(skip & 1); i < n; i += 2) {
      const double first = static_cast<double>((word[i] >> 8) + 1) * 0x1p-24;
      const double second = static_cast<double>(word[i + 1] >> 8) * 0x1p-24;
      const double radius = std::sqrt(-2 * std::log(first)), angle = 2 * std::numbers::pi * second;
      if (i >= 0)
        store_number(element(row, begin + i), row.dtype, params.low + params.high * (radius * std::cos(angle)));
      if (i + 1 < n) {
        store_number(element(row, begin + i + 1), row.dtype, params.low + params.high * (radius * std::sin(angle)));
      }
    }
  } else if (per_element == 2) {
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t value = static_cast<uint64_t>(word[2 * i + 1]) << 32 | word[2 * i];
      store_bits(element(row, begin + i), value);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) store_number(element(row, begin + i), row.dtype, static_cast<int64_t>(word[i]));
  }
}

}  // namespace

void random(const aa_op_call& call) {
  const auto& params = params_of<aa_random_params>(call);
  aa_tensor flat = call.tensors[0];
  if (is_dense(flat)) {
    int64_t n = 1;
    for (int d = 0; d < flat.ndim; ++d) n *= flat.shape[d];
    flat.ndim = 1;
    flat.shape[0] = n;
    flat.strides[0] = 1;
  }
  const Rows rows(flat);
  const int64_t length = rows.length();
  if (length == 0) return;
  const int64_t chunks = (length + kChunk - 1) / kChunk;
  const int64_t work = (params.kind == AA_RANDOM_NORMAL ? 50 : 4) * std::min(length, kChunk);
  parallel_for(rows.count() * chunks, work, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const int64_t r = i / chunks, begin = i % chunks * kChunk;
      fill_piece(params, rows.row(r), static_cast<uint64_t>(r * length), begin, std::min(kChunk, length - begin));
    }
  });
}

}  // namespace anyaccel::cpu
#endif
