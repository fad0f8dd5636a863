// Attention of one token over dense rows of bf16 with AVX2. The number of instructions bounds a core here, whatever
// they are, so these are the arrangements with the fewest for a multiply-add. Included after base/simd/highway.h, once
// per instruction set; empty for others than AVX2.
//
// Keys are widened and transposed once for all query heads: lanes are slots, and no horizontal sums are left. Values
// are summed for three vectors of results and four heads at once.
#include <algorithm>
#include <type_traits>

#include "accelerators/cpu/kernels/attention_rows-inl.h"
#include "accelerators/cpu/kernels/attention_transpose-inl.h"
#include "accelerators/cpu/kernels/attention_twelve-inl.h"
#include "accelerators/cpu/kernels/attention_values-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_SLOTS_AVX2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_SLOTS_AVX2_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_SLOTS_AVX2_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_SLOTS_AVX2_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2

constexpr int64_t kLine = 64;

// Returns whether rows of `size` elements follow each other without gaps.
HWY_INLINE bool are_dense(const BlockRows& rows, int64_t size) { return rows.stride == row_offset(Bf16Type(), size); }

// ---- keys -----------------------------------------------------------------------------------------------------------

// Elements that are transposed together, so that keys and queries stay in the first-level cache.
constexpr int64_t kKeyElements = 64;
// Elements of a step of score_slots(), and lines that it prefetches into each cache.
constexpr int64_t kScoreStep = 8, kScoreLines = 3;

// Up to kKeyElements elements of kSlotsAtOnce keys, transposed.
struct SlotKeys {
  alignas(32) float values[kKeyElements][kSlotsAtOnce];
};

// to[element][row] = factor * query, for kTwelveRows rows that are `size` floats apart: the order of score_slots().
HWY_INLINE void pack_slot_queries(const float* HWY_RESTRICT q, int64_t size, float factor, float* HWY_RESTRICT to) {
  for (int64_t d = 0; d < size; ++d) {
    for (int64_t m = 0; m < kTwelveRows; ++m) *to++ = factor * q[m * size + d];
  }
}

// Widens and transposes kPair elements of kLanes rows, `stride` bytes apart: to[element * kSlotsAtOnce + row].
HWY_INLINE void transpose_keys(const char* row, int64_t stride, float* to) {
  FloatVec pairs[kLanes];
  AA_UNROLL for (int64_t s = 0; s < kLanes; ++s) {
    pairs[s] = hn::BitCast(kFloats, load_bf16_pairs(reinterpret_cast<const uint16_t*>(row + s * stride)));
  }
  transpose(pairs);
  AA_UNROLL for (int64_t i = 0; i < kLanes; ++i, to += 2 * kSlotsAtOnce) {
    const auto bits = hn::BitCast(kUints, pairs[i]);
    hn::Store(hn::BitCast(kFloats, hn::ShiftLeft<16>(bits)), kFloats, to);
    hn::Store(hn::BitCast(kFloats, hn::And(bits, hn::Set(kUints, 0xffff0000u))), kFloats, to + kSlotsAtOnce);
  }
}

// Each assembly block holds a whole loop, because the compiler spills sums between blocks. The loops begin with zeros
// instead of given sums, which keeps the number of operands within the compiler's limit. Registers 12 to 14 hold keys
// or values, and 15 a query or a weight.
// clang-format off
#define AA_CLEAR(sum) "vxorps %[" #sum "], %[" #sum "], %[" #sum "]\n\t"
#define AA_CLEAR_SUMS                                                           \
  AA_CLEAR(s0) AA_CLEAR(s1) AA_CLEAR(s2) AA_CLEAR(s3) AA_CLEAR(s4) AA_CLEAR(s5) \
  AA_CLEAR(s6) AA_CLEAR(s7) AA_CLEAR(s8) AA_CLEAR(s9) AA_CLEAR(s10) AA_CLEAR(s11)
#define AA_SUMS(sums)                                                                                         \
  [s0] "=&x"((sums)[0].raw), [s1] "=&x"((sums)[1].raw), [s2] "=&x"((sums)[2].raw), [s3] "=&x"((sums)[3].raw), \
  [s4] "=&x"((sums)[4].raw), [s5] "=&x"((sums)[5].raw), [s6] "=&x"((sums)[6].raw), [s7] "=&x"((sums)[7].raw), \
  [s8] "=&x"((sums)[8].raw), [s9] "=&x"((sums)[9].raw), [s10] "=&x"((sums)[10].raw), [s11] "=&x"((sums)[11].raw)
#define AA_CLOBBERED "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc"

