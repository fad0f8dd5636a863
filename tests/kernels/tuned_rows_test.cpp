// The kernels of embedding.cu, norms.cu, pairs.cu, positions.cu and sampling.cu (kernels/cuda) on the host against plain references.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "anyaccel/philox.h"
#include "simulators/engine/warp.h"
#include "tests/kernels/tuned_kernel_support.h"

namespace anyaccel::testing {
namespace {

using aa_i32 = std::int32_t;
using aa_i64 = std::int64_t;
#include "kernels/cuda/row_arguments.h"

constexpr aa_i32 kF16 = 7, kBF16 = 8, kF32 = 9, kI32 = 5, kI64 = 6;
constexpr aa_i32 kFloats[] = {kF32, kBF16, kF16};

float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float v;
  std::memcpy(&v, &wide, 4);
  return v;
}
float rounded(float v, aa_i32 dtype) {
  if (dtype == kF32) return v;
  if (dtype == kBF16) return from_bf16(sim::bf16_from_float(v));
  return sim::float_from_f16(sim::f16_from_float(v));
}
std::size_t width_of(aa_i32 dtype) { return dtype == kF32 ? 4 : 2; }

// Elements of a type chosen when running.
struct Floats {
  Floats(std::size_t count, aa_i32 type) : dtype(type), array(count * width_of(type)) {}
  Floats(const std::vector<float>& values, aa_i32 type) : Floats(values.size(), type) {
    for (std::size_t i = 0; i < values.size(); ++i) set(i, values[i]);
  }
  void set(std::size_t i, float v) {
    const std::uint16_t half = dtype == kBF16 ? sim::bf16_from_float(v) : sim::f16_from_float(v);
    if (dtype == kF32) {
      std::memcpy(array.data() + 4 * i, &v, 4);
    } else {
      std::memcpy(array.data() + 2 * i, &half, 2);
    }
  }
  float get(std::size_t i) {
    float v;
    std::uint16_t half;
    if (dtype == kF32) {
      std::memcpy(&v, array.data() + 4 * i, 4);
      return v;
    }
    std::memcpy(&half, array.data() + 2 * i, 2);
    return dtype == kBF16 ? from_bf16(half) : sim::float_from_f16(half);
  }
  aa_i32 dtype;
  DeviceArray array;
};

class TunedRows : public ::testing::Test {
 protected:
  aa_i32 any_float() { return kFloats[random_() % 3]; }
  std::vector<float> values(std::size_t count, float spread = 2) {
    std::normal_distribution<float> normal(0, spread);
    std::vector<float> v(count);
    for (float& x : v) x = normal(random_);
    return v;
  }
  static float tolerance(aa_i32 dtype) { return dtype == kF32 ? 2e-6f : dtype == kBF16 ? 8e-3f : 1e-3f; }
  std::mt19937 random_{7};
};

TEST_F(TunedRows, Embedding) {
  for (int trial = 0; trial < 20; ++trial) {
    const aa_i32 out_dtype = any_float(), table_dtype = any_float(), id_dtype = trial % 2 ? kI32 : kI64;
    const std::size_t size = 8 * (1 + random_() % 300), table_rows = 1 + random_() % 9, tokens = 1 + random_() % 5;
    const std::size_t table_row = size + 8 * (random_() % 3), out_row = size + 8 * (random_() % 3);
    Floats table(values(table_rows * table_row), table_dtype), result(values(tokens * out_row), out_dtype);
    Floats before = result;
    std::vector<std::int64_t> ids(tokens);
    for (auto& id : ids) id = static_cast<std::int64_t>(random_() % (table_rows + 2)) - 1;  // also outside of the table
    const std::vector<std::int32_t> narrow(ids.begin(), ids.end());
    DeviceArray id_array = id_dtype == kI32 ? DeviceArray(narrow) : DeviceArray(ids);
    const TunedShape shape{
        .grid = {static_cast<std::uint32_t>((size / 8 + AA_EMBEDDING_THREADS - 1) / AA_EMBEDDING_THREADS),
                 static_cast<std::uint32_t>(tokens), 1},
        .block = AA_EMBEDDING_THREADS,
        .overlaps_previous = true};
    ASSERT_EQ(run_tuned("embedding_rows", shape,
                        {out(result.array), number(static_cast<aa_i64>(out_row)), in(table.array),
                         number(static_cast<aa_i64>(table_row)), in(id_array), number(aa_i64{1}),
                         number(static_cast<aa_i64>(table_rows)), number(static_cast<aa_i64>(size)), number(out_dtype),
                         number(table_dtype), number(id_dtype)}),
              "");
    for (std::size_t t = 0; t < tokens; ++t) {
      const bool known = ids[t] >= 0 && ids[t] < static_cast<std::int64_t>(table_rows);
      for (std::size_t i = 0; i < size; ++i) {
        const float v = known ? table.get(static_cast<std::size_t>(ids[t]) * table_row + i) : 0.0f;
        ASSERT_EQ(result.get(t * out_row + i), rounded(v, out_dtype));
      }
      for (std::size_t i = size; i < out_row; ++i) ASSERT_EQ(result.get(t * out_row + i), before.get(t * out_row + i));
    }
  }
}

TEST_F(TunedRows, Norms) {
  const std::size_t sizes[] = {8, 64, 128, 520, 2048, 4104, 8192, 16384};
  for (int trial = 0; trial < 40; ++trial) {
    const std::size_t size = sizes[static_cast<std::size_t>(trial) % 8], rows = 1 + random_() % 3;
    const std::size_t vectors = size / 8;
    // A thread has as many vectors as it can hold, or one.
    const std::size_t of_thread = trial % 3 || vectors > AA_NORM_THREADS ? AA_NORM_CHUNKS : 1;
    const int threads = static_cast<int>(((vectors + of_thread - 1) / of_thread + 31) / 32 * 32);
    aa_norm_rows a{};
    a.size = static_cast<aa_i64>(size);
    a.out_row = a.size + 8 * static_cast<aa_i64>(random_() % 2);
    a.x_row = a.size + 8 * static_cast<aa_i64>(random_() % 2);
    a.residual_row = a.size + 8 * static_cast<aa_i64>(random_() % 2);
    a.out_dtype = any_float();
    a.x_dtype = any_float();
    a.residual_dtype = random_() % 2 ? any_float() : 0;
    a.weight_dtype = random_() % 4 ? any_float() : 0;
    a.centred = static_cast<aa_i32>(random_() % 2);
    a.bias_dtype = a.centred && random_() % 2 ? any_float() : 0;
    a.threads = threads;
    a.eps = 1e-5f;
    Floats x(values(rows * static_cast<std::size_t>(a.x_row)), a.x_dtype);
    Floats residual(values(rows * static_cast<std::size_t>(a.residual_row)),
                    a.residual_dtype ? a.residual_dtype : kF32);
    Floats weight(values(size), a.weight_dtype ? a.weight_dtype : kF32);
    Floats bias(values(size), a.bias_dtype ? a.bias_dtype : kF32);
    Floats result(rows * static_cast<std::size_t>(a.out_row), a.out_dtype);
    Floats before = residual;
    ASSERT_EQ(
        run_tuned("norm_rows_tuned",
                  {.grid = {static_cast<std::uint32_t>(rows), 1, 1}, .block = threads, .overlaps_previous = true},
                  {out(result.array), in(x.array), a.weight_dtype ? in(weight.array) : none(),
                   a.bias_dtype ? in(bias.array) : none(), a.residual_dtype ? out(residual.array) : none(), number(a)}),
        "");
    for (std::size_t row = 0; row < rows; ++row) {
      std::vector<double> v(size);
      double sum = 0, squares = 0;
      for (std::size_t i = 0; i < size; ++i) {
        const float from_x = x.get(row * static_cast<std::size_t>(a.x_row) + i);
        v[i] = from_x;
        if (a.residual_dtype) {
          const std::size_t at = row * static_cast<std::size_t>(a.residual_row) + i;
          v[i] = rounded(from_x + before.get(at), a.residual_dtype);
          ASSERT_EQ(residual.get(at), static_cast<float>(v[i]));
        }
        sum += v[i];
      }
      const double mean = a.centred ? sum / static_cast<double>(size) : 0;
      for (const double e : v) squares += (e - mean) * (e - mean);
      const double factor = 1 / std::sqrt(squares / static_cast<double>(size) + static_cast<double>(a.eps));
      for (std::size_t i = 0; i < size; ++i) {
        double expected = (v[i] - mean) * factor;
        if (a.weight_dtype) expected *= weight.get(i);
        if (a.bias_dtype) expected += bias.get(i);
        ASSERT_NEAR(result.get(row * static_cast<std::size_t>(a.out_row) + i), expected,
                    tolerance(a.out_dtype) * (4 + std::fabs(expected)))
            << "trial " << trial << " row " << row << " element " << i;
      }
    }
  }
}

TEST_F(TunedRows, PairsOfElements) {
  for (int trial = 0; trial < 40; ++trial) {
    const std::size_t count = trial < 10 ? static_cast<std::size_t>(trial + 1) : 1 + random_() % 5000;
    const aa_i32 kind = static_cast<aa_i32>(random_() % 7) - 1;
    Floats u(values(count), any_float()), v(values(count), any_float()), result(count, any_float());
    ASSERT_EQ(run_tuned("pairs_tuned",
                        {.grid = {static_cast<std::uint32_t>((count + 8 * AA_PAIR_THREADS - 1) / (8 * AA_PAIR_THREADS)),
                                  1, 1},
                         .block = AA_PAIR_THREADS,
                         .overlaps_previous = true},
                        {out(result.array), in(u.array), in(v.array), number(static_cast<aa_i64>(count)),
                         number(result.dtype), number(u.dtype), number(v.dtype), number(kind)}),
              "");
    for (std::size_t i = 0; i < count; ++i) {
      const double x = u.get(i);
      const double gate[] = {x / (1 + std::exp(-x)),
                             x * 0.5 * (1 + std::erf(x / std::sqrt(2.0))),
                             0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))),
                             std::max(x, 0.0),
                             1 / (1 + std::exp(-x)),
                             std::tanh(x)};
      const double expected = kind < 0 ? x + v.get(i) : gate[kind] * v.get(i);
      ASSERT_NEAR(result.get(i), expected, tolerance(result.dtype) * (1 + std::fabs(expected))) << kind;
    }
  }
}

