// How gemm.cpp lays out x in panels and the weights in slivers, in words of fp32 or of bf16 pairs. Included after
// base/simd/highway.h, once per instruction set.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "accelerators/cpu/kernels/gemm_plan.h"
#include "accelerators/cpu/kernels/matmul_args.h"
#include "accelerators/cpu/kernels/matmul_finish-inl.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_GEMM_PACK_INL_H_
#undef ANYACCEL_CPU_KERNELS_GEMM_PACK_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_GEMM_PACK_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// The tile: 24 accumulators, 3 vectors of x and one weight in 32 registers (AVX-512), or 12 in 16.
constexpr int kSliver = kLanes >= 16 ? 8 : 4;
constexpr int kMaxVectors = 3;
// Words along k of a stretch, for which slivers are widened at once: 8 KiB for each with AVX-512. Pairs and AVX2 have
// half as many words, because AMD's caches are half as large, or less, as those that the other numbers are for: the
// words of a panel then stay in 32 KiB while the slivers pass.
template <bool kPairs>
constexpr int64_t kDepth = kPairs || kLanes == 8 ? 128 : 256;
// Words from row to row of a sliver. With AVX2 this is no power of two, because a Zen 3 cannot load twice at once from
// one bank of the first-level cache: a prompt of 512 tokens ran at 0.83 of the rate of multiply-adds instead of 0.71 to
// 0.75.
template <bool kPairs>
constexpr int64_t kStride = kDepth<kPairs> + (kLanes == 8 ? 8 : 0);

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
int64_t ceil_div(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

// Rows of a block of x as vectors, split into panels of up to kMaxVectors of nearly equal width.
struct Panels {
  int64_t vectors;
  int64_t count;
  explicit Panels(int64_t rows) : vectors(ceil_div(rows, kLanes)), count(ceil_div(vectors, kMaxVectors)) {}
  int64_t begin(int64_t panel) const { return vectors * panel / count; }  // first vector
  int64_t lanes() const { return vectors * kLanes; }
};

// Output columns of a sliver. A gated output needs a row of both weights for each.
int64_t sliver_columns(const Matmul& args) { return kSliver / args.weights(); }

// Reads words [begin, begin + n) of a row of x or of weights. Rows of pairs are dense bf16, and the last pair may lack
// its second element.
void read_words(const GemmPlan& plan, const Row& row, int64_t begin, int64_t n, float* to) {
  if (!plan.pairs) return read_floats(row, begin, n, to);
  const auto* from = reinterpret_cast<const uint16_t*>(row.data) + 2 * begin;
  const int64_t whole = std::min(n, row.length / 2 - begin);
  int64_t i = 0;
  for (; i + kLanes <= whole; i += kLanes) {
    hn::StoreU(hn::LoadU(kUints, reinterpret_cast<const uint32_t*>(from + 2 * i)), kUints,
               reinterpret_cast<uint32_t*>(to + i));
  }
  std::memcpy(to + i, from + 2 * i, static_cast<size_t>(whole - i) * sizeof(float));
  if (whole == n) return;
  const uint16_t last[2] = {from[2 * whole], 0};
  std::memcpy(to + whole, last, sizeof(last));
}

// to[i] = the pair of a[i] and b[i], or of a[i] and zero without b.
void join(const uint16_t* a, const uint16_t* b, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t word = a[i] | (b != nullptr ? uint32_t{b[i]} << 16 : 0);
    std::memcpy(to + i, &word, sizeof(word));
  }
}

// pack_x() for an x whose columns are contiguous (the transposition of a row-major matrix): its elements lie as they
// are packed.
void pack_transposed_x(const GemmPlan& plan, int64_t m0, int64_t rows, int index, int count) {
  const Matmul& args = *plan.args;
  const Panels panels(rows);
  for (int64_t k = plan.words * index / count; k < plan.words * (index + 1) / count; ++k) {
    const int64_t element = plan.elements(k);
    const Row row{static_cast<char*>(args.x.at(m0, element)), args.x.dtype, 1, rows};
    const auto* second = element + 1 < args.k ? static_cast<const uint16_t*>(args.x.at(m0, element + 1)) : nullptr;
    for (int64_t panel = 0; panel < panels.count; ++panel) {
      const int64_t lane0 = panels.begin(panel) * kLanes;
      const int64_t width = panels.begin(panel + 1) * kLanes - lane0;
      float* packed = plan.packed_x + lane0 * plan.words + k * width;
      const int64_t there = std::min(width, rows - lane0);
      if (plan.pairs) {
        join(reinterpret_cast<const uint16_t*>(row.data) + lane0, second == nullptr ? nullptr : second + lane0, there,
             packed);
      } else {
        read_floats(row, lane0, there, packed);
      }
      std::fill_n(packed + there, width - there, 0.0f);
    }
  }
}

