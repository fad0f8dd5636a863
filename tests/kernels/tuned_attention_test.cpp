// The attention kernels of kernels/cuda on the host, against sums in double: sequences and positions in any order, also out of
// range, windows, soft caps, strides, numbers of splits, and slots that a token does not see and that hold NaN or infinity.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "simulators/engine/warp.h"
#include "tests/kernels/tuned_kernel_support.h"

namespace anyaccel::testing {
namespace {

using aa_i32 = std::int32_t;
using aa_i64 = std::int64_t;
#define AA_ARGUMENTS_ONLY
#include "kernels/cuda/tuned_attention.h"

enum Type : int32_t { F16 = 7, BF16 = 8, F32 = 9 };

std::size_t size_of(Type type) { return type == F32 ? 4 : 2; }
std::string name_of(Type type) { return type == F32 ? "f32" : type == BF16 ? "bf16" : "f16"; }
// Largest relative error of rounding to a type.
double unit_of(Type type) { return std::ldexp(1.0, type == F32 ? -24 : type == BF16 ? -8 : -11); }

float widen(Type type, const char* at) {
  if (type == F32) {
    float v;
    std::memcpy(&v, at, 4);
    return v;
  }
  std::uint16_t half;
  std::memcpy(&half, at, 2);
  if (type == F16) return sim::float_from_f16(half);
  const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
  float v;
  std::memcpy(&v, &bits, 4);
  return v;
}
void put(Type type, char* at, float v) {
  const std::uint16_t half = type == F32   ? std::uint16_t{0}
                             : type == F16 ? sim::f16_from_float(v)
                                           : sim::bf16_from_float(v);
  std::memcpy(at, type == F32 ? static_cast<const void*>(&v) : &half, size_of(type));
}
float rounded(Type type, float v) {
  char bytes[4];
  put(type, bytes, v);
  return widen(type, bytes);
}

// A tensor of three or four dimensions in an array of its own, NaN between its elements.
struct Tensor {
  Type type;
  std::vector<int64_t> stride;
  DeviceArray array;

  static int64_t extent(const std::vector<int64_t>& shape, const std::vector<int64_t>& stride) {
    int64_t last = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) last += (shape[d] - 1) * stride[d];
    return last + 1;
  }
  // `order`: dimensions from the slowest to the fastest; `gap` elements more between neighbours of all but the fastest.
  Tensor(Type of, const std::vector<int64_t>& shape, const std::vector<std::size_t>& order, int64_t gap)
      : type(of), stride(shape.size()), array([&] {
          int64_t next = 1;
          for (std::size_t i = order.size(); i-- > 0;) {
            stride[order[i]] = next;
            next = next * shape[order[i]] + gap;
          }
          return static_cast<std::size_t>(extent(shape, stride)) * size_of(of);
        }()) {
    for (std::size_t at = 0; at < array.bytes(); at += size_of(type)) {
      put(type, array.data() + at, std::numeric_limits<float>::quiet_NaN());
    }
  }
  template <class... Index>
  char* at(Index... index) {
    const int64_t indices[] = {static_cast<int64_t>(index)...};
    int64_t offset = 0;
    for (std::size_t d = 0; d < stride.size(); ++d) offset += indices[d] * stride[d];
    return array.data() + static_cast<std::size_t>(offset) * size_of(type);
  }
  template <class... Index>
  float get(Index... index) {
    return widen(type, at(index...));
  }
  // The elements of the last dimension, which is dense in all tensors here.
  template <class... Index>
  std::vector<double> row(int64_t size, Index... index) {
    const char* const first = at(index..., 0);
    std::vector<double> values(static_cast<std::size_t>(size));
    for (int64_t d = 0; d < size; ++d) {
      values[static_cast<std::size_t>(d)] = widen(type, first + static_cast<std::size_t>(d) * size_of(type));
    }
    return values;
  }
};

// Formats of caches in bytes, as aa_cache_format numbers them.
enum Bytes : int32_t { NoBytes = 0, Q8_0 = 8, E4M3 = 256 };

struct Case {
  int64_t tokens = 1, kv_heads = 1, group = 1, size = 64, sequences = 1, slots = 64;
  Type q_type = F32, cache_type = F32, out_type = F32;
  float softcap = 0;
  int32_t window = 0;
  int64_t gap = 0;           // multiple of 8
  bool heads_first = false;  // q and out as [H, T, D] in memory
  float q_size = 1, k_size = 1;
  Bytes bytes = NoBytes;  // else cache_type is F32: what the bytes decode to
  float value_size = 1;   // of values in bytes
  std::vector<int32_t> sequence, position;
};

// A cache [B,Hk,S,C] in bytes, whose rows are written with the numbers that they decode to.
struct ByteCache {
  Bytes format;
  int64_t row, head, sequence;  // bytes from one to the next
  DeviceArray array;