// ---- rope and cache_write ----------------------------------------------------------------------------------------------

TEST_F(TunedRows, Rope) {
  for (int trial = 0; trial < 20; ++trial) {
    const aa_i32 q_heads = 1 + static_cast<aa_i32>(random_() % 5), k_heads = static_cast<aa_i32>(random_() % 3);
    const bool by_rows = trial % 3 == 0;  // 16 bytes at a time
    const aa_i32 unit = by_rows ? 8 : 1, interleaved = by_rows ? 0 : trial % 2;
    const aa_i32 size = unit * (1 + static_cast<aa_i32>(random_() % (40 / static_cast<unsigned>(unit))));
    const aa_i64 head_size = 2 * size + unit * static_cast<aa_i64>(random_() % 3),
                 tokens = 1 + static_cast<aa_i64>(random_() % (by_rows ? 40 : 3));
    const std::size_t heads = static_cast<std::size_t>(q_heads + k_heads);
    const std::size_t pairs = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(size);
    // q and k are neighbours in memory: [T, heads, D].
    Floats q(values(static_cast<std::size_t>(tokens * head_size) * heads), any_float());
    Floats k = q, before = q, cosines(values(pairs, 1), kF32), sines(values(pairs, 1), kF32);
    const aa_head_slots at = {head_size * static_cast<aa_i64>(heads), head_size, 0, 1, q.dtype, 0};
    const std::size_t k_from = static_cast<std::size_t>(q_heads * head_size) * width_of(q.dtype);
    const aa_i32 threads = static_cast<aa_i32>(tokens) * static_cast<aa_i32>(heads) * size / 8;
    ASSERT_EQ(
        by_rows
            ? run_tuned("rope_rows",
                        {.grid = {static_cast<std::uint32_t>((threads + AA_ROPE_THREADS - 1) / AA_ROPE_THREADS), 1, 1},
                         .block = AA_ROPE_THREADS,
                         .overlaps_previous = true},
                        {out(q.array), number(at), k_heads ? out(k.array, k_from) : none(), number(at),
                         in(cosines.array), number(aa_i64{size}), in(sines.array), number(aa_i64{size}),
                         number(q_heads), number(static_cast<aa_i32>(heads)), number(size), number(threads)})
            : run_tuned(
                  "rope_tuned",
                  {.grid = {static_cast<std::uint32_t>((static_cast<int>(heads) * size + AA_POSITION_THREADS - 1) /
                                                       AA_POSITION_THREADS),
                            static_cast<std::uint32_t>(tokens), 1},
                   .block = AA_POSITION_THREADS,
                   .overlaps_previous = true},
                  {out(q.array), number(at), k_heads ? out(k.array, k_from) : none(), number(at), in(cosines.array),
                   number(aa_i64{size}), number(aa_i64{1}), in(sines.array), number(aa_i64{size}), number(aa_i64{1}),
                   number(q_heads), number(static_cast<aa_i32>(heads)), number(size), number(interleaved)}),
        "");
    for (std::size_t i = 0; i < static_cast<std::size_t>(tokens) * heads; ++i) {
      Floats& turned = i % heads < static_cast<std::size_t>(q_heads) ? q : k;
      const std::size_t base = i * static_cast<std::size_t>(head_size), t = i / heads;
      for (aa_i32 r = 0; r < size; ++r) {
        const std::size_t first = base + static_cast<std::size_t>(interleaved ? 2 * r : r);
        const std::size_t second = first + static_cast<std::size_t>(interleaved ? 1 : size);
        const std::size_t pair = t * static_cast<std::size_t>(size) + static_cast<std::size_t>(r);
        const double a = before.get(first), b = before.get(second), c = cosines.get(pair), s = sines.get(pair);
        const double near = 2 * tolerance(q.dtype) * (1 + std::fabs(a) + std::fabs(b));
        ASSERT_NEAR(turned.get(first), a * c - b * s, near) << trial;
        ASSERT_NEAR(turned.get(second), b * c + a * s, near) << trial;
      }
      for (auto d = static_cast<std::size_t>(2 * size); d < static_cast<std::size_t>(head_size); ++d) {
        ASSERT_EQ(turned.get(base + d), before.get(base + d)) << "a part that is not turned";
      }
    }
  }
}