// packed[panel][k][lane] = word k of x[m0 + lane of panel]; rows beyond the block are zero. Split over the threads.
void pack_x(const GemmPlan& plan, int64_t m0, int64_t rows, int index, int count) {
  const Matmul& args = *plan.args;
  if (args.x.row_stride == 1 && args.x.column_stride != 1) return pack_transposed_x(plan, m0, rows, index, count);
  const Panels panels(rows);
  constexpr int64_t kRows = 4;  // of one transposition
  const int64_t words = plan.words, k_rounded = round_up(words, kLanes);
  auto* wide = scratch<float>(Scratch::Row0, static_cast<size_t>(kRows * k_rounded));
  // With one lane (the baseline) a panel may hold fewer than four lanes.
  constexpr int64_t kGroup = kLanes < kRows ? 1 : kRows;
  const int64_t groups = panels.lanes() / kGroup;
  for (int64_t panel = 0; panel < panels.count; ++panel) {
    const int64_t lane0 = panels.begin(panel) * kLanes;
    const int64_t width = panels.begin(panel + 1) * kLanes - lane0;
    float* packed = plan.packed_x + lane0 * words;
    for (int64_t lane = 0; lane < width; lane += kGroup) {
      const int64_t group = (lane0 + lane) / kGroup;
      if (group * count / groups != index) continue;
      const float* from[kRows];
      for (int64_t r = 0; r < kGroup; ++r) {
        float* row = wide + r * k_rounded;
        const int64_t m = lane0 + lane + r;
        if (m < rows) {
          read_words(plan, row_of(args.x, m0 + m, args.k), 0, words, row);
        } else {
          std::memset(row, 0, static_cast<size_t>(words) * sizeof(float));
        }
        from[r] = row;
      }
      int64_t k = 0;
      if constexpr (kGroup == kRows) {
        for (; k + kLanes <= words; k += kLanes) {
          const float* const at[kRows] = {from[0] + k, from[1] + k, from[2] + k, from[3] + k};
          transpose4(at, packed + k * width + lane, width);
        }
      }
      for (; k < words; ++k) {
        for (int64_t r = 0; r < kGroup; ++r) packed[k * width + lane + r] = from[r][k];
      }
    }
  }
}

// Row r of the sliver at column0: its weight and row number. The weight is null for a row that the part does not have.
struct SliverRow {
  const Matrix* weight;
  int64_t row;
  SliverRow(const MatmulPart& part, int64_t per_sliver, int64_t column0, int64_t r) {
    const bool second = r >= per_sliver;
    row = column0 + (second ? r - per_sliver : r);
    weight = row < part.n ? &part.weight[second ? 1 : 0] : nullptr;
  }
};

// Whether the columns of the weights are contiguous (the transposition of a row-major matrix). Their slivers lie
// interleaved, [k][row] instead of [row][k], as their elements come.
bool is_interleaved(const Matmul& args, const MatmulPart& part) {
  return !args.gated && part.weight[0].row_stride == 1 && part.weight[0].column_stride != 1;
}

// wide[sliver][k][r] = read(k, row), kStep apart from sliver to sliver; the last one may lack rows, which are zero.
template <int64_t kStep, class Read>
void interleave(int64_t rows, int64_t depth, float* wide, Read read) {
  // Slivers that are read at once: all of a cache line, and no more streams than a set of a first-level cache has ways.
  constexpr int64_t kAtOnce = 4;
  int64_t row = 0;
  for (; row + kAtOnce * kSliver <= rows; row += kAtOnce * kSliver, wide += kAtOnce * kStep) {
    for (int64_t k = 0; k < depth; ++k) {
      AA_UNROLL for (int64_t i = 0; i < kAtOnce; ++i) {
        AA_UNROLL for (int64_t r = 0; r < kSliver; ++r) {
          wide[i * kStep + k * kSliver + r] = read(k, row + i * kSliver + r);
        }
      }
    }
  }
  for (; row < rows; row += kSliver, wide += kStep) {
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t r = 0; r < kSliver; ++r) wide[k * kSliver + r] = row + r < rows ? read(k, row + r) : 0.0f;
    }
  }
}