  ByteCache(const Case& c)
      : format(c.bytes),
        row(format == Q8_0 ? c.size / 32 * 34 : c.size),
        head(c.slots * row + (c.gap > 0 ? (format == Q8_0 ? 12 : 16) : 0)),
        sequence(c.kv_heads * head),
        array(static_cast<std::size_t>(format == NoBytes ? 0 : c.sequences * sequence)) {
    std::memset(array.data(), 0x7f, array.bytes());  // NaN
  }
  void fill(Random& random, Tensor& numbers, int64_t b, int64_t h, int64_t j, int64_t size, float scale) {
    char* const at = array.data() + b * sequence + h * head + j * row;
    for (int64_t d = 0; d < size; ++d) {
      if (format == E4M3) {
        const auto code = static_cast<unsigned>(random.integer(0, 0x40) | random.integer(0, 1) << 7);
        const double magnitude = (code & 0x78) == 0 ? std::ldexp(code & 7, -9)
                                                    : std::ldexp(8 + (code & 7), static_cast<int>(code >> 3 & 15) - 10);
        at[d] = static_cast<char>(code);
        put(F32, numbers.at(b, h, j, d), static_cast<float>(code & 0x80 ? -magnitude : magnitude));
        continue;
      }
      char* const block = at + d / 32 * 34;
      if (d % 32 == 0) put(F16, block, scale * static_cast<float>(random.integer(50, 150)) / 10000);
      const int64_t number = random.integer(-128, 127);
      block[2 + d % 32] = static_cast<char>(number);
      put(F32, numbers.at(b, h, j, d), widen(F16, block) * static_cast<float>(number));
    }
  }
};

struct Expected {
  double value = 0;
  double mean_size = 0;  // of the values, weighted
  double largest_score = 0;
};

class Attention {
 public:
  Attention(const Case& c, Random& random)
      : c_(c),
        q_(c.q_type, {c.tokens, c.kv_heads * c.group, c.size}, order(), c.gap),
        out_(c.out_type, {c.tokens, c.kv_heads * c.group, c.size}, order(), c.gap),
        k_(c.cache_type, {c.sequences, c.kv_heads, c.slots, c.size}, {0, 1, 2, 3}, c.gap),
        v_(c.cache_type, {c.sequences, c.kv_heads, c.slots, c.size}, {0, 1, 2, 3}, c.gap),
        k_bytes_(c),
        v_bytes_(c),
        sequence_(c.sequence),
        position_(c.position) {
    const auto fill = [&](Tensor& t, auto... index) {
      for (int64_t d = 0; d < c_.size; ++d) put(t.type, t.at(index..., d), random.normal());
    };
    for (int64_t t = 0; t < c.tokens; ++t) {
      for (int64_t h = 0; h < c.kv_heads * c.group; ++h) {
        fill(q_, t, h);
        for (int64_t d = 0; d < c.size; ++d) put(q_.type, q_.at(t, h, d), q_.get(t, h, d) * c.q_size);
      }
    }
    // Entries that no token attends to stay NaN.
    for (int64_t b = 0; b < c.sequences; ++b) {
      for (int64_t j = 0; j < c.slots; ++j) {
        bool seen = false;
        for (int64_t t = 0; t < c.tokens && !seen; ++t)
          seen = c.sequence[static_cast<std::size_t>(t)] == b && sees(t, j);
        for (int64_t h = 0; seen && h < c.kv_heads; ++h) {
          if (c.bytes != NoBytes) {
            k_bytes_.fill(random, k_, b, h, j, c.size, 1.0f);
            v_bytes_.fill(random, v_, b, h, j, c.size, c.value_size);
            continue;
          }
          fill(k_, b, h, j);
          fill(v_, b, h, j);
          for (int64_t d = 0; d < c.size; ++d) put(k_.type, k_.at(b, h, j, d), k_.get(b, h, j, d) * c.k_size);
        }
      }
    }
  }