TEST_F(TunedRows, CacheWrites) {
  for (int trial = 0; trial < 20; ++trial) {
    const bool by_rows = trial % 2 == 0;  // 16 bytes at a time
    const aa_i32 unit = by_rows ? 8 : 1, heads = 1 + static_cast<aa_i32>(random_() % 3);
    const aa_i32 size = unit * (1 + static_cast<aa_i32>(random_() % (80 / static_cast<unsigned>(unit))));
    const aa_i32 tokens = 1 + static_cast<aa_i32>(random_() % (by_rows ? 11 : 6));
    const aa_i64 sequences = 2, slots = 3;
    const std::size_t of_token = static_cast<std::size_t>(heads * size);
    Floats k(values(static_cast<std::size_t>(tokens) * of_token), any_float());
    Floats v(values(static_cast<std::size_t>(tokens) * of_token), any_float());
    Floats keys(values(static_cast<std::size_t>(sequences * slots) * of_token), any_float());
    Floats cached(values(static_cast<std::size_t>(sequences * slots) * of_token), any_float());
    std::vector<float> wanted_keys, wanted_values;
    for (std::size_t i = 0; i < static_cast<std::size_t>(sequences * slots) * of_token; ++i) {
      wanted_keys.push_back(keys.get(i));
      wanted_values.push_back(cached.get(i));
    }
    // Also outside of the cache, and slots that several tokens name.
    std::vector<aa_i32> sequence, positions;
    for (aa_i32 t = 0; t < tokens; ++t) {
      sequence.push_back(static_cast<aa_i32>(random_() % 4) - 1);
      positions.push_back(static_cast<aa_i32>(random_() % 5) - 1);
      if (sequence[static_cast<std::size_t>(t)] < 0 || sequence[static_cast<std::size_t>(t)] >= sequences ||
          positions[static_cast<std::size_t>(t)] < 0 || positions[static_cast<std::size_t>(t)] >= slots) {
        continue;
      }
      for (aa_i32 head = 0; head < heads; ++head) {
        for (aa_i32 d = 0; d < size; ++d) {
          const aa_i64 row =
              (sequence[static_cast<std::size_t>(t)] * heads + head) * slots + positions[static_cast<std::size_t>(t)];
          const auto to = static_cast<std::size_t>(row * size + d);
          const std::size_t from = static_cast<std::size_t>(t) * of_token + static_cast<std::size_t>(head * size + d);
          wanted_keys[to] = rounded(k.get(from), keys.dtype);
          wanted_values[to] = rounded(v.get(from), cached.dtype);
        }
      }
    }
    DeviceArray sequence_array(sequence), position_array(positions);
    const auto cache = [&](aa_i32 dtype) {
      return aa_head_slots{heads * slots * size, slots * size, size, 1, dtype, 0};
    };
    const auto token = [&](aa_i32 dtype) { return aa_head_slots{heads * size, size, 0, 1, dtype, 0}; };
    const TunedShape few = {
        .grid = {static_cast<std::uint32_t>((heads * size + AA_POSITION_THREADS - 1) / AA_POSITION_THREADS),
                 static_cast<std::uint32_t>(tokens), 1},
        .block = AA_POSITION_THREADS,
        .overlaps_previous = true};
    const TunedShape rows = {
        .grid = {static_cast<std::uint32_t>((tokens + AA_WRITE_TOKENS - 1) / AA_WRITE_TOKENS), 1, 1},
        .block = AA_WRITE_THREADS,
        .overlaps_previous = true};
    ASSERT_EQ(run_tuned(by_rows ? "cache_write_rows" : "cache_write_tuned", by_rows ? rows : few,
                        {out(keys.array), number(cache(keys.dtype)), out(cached.array), number(cache(cached.dtype)),
                         in(k.array), number(token(k.dtype)), in(v.array), number(token(v.dtype)), in(sequence_array),
                         number(aa_i64{1}), in(position_array), number(aa_i64{1}), number(tokens), number(heads),
                         number(size), number(sequences), number(slots)}),
              "");
    for (std::size_t i = 0; i < wanted_keys.size(); ++i) {
      ASSERT_EQ(keys.get(i), wanted_keys[i]) << trial;
      ASSERT_EQ(cached.get(i), wanted_values[i]) << trial;
    }
  }
}