template <class Raw, class Convert>
void interleave_columns(const Raw* from, int64_t stride, int64_t rows, int64_t depth, float* wide, Convert convert) {
  interleave<kSliver * kStride<false>>(rows, depth, wide,
                                       [=](int64_t k, int64_t row) { return convert(from[k * stride + row]); });
}

// As pairs of columns; the second one of the last pair is zero if only `columns` are left.
void interleave_pairs(const uint16_t* from, int64_t stride, int64_t rows, int64_t depth, int64_t columns, float* wide) {
  const auto pair = [](uint32_t a, uint32_t b) {
    const uint32_t word = a | b << 16;
    float value;
    std::memcpy(&value, &word, sizeof(value));
    return value;
  };
  constexpr int64_t kStep = kSliver * kStride<true>;
  const int64_t whole = std::min(depth, columns / 2);
  interleave<kStep>(rows, whole, wide, [=](int64_t k, int64_t row) {
    return pair(from[2 * k * stride + row], from[(2 * k + 1) * stride + row]);
  });
  if (whole == depth) return;
  interleave<kStep>(rows, 1, wide + whole * kSliver,
                    [=](int64_t, int64_t row) { return pair(from[2 * whole * stride + row], 0); });
}

// wide[sliver][k][r] = words [k0, k0 + depth) of up to `slivers` slivers from column0 on.
void widen_interleaved(const GemmPlan& plan, const MatmulPart& part, int64_t column0, int64_t slivers, int64_t k0,
                       int64_t depth, float* wide) {
  const Matrix& weight = part.weight[0];
  const int64_t rows = std::min(slivers * kSliver, part.n - column0), stride = weight.column_stride;
  const void* from = weight.at(column0, plan.elements(k0));
  const auto* words = static_cast<const uint16_t*>(from);
  if (plan.pairs) return interleave_pairs(words, stride, rows, depth, plan.args->k - plan.elements(k0), wide);
  switch (weight.dtype) {
    case DType::F32:
      return interleave_columns(static_cast<const float*>(from), stride, rows, depth, wide, [](float v) { return v; });
    // Lambdas, because a function that is given by its address is called for each element.
    case DType::BF16:
      return interleave_columns(words, stride, rows, depth, wide, [](uint16_t v) { return bf16_to_float(v); });
    default: return interleave_columns(words, stride, rows, depth, wide, [](uint16_t v) { return fp16_to_float(v); });
  }
}

// wide[r][k] = words [k0, k0 + depth) of the rows of one sliver, kStride apart. Rows that the part does not have are
// zero.
void widen_sliver(const GemmPlan& plan, const MatmulPart& part, int64_t column0, int64_t k0, int64_t depth,
                  float* wide) {
  const int64_t per_sliver = sliver_columns(*plan.args);
  for (int64_t r = 0; r < kSliver; ++r) {
    const SliverRow at(part, per_sliver, column0, r);
    float* row = wide + r * plan.stride;
    if (at.weight != nullptr) {
      read_words(plan, row_of(*at.weight, at.row, plan.args->k), k0, depth, row);
    } else {
      std::memset(row, 0, static_cast<size_t>(depth) * sizeof(float));
    }
  }
}

// Prefetches rows [first, last) of a sliver at words [k0, k0 + depth), which will be widened soon.
void prefetch_sliver(const GemmPlan& plan, const MatmulPart& part, int64_t column0, int64_t k0, int64_t depth,
                     int64_t first, int64_t last) {
  const int64_t per_sliver = sliver_columns(*plan.args);
  for (int64_t r = first; r < last; ++r) {
    const SliverRow at(part, per_sliver, column0, r);
    if (at.weight == nullptr || at.weight->column_stride != 1) continue;
    const char* begin = static_cast<const char*>(at.weight->at(at.row, plan.elements(k0)));
    const int64_t bytes = plan.elements(depth) * static_cast<int64_t>(dtype_size(at.weight->dtype));
    for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(begin + line, 0, 3);
  }
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