  bool sees(int64_t t, int64_t j) const {
    const int64_t position = c_.position[static_cast<std::size_t>(t)];
    return j <= position && j < c_.slots && (c_.window == 0 || j > position - c_.window);
  }
  Tensor& values() { return v_; }

  aa_tuned_attention arguments(int32_t splits) const {
    aa_tuned_attention a{};
    a.tokens = c_.tokens;
    a.kv_heads = c_.kv_heads;
    a.heads_per_kv = c_.group;
    a.sequences = c_.sequences;
    a.slots = c_.slots;
    a.size = c_.size;
    std::copy_n(q_.stride.data(), 3, a.q_stride);
    std::copy_n(out_.stride.data(), 3, a.out_stride);
    std::copy_n(k_.stride.data(), 3, a.k_stride);
    std::copy_n(v_.stride.data(), 3, a.v_stride);
    a.sequence_stride = a.position_stride = 1;
    a.scale = scale();
    a.softcap = c_.softcap;
    a.window = c_.window;
    a.q_dtype = c_.q_type;
    a.out_dtype = c_.out_type;
    a.splits = splits;
    a.q_wide = c_.q_type == F32 && c_.size % 8 == 0;
    return a;
  }

  std::string decode(int32_t splits) {
    const bool bytes = c_.bytes != NoBytes;
    const int64_t per_block = c_.cache_type == F32 && !bytes ? AA_DECODE_HEADS_F32 : AA_DECODE_HEADS;
    const int64_t size = c_.size <= 64 ? 64 : c_.size <= 128 ? 128 : 256;
    const int64_t y = c_.kv_heads * ((c_.group + per_block - 1) / per_block);
    const int64_t pairs = c_.tokens * y;
    DeviceArray partial(static_cast<std::size_t>(pairs * splits * AA_DECODE_PARTIAL(per_block, size) * 4));
    DeviceArray counters(std::vector<std::uint32_t>(static_cast<std::size_t>(pairs), 0));
    TunedShape shape;
    shape.grid = {static_cast<std::uint32_t>(splits), static_cast<std::uint32_t>(y),
                  static_cast<std::uint32_t>(c_.tokens)};
    shape.block = AA_DECODE_ATTENTION_THREADS;
    shape.overlaps_previous = true;
    aa_tuned_attention a = arguments(splits);
    if (bytes) {
      shape.shared_bytes = static_cast<std::size_t>(AA_BYTES_LOCAL(size, c_.bytes == Q8_0, AA_BYTES_RING));
      const int64_t strides[] = {k_bytes_.sequence, k_bytes_.head, k_bytes_.row};
      std::copy_n(strides, 3, a.k_stride);
      std::copy_n(strides, 3, a.v_stride);
    }
    a.early = splits % 2;  // sequence and position may be read before the kernel before has ended
    const auto maybe_early = [&](DeviceArray& array) { return a.early ? weights(array) : in(array); };
    const std::string problem = run_tuned(
        "decode_attention_" + std::to_string(size) + "_" + cache_name(), shape,
        {out(out_.array), in(q_.array), in(bytes ? k_bytes_.array : k_.array), in(bytes ? v_bytes_.array : v_.array),
         maybe_early(sequence_), maybe_early(position_), out(partial), out(counters), number(a)});
    for (const std::uint32_t left : counters.read<std::uint32_t>()) EXPECT_EQ(left, 0u);
    return problem;
  }