TEST_F(TunedRows, RopeAndCacheWritesAtOnce) {
  for (int trial = 0; trial < 12; ++trial) {
    const aa_i32 size = 8 * (1 + static_cast<aa_i32>(random_() % 12)), head_size = 2 * size;
    const aa_i32 q_heads = 1 + static_cast<aa_i32>(random_() % 20), kv_heads = 1 + static_cast<aa_i32>(random_() % 9);
    const aa_i32 tokens = 1 + static_cast<aa_i32>(random_() % 9);
    const aa_i64 sequences = 2, slots = 4;
    const auto count = [](auto... factors) { return static_cast<std::size_t>((aa_i64{1} * ... * factors)); };
    aa_qkv_rows a{};
    a.q_row = q_heads * head_size + 8;
    a.k_row = kv_heads * head_size;
    a.v_row = kv_heads * head_size + 16;
    a.cos_row = size + 4;
    a.sin_row = size;
    a.sequence_step = 1;
    a.position_step = 2;
    a.sequences = sequences;
    a.slots = slots;
    a.tokens = tokens;
    a.q_heads = q_heads;
    a.kv_heads = kv_heads;
    a.size = size;
    Floats q_rows(values(count(tokens, a.q_row)), kBF16), k_rows(values(count(tokens, a.k_row)), kBF16),
        v_rows(values(count(tokens, a.v_row)), kBF16);
    Floats cosines(values(count(tokens, a.cos_row), 1), kF32), sines(values(count(tokens, a.sin_row), 1), kF32);
    Floats q(values(count(tokens, q_heads, head_size)), trial % 2 ? kF32 : kBF16);
    Floats keys(values(count(sequences, kv_heads, slots, head_size)), kBF16), cached = keys;
    // [T,Hq,D] of which heads are not neighbours, and caches.
    const aa_head_slots q_at = {head_size, tokens * head_size, 0, 1, q.dtype, 0};
    const aa_head_slots cache = {kv_heads * slots * head_size, slots * head_size, head_size, 1, kBF16, 0};
    // Also outside of the cache, and slots that several tokens name.
    std::vector<aa_i32> sequence, positions;
    for (aa_i32 t = 0; t < tokens; ++t) {
      sequence.push_back(static_cast<aa_i32>(random_() % 4) - 1);
      positions.push_back(static_cast<aa_i32>(random_() % 6) - 1);
      positions.push_back(-7);
    }
    std::vector<double> wanted_keys, wanted_values;
    for (std::size_t i = 0; i < count(sequences, kv_heads, slots, head_size); ++i) {
      wanted_keys.push_back(keys.get(i));
      wanted_values.push_back(cached.get(i));
    }
    const auto turned = [&](Floats& rows, aa_i64 row, aa_i32 t, aa_i32 head, aa_i32 d) {
      const aa_i32 r = d % size;
      const double x = rows.get(count(t) * count(row) + count(head, head_size) + count(r));
      const double y = rows.get(count(t) * count(row) + count(head, head_size) + count(r + size));
      const double c = cosines.get(count(t, a.cos_row) + count(r)), s = sines.get(count(t, a.sin_row) + count(r));
      return d < size ? x * c - y * s : y * c + x * s;
    };
    for (aa_i32 t = 0; t < tokens; ++t) {
      const aa_i32 b = sequence[count(t)], slot = positions[count(2, t)];
      if (b < 0 || b >= sequences || slot < 0 || slot >= slots) continue;
      for (aa_i32 head = 0; head < kv_heads; ++head) {
        for (aa_i32 d = 0; d < head_size; ++d) {
          const std::size_t to = count((b * kv_heads + head) * slots + slot, head_size) + count(d);
          wanted_keys[to] = turned(k_rows, a.k_row, t, head, d);
          wanted_values[to] = v_rows.get(count(t, a.v_row) + count(head, head_size) + count(d));
        }
      }
    }
    DeviceArray sequence_array(sequence), position_array(positions);
    const auto blocks = static_cast<std::uint32_t>((tokens + AA_WRITE_TOKENS - 1) / AA_WRITE_TOKENS);
    ASSERT_EQ(
        run_tuned("rope_cache_rows", {.grid = {2 * blocks, 1, 1}, .block = AA_WRITE_THREADS, .overlaps_previous = true},
                  {out(q.array), number(q_at), out(keys.array), number(cache), out(cached.array), number(cache),
                   in(q_rows.array), in(k_rows.array), in(v_rows.array), in(cosines.array), in(sines.array),
                   in(sequence_array), in(position_array), number(a)}),
        "");
    for (aa_i32 t = 0; t < tokens; ++t) {
      for (aa_i32 head = 0; head < q_heads; ++head) {
        for (aa_i32 d = 0; d < head_size; ++d) {
          const double expected = turned(q_rows, a.q_row, t, head, d);
          const std::size_t at = count(head, tokens, head_size) + count(t, head_size) + count(d);
          ASSERT_NEAR(q.get(at), expected, tolerance(q.dtype) * (4 + std::fabs(expected))) << trial;
        }
      }
    }
    for (std::size_t i = 0; i < wanted_keys.size(); ++i) {
      ASSERT_NEAR(keys.get(i), wanted_keys[i], tolerance(kBF16) * (4 + std::fabs(wanted_keys[i]))) << trial;
      ASSERT_EQ(cached.get(i), wanted_values[i]) << trial;
    }
  }
}