// Adds the products of two or three vectors with one number, which is broadcast.
#define AA_ADD_TWO(number, s0, s1)               \
  "vbroadcastss " number ", %%ymm15\n\t"         \
  "vfmadd231ps %%ymm12, %%ymm15, %[" #s0 "]\n\t" \
  "vfmadd231ps %%ymm13, %%ymm15, %[" #s1 "]\n\t"
#define AA_ADD_THREE(number, s0, s1, s2) \
  AA_ADD_TWO(number, s0, s1)             \
  "vfmadd231ps %%ymm14, %%ymm15, %[" #s2 "]\n\t"

#define AA_SCORE_ELEMENT(e)                      \
  "vmovaps " #e "*96(%[key]), %%ymm12\n\t"       \
  "vmovaps " #e "*96+32(%[key]), %%ymm13\n\t"    \
  "vmovaps " #e "*96+64(%[key]), %%ymm14\n\t"    \
  AA_ADD_THREE(#e "*16(%[query])", s0, s1, s2)   \
  AA_ADD_THREE(#e "*16+4(%[query])", s3, s4, s5) \
  AA_ADD_THREE(#e "*16+8(%[query])", s6, s7, s8) \
  AA_ADD_THREE(#e "*16+12(%[query])", s9, s10, s11)
// clang-format on

// scores[m][s] = query m * key s over `elements` elements, a multiple of kScoreStep, plus what is there unless `first`,
// for kTwelveRows rows. With each kScoreStep elements, prefetches kScoreLines lines from `ahead` on into the
// second-level cache, and as many lines `near` bytes behind those into the first-level cache.
HWY_INLINE void score_slots(const SlotKeys& keys, const float* query, int64_t elements, bool first, const char* ahead,
                            int64_t near, float* HWY_RESTRICT scores) {
  static_assert(kScoreStep == 8 && kScoreLines == 3 && kSlotsAtOnce * sizeof(float) == 96);  // as in the assembly
  FloatVec sums[12];
  const float* key = keys.values[0];
  const float* const end = key + elements * kSlotsAtOnce;
  // clang-format off
  asm(AA_CLEAR_SUMS  // NOLINT(hicpp-no-assembler)
      "1:\n\t"
      AA_SCORE_ELEMENT(0) AA_SCORE_ELEMENT(1) AA_SCORE_ELEMENT(2) AA_SCORE_ELEMENT(3)
      AA_SCORE_ELEMENT(4) AA_SCORE_ELEMENT(5) AA_SCORE_ELEMENT(6) AA_SCORE_ELEMENT(7)
      "prefetcht1 (%[ahead])\n\t"
      "prefetcht1 64(%[ahead])\n\t"
      "prefetcht1 128(%[ahead])\n\t"
      "prefetcht0 (%[ahead],%[near])\n\t"
      "prefetcht0 64(%[ahead],%[near])\n\t"
      "prefetcht0 128(%[ahead],%[near])\n\t"
      "add $3*64, %[ahead]\n\t"
      "add $8*16, %[query]\n\t"
      "add $8*96, %[key]\n\t"
      "cmp %[key], %[end]\n\t"
      "jne 1b"
      : AA_SUMS(sums), [key] "+&r"(key), [query] "+&r"(query), [ahead] "+&r"(ahead)
      : [end] "r"(end), [near] "r"(near)
      : AA_CLOBBERED);
  // clang-format on
  AA_UNROLL for (int64_t i = 0; i < 12; ++i) {
    float* to = scores + i / kSlotVectors * kScoreStride + i % kSlotVectors * kLanes;
    hn::StoreU(first ? sums[i] : hn::Add(hn::LoadU(kFloats, to), sums[i]), kFloats, to);
  }
}

// scores[m][j] = query m * key j over dense rows, for a multiple of kTwelveRows query heads and at least kSlotsAtOnce
// slots. `q` has each kTwelveRows of them in the order of pack_slot_queries().
HWY_NOINLINE void score_bf16(const BlockRows& keys, const float* HWY_RESTRICT q, int64_t rows, int64_t size,
                             float* HWY_RESTRICT scores) {
  // The keys that are transposed next are prefetched into the first-level cache: without that, scores take some 5%
  // longer.
  const auto near = static_cast<int64_t>(reinterpret_cast<intptr_t>(keys.first) -
                                         reinterpret_cast<intptr_t>(keys.next) + kSlotsAtOnce * keys.stride);
  for (int64_t first = 0; first < keys.slots; first += kSlotsAtOnce) {
    const int64_t j = std::min(first, keys.slots - kSlotsAtOnce);  // the last slots may be computed twice
    const char* ahead = keys.next + j * keys.stride;
    for (int64_t begin = 0; begin < size; begin += kKeyElements) {
      const int64_t elements = std::min(kKeyElements, size - begin);
      SlotKeys transposed;
      for (int64_t v = 0; v < kSlotVectors; ++v) {
        const char* row = keys.row(j + v * kLanes) + row_offset(Bf16Type(), begin);
        for (int64_t d = 0; d < elements; d += kPair) {
          transpose_keys(row + row_offset(Bf16Type(), d), keys.stride, transposed.values[d] + v * kLanes);
        }
      }
      // Two groups of rows prefetch all of the block's values, a half each.
      const int64_t half = elements / kScoreStep * kScoreLines * kLine;
      for (int64_t m = 0; m < rows; m += kTwelveRows) {
        score_slots(transposed, q + m * size + begin * kTwelveRows, elements, begin == 0,
                    ahead + m / kTwelveRows % 2 * half, near, scores + m * kScoreStride + j);
      }
      ahead += 2 * half;
    }
  }
}

#undef AA_SCORE_ELEMENT

// ---- values ---------------------------------------------------------------------------------------------------------

// Vectors of results that are summed together: the first or the last three of three pairs, or the two of a single pair.
enum class Columns { First, Last, Pair };
constexpr int64_t kColumnPairs = 3;  // pairs of First and Last

// Slots of a step of sum_twelve(), and the two lines that a step prefetches: one at `at`, and one `second` bytes behind
// it.
constexpr int64_t kSlotsATime = 3;
struct LinesAhead {
  const char* at;
  int64_t second, step;
};

// clang-format off
#define AA_VALUES_FIRST(at)            \
  "vmovdqu " at ", %%ymm12\n\t"        \
  "vmovdqu 32" at ", %%ymm14\n\t"      \
  "vpand %[odd], %%ymm12, %%ymm13\n\t" \
  "vpslld $16, %%ymm12, %%ymm12\n\t"   \
  "vpslld $16, %%ymm14, %%ymm14\n\t"
#define AA_VALUES_LAST(at)             \
  "vmovdqu " at ", %%ymm12\n\t"        \
  "vmovdqu 32" at ", %%ymm13\n\t"      \
  "vpand %[odd], %%ymm12, %%ymm12\n\t" \
  "vpand %[odd], %%ymm13, %%ymm14\n\t" \
  "vpslld $16, %%ymm13, %%ymm13\n\t"
#define AA_VALUES_PAIR(at)             \
  "vmovdqu " at ", %%ymm12\n\t"        \
  "vpand %[odd], %%ymm12, %%ymm13\n\t" \
  "vpslld $16, %%ymm12, %%ymm12\n\t"
#define AA_WEIGHT(slot, m) #m "*%c[between]+" #slot "*4(%[weight])"
#define AA_SUM_THREE(slot)                                                                  \
  AA_ADD_THREE(AA_WEIGHT(slot, 0), s0, s1, s2) AA_ADD_THREE(AA_WEIGHT(slot, 1), s3, s4, s5) \
  AA_ADD_THREE(AA_WEIGHT(slot, 2), s6, s7, s8) AA_ADD_THREE(AA_WEIGHT(slot, 3), s9, s10, s11)
#define AA_SUM_TWO(slot)                                                        \
  AA_ADD_TWO(AA_WEIGHT(slot, 0), s0, s1) AA_ADD_TWO(AA_WEIGHT(slot, 1), s2, s3) \
  AA_ADD_TWO(AA_WEIGHT(slot, 2), s4, s5) AA_ADD_TWO(AA_WEIGHT(slot, 3), s6, s7)
// The loop over slots: kSlotsATime in each step, and then the remaining ones.
#define AA_SUM_ASM(load, add)                                                                             \
  asm(AA_CLEAR_SUMS                                                                                       \
      "cmp %[weight], %[end]\n\tje 2f\n\t"                                                                \
      "1:\n\t" load("(%[at])") add(0) load("(%[at],%[stride])") add(1) load("(%[at],%[stride],2)") add(2) \
      "prefetcht1 (%[ahead])\n\tprefetcht1 (%[ahead],%[second])\n\tadd %[step], %[ahead]\n\t"             \
      "add %[some], %[at]\n\tadd $12, %[weight]\n\tcmp %[weight], %[end]\n\tjne 1b\n\t"                   \
      "2:\n\tcmp %[weight], %[last]\n\tje 4f\n\t"                                                         \
      "3:\n\t" load("(%[at])") add(0)                                                                     \
      "add %[stride], %[at]\n\tadd $4, %[weight]\n\tcmp %[weight], %[last]\n\tjne 3b\n\t"                 \
      "4:"                                                                                                \
      : AA_SUMS(sum), [at] "+&r"(row), [weight] "+&r"(weight), [ahead] "+&r"(ahead.at)                    \
      : [stride] "r"(values.stride), [some] "r"(kSlotsATime * values.stride), [second] "r"(ahead.second), \
        [step] "r"(ahead.step), [end] "r"(end), [last] "r"(last), [odd] "m"(odd),                         \
        [between] "i"(kScoreStride * sizeof(float))                                                       \
      : AA_CLOBBERED)
// clang-format on

// sums[m] = sums[m] * correction[m] + sum over slots of weights[m][j] * value j, for kTwelveRows rows of `size` sums
// and the columns at which `row` and `sums` point.
template <Columns kColumns>
HWY_INLINE void sum_twelve(const BlockRows& values, const char* row, const float* weight, const float* correction,
                           float* HWY_RESTRICT sums, int64_t size, LinesAhead& ahead) {
  constexpr int64_t kVectors = kColumns == Columns::Pair ? 2 : 3;
  alignas(32) static constexpr uint32_t kOdd[kLanes] = {0xffff0000u, 0xffff0000u, 0xffff0000u, 0xffff0000u,
                                                        0xffff0000u, 0xffff0000u, 0xffff0000u, 0xffff0000u};
  const auto& odd = *reinterpret_cast<const char(*)[sizeof(kOdd)]>(kOdd);
  const float* const last = weight + values.slots;
  const float* const end = last - values.slots % kSlotsATime;
  FloatVec sum[12];
  if constexpr (kColumns == Columns::First) {
    AA_SUM_ASM(AA_VALUES_FIRST, AA_SUM_THREE);  // NOLINT(hicpp-no-assembler)
  } else if constexpr (kColumns == Columns::Last) {
    AA_SUM_ASM(AA_VALUES_LAST, AA_SUM_THREE);  // NOLINT(hicpp-no-assembler)
  } else {
    AA_SUM_ASM(AA_VALUES_PAIR, AA_SUM_TWO);  // NOLINT(hicpp-no-assembler)
  }
  AA_UNROLL for (int64_t i = 0; i < kTwelveRows * kVectors; ++i) {
    float* to = sums + i / kVectors * size + i % kVectors * kLanes;
    const auto corrected = hn::Set(kFloats, correction[i / kVectors]);
    hn::StoreU(hn::MulAdd(hn::LoadU(kFloats, to), corrected, sum[i]), kFloats, to);
  }
}

// As sum_rows() for dense rows of bf16, a multiple of kTwelveRows query heads.
HWY_NOINLINE void sum_bf16(const BlockRows& values, const float* weights, const float* correction, float* sums,
                           int64_t rows, int64_t size) {
  // A step prefetches two lines if there is one group of rows, and one line if there are more.
  const int64_t lines = rows == kTwelveRows ? 2 : 1;
  int64_t left = values.next_slots * values.stride / kLine;
  LinesAhead ahead{values.next, (lines - 1) * kLine, lines * kLine};
  const auto sum = [&](auto columns, int64_t d, int64_t bytes) HWY_ATTR {
    for (int64_t m = 0; m < rows; m += kTwelveRows) {
      // When nothing is left, the prefetches repeat a line of these values.
      if (left <= 0) ahead = {values.first, 0, 0};
      left -= values.slots / kSlotsATime * lines;
      sum_twelve<columns()>(values, values.first + bytes, weights + m * kScoreStride, correction + m,
                            sums + m * size + d, size, ahead);
    }
  };
  int64_t d = 0;
  for (; d + kColumnPairs * kPair <= size; d += kColumnPairs * kPair) {
    sum(std::integral_constant<Columns, Columns::First>(), d, row_offset(Bf16Type(), d));
    sum(std::integral_constant<Columns, Columns::Last>(), d + kPair + kLanes, row_offset(Bf16Type(), d + kPair));
  }
  for (; d < size; d += kPair) sum(std::integral_constant<Columns, Columns::Pair>(), d, row_offset(Bf16Type(), d));
  for (; left > 0; --left, ahead.at += kLine) __builtin_prefetch(ahead.at, 0, 2);
}

#undef AA_SUM_ASM
#undef AA_SUM_TWO
#undef AA_SUM_THREE
#undef AA_WEIGHT
#undef AA_VALUES_PAIR
#undef AA_VALUES_LAST
#undef AA_VALUES_FIRST
#undef AA_ADD_THREE
#undef AA_ADD_TWO
#undef AA_CLOBBERED
#undef AA_SUMS
#undef AA_CLEAR_SUMS
#undef AA_CLEAR

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