  std::string prefill() {
    const int64_t rows = AA_PREFILL_ROWS(c_.size);
    TunedShape shape;
    shape.grid = {static_cast<std::uint32_t>(c_.kv_heads * c_.group),
                  static_cast<std::uint32_t>((c_.tokens + rows - 1) / rows), 1};
    shape.block = AA_PREFILL_THREADS;
    shape.shared_bytes = static_cast<std::size_t>(AA_PREFILL_LOCAL(c_.size));
    shape.overlaps_previous = true;
    return run_tuned("prefill_attention_" + std::to_string(c_.size) + "_" + name_of(c_.cache_type), shape,
                     {out(out_.array), in(q_.array), in(k_.array), in(v_.array), in(sequence_), in(position_),
                      number(arguments(0))});
  }

  bool has_hopper_kernel() const { return c_.size == 64 || c_.size == 128; }
  // The same by the kernel of Hopper: a block for each piece of work, or three for all of them.
  std::string prefill_on_hopper(bool few_blocks) {
    std::memset(out_.array.data(), 0xFF, out_.array.bytes());
    const int64_t pieces = c_.kv_heads * c_.group * ((c_.tokens + AA_HOPPER_ROWS - 1) / AA_HOPPER_ROWS);
    TunedShape shape;
    shape.grid = {static_cast<std::uint32_t>(few_blocks ? std::min<int64_t>(pieces, 3) : pieces), 1, 1};
    shape.block = AA_HOPPER_THREADS;
    shape.shared_bytes = static_cast<std::size_t>(AA_HOPPER_LOCAL(c_.size));
    shape.overlaps_previous = true;
    return run_tuned("hopper_attention_" + std::to_string(c_.size) + "_" + name_of(c_.cache_type), shape,
                     {out(out_.array), in(q_.array), in(k_.array), in(v_.array), in(sequence_), in(position_),
                      number(arguments(0))});
  }

  // Compares every element. `round_q`: queries are rounded to the caches' type first. Errors may be at most `weight_error` of
  // the weighted size of the values, beside what rounding out costs; and as many times that as the largest score, unless
  // scores are `far_apart`, so that the rounding of a score changes no weight. Returns the root of the mean square of the
  // errors, relative to that of the results.
  double compare(bool round_q, double weight_error, bool far_apart = false) {
    double errors = 0, sizes = 0;
    int reported = 0;
    for (int64_t t = 0; t < c_.tokens; ++t) {
      for (int64_t h = 0; h < c_.kv_heads * c_.group; ++h) {
        const std::vector<Expected> row = expect(t, h, round_q);
        for (int64_t d = 0; d < c_.size && reported < 5; ++d) {
          const Expected& e = row[static_cast<std::size_t>(d)];
          const double value = out_.get(t, h, d);
          bool good;
          if (!std::isfinite(e.value)) {
            good = std::isnan(e.value) ? std::isnan(value) : value == e.value;
          } else {
            const double allowed = weight_error * (far_apart ? 1 : 1 + e.largest_score) * e.mean_size +
                                   unit_of(c_.out_type) * (std::abs(e.value) + weight_error * e.mean_size) + 1e-7;
            good = std::abs(value - e.value) <= allowed;
            errors += (value - e.value) * (value - e.value);
            sizes += e.value * e.value;
          }
          if (!good) {
            ++reported;
            ADD_FAILURE() << "token " << t << " (sequence " << c_.sequence[static_cast<std::size_t>(t)] << ", position "
                          << c_.position[static_cast<std::size_t>(t)] << "), head " << h << ", element " << d << " is "
                          << value << ", expected " << e.value << "; " << text();
          }
        }
      }
    }
    return sizes > 0 ? std::sqrt(errors / sizes) : 0;
  }

  std::string text() const {
    return "T " + std::to_string(c_.tokens) + ", Hk " + std::to_string(c_.kv_heads) + ", group " +
           std::to_string(c_.group) + ", D " + std::to_string(c_.size) + ", B " + std::to_string(c_.sequences) +
           ", S " + std::to_string(c_.slots) + ", q " + name_of(c_.q_type) + ", caches " + cache_name() + ", out " +
           name_of(c_.out_type) + ", window " + std::to_string(c_.window) + ", softcap " + std::to_string(c_.softcap);
  }

 private:
  std::vector<std::size_t> order() const {
    return c_.heads_first ? std::vector<std::size_t>{1, 0, 2} : std::vector<std::size_t>{0, 1, 2};
  }
  std::string cache_name() const {
    return c_.bytes == Q8_0 ? "q8_0" : c_.bytes == E4M3 ? "e4m3" : name_of(c_.cache_type);
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(c_.size)); }