// ---- argmax and sample -------------------------------------------------------------------------------------------------

const char* name_of(aa_i32 dtype) { return dtype == kF32 ? "f32" : dtype == kBF16 ? "bf16" : "f16"; }

struct SampleRun {
  SampleRun() { a.reach = std::numeric_limits<float>::infinity(); }
  aa_sample_rows a{};
  std::size_t rows = 1;
  std::uint32_t blocks = 1;
  std::int64_t seed = 1, offset = 0;
  bool marks = false;
  std::vector<std::uint8_t> seen;  // afterwards
};

// The tokens of each row; temperature 0 is argmax, or, with run.a.finite_only, what "sample" does then.
std::vector<std::int64_t> tokens_of(SampleRun& run, Floats& logits) {
  const std::string suffix = name_of(logits.dtype);
  run.a.out_dtype = run.blocks % 2 ? kI32 : kI64;
  run.a.out_step = 2;
  run.a.rng_step = 1;
  run.a.has_seen = run.marks;
  run.a.seen_row = run.a.size;
  run.a.seen_inner = 1;
  DeviceArray token(2 * run.rows * 8), rng(std::vector<std::int64_t>{run.seed, run.offset});
  DeviceArray results(run.rows * AA_SAMPLE_RESULTS * 4);
  DeviceArray counters(std::vector<std::uint32_t>(run.rows * AA_SAMPLE_COUNTERS, 0));
  DeviceArray seen(std::vector<std::uint8_t>(run.rows * static_cast<std::size_t>(run.a.size), 0));
  const TunedShape shape{.grid = {run.blocks, static_cast<std::uint32_t>(run.rows), 1},
                         .block = AA_SAMPLE_THREADS,
                         .overlaps_previous = true,
                         .same_in_any_order = false};  // what blocks leave behind in `results`
  const KernelArgument marked = run.marks ? out(seen) : none();
  if (run.a.temperature == 0) {
    EXPECT_EQ(run_tuned("argmax_rows_" + suffix, shape,
                        {out(token), in(logits.array), marked, out(results), out(counters), number(run.a)}),
              "");
  } else {
    EXPECT_EQ(run_tuned("argmax_rows_" + suffix, shape,
                        {none(), in(logits.array), none(), out(results), out(counters), number(run.a)}),
              "");
    TunedShape same = shape;
    same.same_in_any_order = true;
    EXPECT_EQ(run_tuned("sample_rows_" + suffix, same,
                        {out(token), in(logits.array), in(rng), marked, in(results), out(counters), number(run.a)}),
              "");
  }
  for (const std::uint32_t word : counters.read<std::uint32_t>()) EXPECT_EQ(word, 0u);
  run.seen = seen.read<std::uint8_t>();
  std::vector<std::int64_t> tokens;
  for (std::size_t r = 0; r < run.rows; ++r) {
    tokens.push_back(run.a.out_dtype == kI64 ? token.read<std::int64_t>()[2 * r] : token.read<std::int32_t>()[2 * r]);
  }
  return tokens;
}

