// Cases of random numbers, bit for bit against the suite's own Philox.
#include <cmath>
#include <cstring>
#include <numbers>

#include "conformance/op_run.h"
#include "conformance/philox.h"

namespace anyaccel::conformance {
namespace random_group {
namespace {

struct Start {
  uint64_t seed, offset;
};
// The third offset carries from the counter's first word into its second one.
constexpr Start starts[] = {{0, 0}, {42, 7}, {0x123456789abcdef0u, 0xfffffffeu}, {~uint64_t{0}, uint64_t{1} << 40}};
constexpr int64_t counts[] = {1, 3, 4, 5, 1003};

uint32_t word(const Start& start, uint64_t i) { return philox(start.seed, start.offset + i / 4)[i % 4]; }

aa_random_params params_of(const Start& start, int32_t kind, double low, double high) {
  aa_random_params params{};
  params.kind = kind;
  params.seed = start.seed;
  params.offset = start.offset;
  params.low = low;
  params.high = high;
  return params;
}

std::string text(const Start& start) {
  return "seed " + std::to_string(start.seed) + ", offset " + std::to_string(start.offset);
}

void generator_is_right(const Context& c) {
  // A check of the suite itself: the vector that Random123 publishes for counter 0 and key 0.
  c.expect(philox(0, 0) == std::array<uint32_t, 4>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u},
           "the suite's own Philox is wrong");
}

void bits(const Context& c) {
  generator_is_right(c);
  OpRun op(c, "random");
  for (const int32_t dtype : {AA_DTYPE_U8, AA_DTYPE_I8, AA_DTYPE_I16, AA_DTYPE_I32, AA_DTYPE_I64}) {
    for (const Start& start : starts) {
      for (const int64_t count : counts) {
        OpTensor out(c, dtype, {count}, {}, count == 5 ? spread : dense);
        if (!op.run({out.view()}, params_of(start, AA_RANDOM_BITS, 0, 0))) continue;
        const Bytes found = out.found_bytes();
        const auto item = static_cast<size_t>(dtype_size(dtype));
        Bytes expected(found.size());
        for (uint64_t i = 0; i < static_cast<uint64_t>(count); ++i) {
          uint64_t value = item == 8 ? word(start, 2 * i) | uint64_t{word(start, 2 * i + 1)} << 32 : word(start, i);
          std::memcpy(expected.data() + i * item, &value, item);
        }
        expect_equal(found, expected, std::string("random bits of ") + dtype_text(dtype) + ", " + text(start));
      }
    }
  }
  op.finish();
}

void uniform(const Context& c) {
  OpRun op(c, "random");
  for (const int32_t dtype : {AA_DTYPE_F32, AA_DTYPE_BF16, AA_DTYPE_F16, AA_DTYPE_F64}) {
    for (const Start& start : starts) {
      for (const auto& [low, high] : {std::pair{0.0f, 1.0f}, {-0.7f, 3.3f}}) {
        for (const int64_t count : counts) {
          OpTensor out(c, dtype, {count}, {}, count == 5 ? spread : dense);
          if (!op.run({out.view()}, params_of(start, AA_RANDOM_UNIFORM, low, high))) continue;
          Values expected;
          for (uint64_t i = 0; i < static_cast<uint64_t>(count); ++i) {
            const float unit = static_cast<float>(word(start, i) >> 8) * 0x1p-24f;
            // A volatile prevents the compiler from fusing the two operations into one rounding.
            volatile float scaled = (high - low) * unit;
            expected.push_back(low + scaled);
          }
          op.compare(out, expected, "uniform, " + text(start));
        }
      }
    }
  }
  op.finish();
}

void normal(const Context& c) {
  OpRun op(c, "random");
  for (const int32_t dtype : float_dtypes) {
    for (const Start& start : starts) {
      for (const int64_t count : counts) {
        OpTensor out(c, dtype, {count}, {}, count == 5 ? spread : dense);
        if (!op.run({out.view()}, params_of(start, AA_RANDOM_NORMAL, 0.5, 2))) continue;
        Values expected;
        for (uint64_t i = 0; i < static_cast<uint64_t>(count); ++i) {
          const uint64_t pair = i / 2 * 2;
          const double r = std::sqrt(-2 * std::log(((word(start, pair) >> 8) + 1) * 0x1p-24));
          const double angle = 2 * std::numbers::pi * ((word(start, pair + 1) >> 8) * 0x1p-24);
          expected.push_back(0.5 + 2 * (i % 2 ? r * std::sin(angle) : r * std::cos(angle)));
        }
        op.compare(out, expected, "normal, " + text(start));
      }
    }
  }
  op.finish();
}

void shapes_are_row_major(const Context& c) {
  OpRun op(c, "random");
  const Start start = starts[1];
  for (const Layout& layout : {dense, padded, spread}) {
    OpTensor out(c, AA_DTYPE_I32, {2, 3, 5}, {}, layout);
    if (!op.run({out.view()}, params_of(start, AA_RANDOM_BITS, 0, 0))) continue;
    Values expected;
    for (uint64_t i = 0; i < 30; ++i) expected.push_back(static_cast<int32_t>(word(start, i)));
    op.compare(out, expected, layout.name);
  }
  op.finish();
}

constexpr Case cases[] = {
    {"op.random", "bits", bits},
    {"op.random", "uniform", uniform},
    {"op.random", "normal", normal},
    {"op.random", "shapes_are_row_major", shapes_are_row_major},
};

}  // namespace
}  // namespace random_group

std::span<const Case> random_cases() { return random_group::cases; }

}  // namespace anyaccel::conformance