  std::vector<Expected> expect(int64_t t, int64_t h, bool round_q) {
    std::vector<Expected> row(static_cast<std::size_t>(c_.size));
    const int64_t b = c_.sequence[static_cast<std::size_t>(t)], kv = h / c_.group;
    if (b < 0 || b >= c_.sequences) return row;
    std::vector<double> query = q_.row(c_.size, t, h);
    if (round_q) {
      for (double& x : query) x = rounded(c_.cache_type, static_cast<float>(x));
    }
    std::vector<double> scores;
    std::vector<int64_t> slots;
    double largest = -std::numeric_limits<double>::infinity(), total = 0, largest_score = 0;
    for (int64_t j = 0; j < c_.slots; ++j) {
      if (!sees(t, j)) continue;
      const std::vector<double> key = k_.row(c_.size, b, kv, j);
      double score = 0;
      for (std::size_t d = 0; d < key.size(); ++d) score += query[d] * key[d];
      score *= scale();
      if (c_.softcap > 0) score = c_.softcap * std::tanh(score / c_.softcap);
      scores.push_back(score);
      slots.push_back(j);
      largest = std::max(largest, score);
      largest_score = std::max(largest_score, std::abs(score));
    }
    if (scores.empty()) return row;
    for (double& score : scores) total += score = std::exp(score - largest);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const std::vector<double> value = v_.row(c_.size, b, kv, slots[i]);
      const double weight = scores[i] / total;
      for (std::size_t d = 0; d < value.size(); ++d) {
        row[d].value += weight * value[d];
        row[d].mean_size += weight * std::abs(value[d]);
      }
    }
    for (Expected& e : row) e.largest_score = largest_score;
    return row;
  }

  Case c_;
  Tensor q_, out_, k_, v_;
  ByteCache k_bytes_, v_bytes_;
  DeviceArray sequence_, position_;
};

// fp32 arithmetic: rounding of scores, of weights and of their sums.
constexpr double fp32_error = 1e-6;
// The weights are rounded to the caches' type.
double rounded_weights(Type type) { return unit_of(type) + 2e-6; }

// By every kernel that has the head size: that of Hopper with a block for each piece of work, and with three for all.
void check_prefill(Attention& attention, double weight_error, bool far_apart = false) {
  ASSERT_EQ(attention.prefill(), "");
  attention.compare(true, weight_error, far_apart);
  if (!attention.has_hopper_kernel()) return;
  for (const bool few_blocks : {false, true}) {
    SCOPED_TRACE(few_blocks ? "Hopper, three blocks" : "Hopper");
    ASSERT_EQ(attention.prefill_on_hopper(few_blocks), "");
    attention.compare(true, weight_error, far_apart);
  }
}

TEST(TunedAttention, Decode) {
  for (int seed = 0; seed < seeds(); ++seed) {
    Random random(1000 + static_cast<unsigned>(seed));
    for (int i = 0; i < 36; ++i) {
      Case c;
      c.cache_type = random.pick({F32, BF16, F16});
      c.q_type = random.pick({F32, BF16, F16});
      c.out_type = random.pick({F32, BF16, F16});
      c.tokens = random.integer(1, 4);
      c.kv_heads = random.integer(1, 3);
      c.group = random.pick<int64_t>({1, 2, 3, 4, 7, 8, 14});
      c.size = random.pick<int64_t>({8, 24, 64, 72, 80, 96, 128, 136, 256});
      c.sequences = random.integer(1, 3);
      c.slots = random.integer(1, 500);
      c.window = random.chance(0.3) ? static_cast<int32_t>(random.integer(1, 300)) : 0;
      c.softcap = random.chance(0.2) ? 5.0f : 0.0f;
      c.gap = random.pick<int64_t>({0, 0, 8, 24});
      c.heads_first = random.chance(0.3);
      for (int64_t t = 0; t < c.tokens; ++t) {
        c.sequence.push_back(static_cast<int32_t>(random.integer(0, c.sequences - 1)));
        c.position.push_back(static_cast<int32_t>(random.integer(0, c.slots - 1)));
      }
      Attention attention(c, random);
      SCOPED_TRACE(attention.text());
      ASSERT_EQ(attention.decode(static_cast<int32_t>(random.pick<int64_t>({1, 2, 3, 7, 64}))), "");
      attention.compare(false, fp32_error);
      if (HasFailure()) return;
    }
  }
}