std::int64_t best_of(Floats& logits, std::size_t base, std::size_t size) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < size && !std::isnan(logits.get(base + best)); ++i) {
    const float v = logits.get(base + i);
    if (std::isnan(v) || v > logits.get(base + best)) best = i;
  }
  return static_cast<std::int64_t>(best);
}

// By the definition, with the weights that kernels use: whole numbers of 2^-40 of the largest.
std::int64_t sampled(Floats& logits, std::size_t row, const SampleRun& run) {
  const auto size = static_cast<std::size_t>(run.a.size);
  const std::size_t base = row * static_cast<std::size_t>(run.a.row);
  const std::int64_t best = best_of(logits, base, size);
  const float top = logits.get(base + static_cast<std::size_t>(best));
  if (!std::isfinite(top)) return -1;
  if (run.a.temperature == 0) return best;
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t p, std::size_t q) { return logits.get(base + p) > logits.get(base + q); });
  if (run.a.top_k > 0) order.resize(std::min(size, static_cast<std::size_t>(run.a.top_k)));
  __extension__ using Wide = unsigned __int128;
  std::vector<std::uint64_t> weight;
  for (const std::size_t i : order) {
    const float e = std::exp((logits.get(base + i) - top) / run.a.temperature);
    weight.push_back(static_cast<std::uint64_t>(e * 0x1p40f));
  }
  Wide total = std::accumulate(weight.begin(), weight.end(), Wide{0});
  if (run.a.top_p < 1) {
    const Wide share = static_cast<std::uint64_t>(run.a.top_p * 0x1p32f);
    Wide sum = 0;
    std::size_t kept = 0;
    while (kept < weight.size() && (sum << 32) < share * total) sum += weight[kept++];
    order.resize(std::max<std::size_t>(kept, 1));
    total = std::max<Wide>(sum, weight[0]);
  }
  if (run.a.reach < 28) {  // min_p
    const float lowest = top - run.a.reach * run.a.temperature;
    while (order.size() > 1 && logits.get(base + order.back()) < lowest) order.pop_back();
    total = std::accumulate(weight.begin(), weight.begin() + static_cast<std::ptrdiff_t>(order.size()), Wide{0});
  }
  const auto n = static_cast<std::uint64_t>(row);
  const std::uint32_t word =
      philox_words(static_cast<std::uint64_t>(run.seed), static_cast<std::uint64_t>(run.offset) + n / 4)[n % 4];
  Wide sum = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    sum += weight[i];
    if (sum > total * (word >> 8) >> 24) return static_cast<std::int64_t>(order[i]);
  }
  return static_cast<std::int64_t>(order.back());
}