TEST(TunedAttention, DecodeOfBytes) {
  for (int seed = 0; seed < seeds(); ++seed) {
    Random random(1500 + static_cast<unsigned>(seed));
    for (int i = 0; i < 24; ++i) {
      Case c;
      c.bytes = random.pick({Q8_0, E4M3});
      c.q_type = random.pick({F32, BF16, F16});
      c.out_type = random.pick({F32, BF16, F16});
      c.tokens = random.integer(1, 4);
      c.kv_heads = random.integer(1, 3);
      c.group = random.pick<int64_t>({1, 2, 3, 4, 7, 8, 14});
      c.size =
          c.bytes == Q8_0 ? random.pick<int64_t>({64, 128, 256}) : random.pick<int64_t>({32, 64, 96, 128, 160, 256});
      c.sequences = random.integer(1, 3);
      c.slots = random.integer(1, 700);
      c.window = random.chance(0.3) ? static_cast<int32_t>(random.integer(1, 300)) : 0;
      c.softcap = random.chance(0.2) ? 5.0f : 0.0f;
      c.gap = random.pick<int64_t>({0, 8});
      c.heads_first = random.chance(0.3);
      c.value_size = random.pick({1.0f, 1e-3f, 1e6f});
      for (int64_t t = 0; t < c.tokens; ++t) {
        c.sequence.push_back(static_cast<int32_t>(random.integer(0, c.sequences - 1)));
        c.position.push_back(static_cast<int32_t>(random.integer(0, c.slots - 1)));
      }
      if (c.value_size > 1) c.out_type = F32;
      Attention attention(c, random);
      SCOPED_TRACE(attention.text());
      ASSERT_EQ(attention.decode(static_cast<int32_t>(random.pick<int64_t>({1, 2, 3, 7, 64}))), "");
      attention.compare(false, fp32_error);
      if (HasFailure()) return;
    }
  }
}

// More tiles for a warp than its ring has.
TEST(TunedAttention, LongContextsInBytes) {
  for (const Bytes format : {Q8_0, E4M3}) {
    for (const int64_t size : {64, 128, 256}) {
      Random random(8);
      Case c;
      c.bytes = format;
      c.group = 4;
      c.size = size;
      c.slots = 1503;
      c.sequence = {0};
      c.position = {1500};
      Attention attention(c, random);
      ASSERT_EQ(attention.decode(2), "");
      EXPECT_LT(attention.compare(false, fp32_error), 1e-6) << "root mean square; " << attention.text();
    }
  }
}

TEST(TunedAttention, DecodeOfLongContexts) {
  for (const Type type : {F32, BF16, F16}) {
    Random random(5);
    Case c;
    c.cache_type = type;
    c.group = 4;
    c.size = 128;
    c.slots = 3000;
    c.sequence = {0};
    c.position = {2990};
    Attention attention(c, random);
    ASSERT_EQ(attention.decode(16), "");
    const double error = attention.compare(false, fp32_error);
    RecordProperty("decode_error_" + name_of(type), std::to_string(error));
    EXPECT_LT(error, 1e-6) << "root mean square, caches " << name_of(type);
  }
}

// Scores of some hundreds, of which fp32 keeps five decimals, and queries beyond f16's range.
TEST(TunedAttention, LargeQueries) {
  for (const Type type : {F32, BF16, F16}) {
    Random random(6);
    Case c;
    c.cache_type = type;
    c.tokens = 2;
    c.group = 2;
    c.slots = 200;
    c.q_size = 1e5f;
    c.softcap = 0;
    c.sequence = {0, 0};
    c.position = {199, 60};
    Attention attention(c, random);
    ASSERT_EQ(attention.decode(3), "");
    attention.compare(false, fp32_error);
  }
}

// Scores of billions: the largest one has all the weight.
TEST(TunedAttention, HugeScores) {
  for (const Type type : {BF16, F16}) {
    for (const int64_t size : {64, 96, 128}) {
      for (const bool few : {false, true}) {
        Random random(9);
        Case c;
        c.q_type = c.cache_type = c.out_type = type;
        c.size = size;
        c.slots = 300;
        c.tokens = few ? 3 : 40;
        c.q_size = type == F16 ? 1e4f : 1e6f;
        c.k_size = type == F16 ? 1e4f : 1e6f;
        for (int64_t t = 0; t < c.tokens; ++t) {
          c.sequence.push_back(0);
          c.position.push_back(static_cast<int32_t>(t * 299 / (c.tokens - 1)));
        }
        Attention attention(c, random);
        SCOPED_TRACE(attention.text());
        if (few) {
          ASSERT_EQ(attention.decode(3), "");
          attention.compare(false, fp32_error, true);
        } else {
          check_prefill(attention, rounded_weights(type), true);
        }
      }
    }
  }
}

TEST(TunedAttention, OutOfRange) {
  Random random(7);
  Case c;
  c.group = 2;
  c.sequences = 2;
  c.slots = 70;
  c.sequence = {0, -1, 2, 1, 1, 0, std::numeric_limits<int32_t>::max()};
  c.position = {3, 5, 5, -1, 70, std::numeric_limits<int32_t>::max(), 1};
  c.tokens = static_cast<int64_t>(c.sequence.size());
  for (const int32_t window : {0, 20}) {
    c.window = window;
    for (const Type type : {F32, BF16, F16}) {
      c.cache_type = type;
      Attention decoded(c, random);
      ASSERT_EQ(decoded.decode(4), "");
      decoded.compare(false, fp32_error);
      if (type == F32) continue;
      Case prompt = c;
      prompt.out_type = type;
      Attention attention(prompt, random);
      check_prefill(attention, rounded_weights(type));
    }
  }
}

TEST(TunedAttention, Prompts) {
  for (int seed = 0; seed < seeds(); ++seed) {
    Random random(2000 + static_cast<unsigned>(seed));
    for (int i = 0; i < 14; ++i) {
      Case c;
      c.cache_type = c.out_type = random.pick({BF16, F16});
      c.q_type = random.chance(0.5) ? F32 : c.cache_type;
      c.size = random.pick<int64_t>({64, 80, 96, 128, 256});
      c.kv_heads = random.integer(1, 2);
      c.group = random.pick<int64_t>({1, 2, 3});
      c.tokens = random.integer(1, 200);
      c.sequences = random.integer(1, 3);
      c.slots = c.tokens + random.integer(0, 150);
      c.window = random.chance(0.4) ? static_cast<int32_t>(random.integer(1, 150)) : 0;
      c.softcap = random.chance(0.3) ? 3.0f : 0.0f;
      c.gap = random.pick<int64_t>({0, 0, 8});
      c.heads_first = random.chance(0.3);
      const int64_t first = random.integer(0, c.slots - c.tokens), b = random.integer(0, c.sequences - 1);
      for (int64_t t = 0; t < c.tokens; ++t) {
        c.sequence.push_back(static_cast<int32_t>(b));
        c.position.push_back(static_cast<int32_t>(first + t));
      }
      Attention attention(c, random);
      SCOPED_TRACE(attention.text());
      check_prefill(attention, rounded_weights(c.cache_type));
      if (HasFailure()) return;
    }
  }
}

// Prompts of several sequences, decoding tokens between them, and positions in no order.
TEST(TunedAttention, MixedSteps) {
  for (int seed = 0; seed < seeds(); ++seed) {
    Random random(3000 + static_cast<unsigned>(seed));
    for (const bool any_order : {false, true}) {
      for (const Type type : {BF16, F16}) {
        Case c;
        c.cache_type = c.out_type = type;
        c.size = random.pick<int64_t>({64, 128});
        c.group = 2;
        c.tokens = 150;
        c.sequences = 5;
        c.slots = 170;
        c.window = random.chance(0.5) ? 40 : 0;
        for (int32_t t = 0; t < c.tokens; ++t) {
          const bool late = t >= 60;
          c.sequence.push_back(any_order     ? static_cast<int32_t>(random.integer(0, 4))
                               : t % 37 == 5 ? 3
                                             : (late ? 1 : 4));
          c.position.push_back(any_order ? static_cast<int32_t>(random.integer(0, 169)) : late ? t - 60 : t + 11);
        }
        Attention attention(c, random);
        SCOPED_TRACE(attention.text());
        check_prefill(attention, rounded_weights(type));
      }
    }
  }
}