TEST_F(TunedRows, ArgmaxOverManyBlocks) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const aa_i32 dtype : kFloats) {
    for (int trial = 0; trial < 24; ++trial) {
      SampleRun run;
      run.rows = 1 + random_() % 3;
      run.blocks = 1 + random_() % 5;
      run.marks = trial % 2;
      run.a.finite_only = random_() % 2;
      const std::size_t size = trial < 12 ? static_cast<std::size_t>(trial + 1) : 1 + random_() % 30000;
      run.a.size = static_cast<aa_i64>(size);
      run.a.row = (run.a.size + 7) / 8 * 8;
      Floats logits(values(run.rows * static_cast<std::size_t>(run.a.row)), dtype);
      for (std::size_t row = 0; row < run.rows; ++row) {
        const auto at = [&] { return row * static_cast<std::size_t>(run.a.row) + random_() % size; };
        if (trial % 4 == 1) {  // ties
          logits.set(at(), 50);
          logits.set(at(), 50);
          logits.set(at(), 50);
        }
        if (trial % 4 == 2) {
          logits.set(at(), infinity);
          logits.set(at(), nan);
          logits.set(at(), -nan);
        }
        if (trial % 8 == 3) {
          for (std::size_t i = 0; i < size; ++i) logits.set(row * static_cast<std::size_t>(run.a.row) + i, -infinity);
        }
      }
      const auto tokens = tokens_of(run, logits);
      for (std::size_t row = 0; row < run.rows; ++row) {
        const std::size_t base = row * static_cast<std::size_t>(run.a.row);
        auto expected = best_of(logits, base, size);
        if (run.a.finite_only && !std::isfinite(logits.get(base + static_cast<std::size_t>(expected)))) expected = -1;
        ASSERT_EQ(tokens[row], expected) << name_of(dtype) << " trial " << trial;
        const auto first = run.seen.begin() + static_cast<std::ptrdiff_t>(row * size);
        ASSERT_EQ(std::count(first, first + static_cast<std::ptrdiff_t>(size), 1), run.marks && expected >= 0 ? 1 : 0);
        if (run.marks && expected >= 0) {
          ASSERT_EQ(run.seen[row * size + static_cast<std::size_t>(expected)], 1);
        }
      }
    }
  }
}

TEST_F(TunedRows, SampleGivesTheTokenOfTheDefinition) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (int trial = 0; trial < 90; ++trial) {
    SampleRun run;
    run.rows = 1 + random_() % 3;
    run.blocks = 1 + random_() % 4;
    run.marks = trial % 2;
    run.seed = static_cast<std::int64_t>(random_());
    run.offset = static_cast<std::int64_t>(random_() % 100);
    const std::size_t size = trial < 10 ? static_cast<std::size_t>(trial + 1) : 1 + random_() % 20000;
    run.a.size = static_cast<aa_i64>(size);
    run.a.row = (run.a.size + 7) / 8 * 8;
    const float temperatures[] = {1, 0.7f, 0.1f, 3, 100, 1e-6f, 1e30f, 1e-40f};
    run.a.temperature = temperatures[random_() % 8];
    run.a.top_k = random_() % 2 ? 0 : static_cast<aa_i32>(1 + random_() % (2 * size));
    const float top_ps[] = {1, 0.9f, 0.5f, 1e-6f, 0.999f};
    run.a.top_p = top_ps[random_() % 5];
    const float min_ps[] = {0, 0, 0.05f, 0.5f, 1};
    run.a.reach = -std::log(min_ps[random_() % 5]);
    Floats logits(values(run.rows * static_cast<std::size_t>(run.a.row), 3), kFloats[trial % 3]);
    for (std::size_t i = 0; i < run.rows * static_cast<std::size_t>(run.a.row); ++i) {
      if (trial % 5 == 1) logits.set(i, std::round(logits.get(i)));  // many equal ones: bins that are divided by keys
      if (trial % 9 == 2) logits.set(i, 1.25f);
      if (trial % 5 == 3 && i % 3) logits.set(i, -infinity);
      if (trial % 15 == 4) logits.set(i, infinity);
      if (trial % 15 == 7 && i == size / 2) logits.set(i, std::nanf(""));  // in the first row
      if (trial % 15 == 11) logits.set(i, -infinity);
    }
    const auto tokens = tokens_of(run, logits);
    for (std::size_t row = 0; row < run.rows; ++row) {
      ASSERT_EQ(tokens[row], sampled(logits, row, run))
          << "trial " << trial << " row " << row << " of " << size << ", temperature " << run.a.temperature
          << ", top_k " << run.a.top_k << ", top_p " << run.a.top_p << ", reach " << run.a.reach;
      if (run.marks) {
        const auto first = run.seen.begin() + static_cast<std::ptrdiff_t>(row * size);
        ASSERT_EQ(std::count(first, first + static_cast<std::ptrdiff_t>(size), 1), tokens[row] >= 0 ? 1 : 0);
        if (tokens[row] >= 0) {
          ASSERT_EQ(run.seen[row * size + static_cast<std::size_t>(tokens[row])], 1);
        }
      }
    }
  }
}

TEST_F(TunedRows, SampleOfALargeVocabulary) {
  SampleRun run;
  run.blocks = 32;
  run.a.size = run.a.row = 128256;
  run.a.temperature = 0.8f;
  run.a.top_p = 0.95f;
  run.a.reach = -std::log(0.02f);
  Floats logits(values(128256, 3), kF32);
  for (const aa_i32 top_k : {0, 50}) {
    run.a.top_k = top_k;
    run.offset = top_k;
    EXPECT_EQ(tokens_of(run, logits)[0], sampled(logits, 0, run));
  }
}

}  // namespace
}  // namespace anyaccel::testing