// Values that are not finite, in slots that some tokens of a tile see and others do not.
TEST(TunedAttention, HiddenValues) {
  for (const Type type : {BF16, F16}) {
    for (const int32_t window : {0, 30}) {
      Random random(11);
      Case c;
      c.cache_type = c.out_type = type;
      c.size = 64;
      c.group = 2;
      c.tokens = 140;
      c.sequences = 2;
      c.slots = 200;
      c.window = window;
      for (int32_t t = 0; t < c.tokens; ++t) {
        c.sequence.push_back(t < 100 ? 0 : 1);
        c.position.push_back(t < 100 ? t + 3 : t - 100);
      }
      Attention attention(c, random);
      const auto set = [&](int64_t b, int64_t slot, int64_t d, float v) {
        put(type, attention.values().at(b, 0, slot, d), v);
      };
      set(0, 70, 0, std::numeric_limits<float>::quiet_NaN());
      set(0, 99, 63, std::numeric_limits<float>::infinity());
      set(0, 101, 7, std::numeric_limits<float>::quiet_NaN());
      set(1, 20, 1, -std::numeric_limits<float>::infinity());
      set(1, 38, 1, std::numeric_limits<float>::infinity());
      set(1, 39, 8, std::numeric_limits<float>::quiet_NaN());
      check_prefill(attention, rounded_weights(type));
      Case few = c;
      Attention decoded(few, random);
      for (int64_t slot = 20; slot < 80; slot += 5) {
        put(type, decoded.values().at(0, 0, slot, slot % 40), std::numeric_limits<float>::infinity());
      }
      put(type, decoded.values().at(0, 0, 70, 63), std::numeric_limits<float>::quiet_NaN());
      ASSERT_EQ(decoded.decode(2), "");
      decoded.compare(false, fp32_error);
    }
  }
}

// Weights from 1 down to e^-200 or so: an infinite value makes infinite whatever sees it, as with exact weights.
TEST(TunedAttention, InfiniteValuesOfSmallWeight) {
  for (const Type type : {F32, BF16, F16}) {
    for (const int32_t splits : {1, 7}) {
      Random random(9);
      Case c;
      c.cache_type = type;
      c.tokens = 2;
      c.group = 2;
      c.slots = 450;
      c.q_size = 40.0f;
      c.sequence = {0, 0};
      c.position = {449, 30};
      Attention attention(c, random);
      for (int64_t d = 0; d < 50; ++d) {
        const float sign = d % 2 == 0 ? 1.0f : -1.0f;
        put(type, attention.values().at(0, 0, 9 * d, d), sign * std::numeric_limits<float>::infinity());
      }
      ASSERT_EQ(attention.decode(splits), "");
      attention.compare(false, fp32_error);
    }
  }
}

// Rounding queries and weights to bf16 adds about as much error to fp32 arithmetic as rounding the result does.
TEST(TunedAttention, PromptErrorBesideFp32) {
  for (const Type type : {BF16, F16}) {
    Random random(12);
    Case c;
    c.cache_type = c.out_type = type;
    c.size = 128;
    c.tokens = c.slots = 256;
    for (int32_t t = 0; t < c.tokens; ++t) {
      c.sequence.push_back(0);
      c.position.push_back(t);
    }
    Attention attention(c, random);
    for (const bool hopper : {false, true}) {
      ASSERT_EQ(hopper ? attention.prefill_on_hopper(true) : attention.prefill(), "");
      const double error = attention.compare(false, 8 * unit_of(type));
      RecordProperty((hopper ? "hopper_error_" : "prefill_error_") + name_of(type), std::to_string(error));
      EXPECT_LT(error, 1.5 * unit_of(type)) << name_of(type);
    }
  }
}

}  // namespace
}  // namespace anyaccel::testing
