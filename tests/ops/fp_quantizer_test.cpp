// ops::FPQuantizer against a plain scalar version of its definition; with ANYACCEL_TEST_ACCELERATOR that accelerator's.
#include "anyaccel/ops/fp_quantizer.h"

#include <algorithm>

#include "ops/end_of_memory.h"
#include "ops/quant_test_support.h"

namespace anyaccel {
namespace {

using namespace testing;
using ops::FpFormat;

std::shared_ptr<ops::FPQuantizer> fp_quantizer() {
  return tested_accelerator().create_op_builder("FPQuantizerBuilder")->load_as<ops::FPQuantizer>();
}

constexpr DType element_types[] = {DType::F32, DType::F16, DType::BF16};

// A format by the table of anyaccel/ops/fp_quantizer.h: every code's number, found by its definition.
struct Format {
  FpFormat format;
  int bits, exponent_bits, mantissa_bits, bias;
  double limit;
  int numbers;  // codes without sign that are numbers: 0 to numbers - 1
  std::vector<double> number;

  Format(FpFormat f, int e, int m, int b, double l, int n)
      : format(f), bits(1 + e + m), exponent_bits(e), mantissa_bits(m), bias(b), limit(l), numbers(n) {
    for (int code = 0; code < n; ++code) {
      const int exponent = code >> m, mantissa = code & ((1 << m) - 1);
      number.push_back(exponent == 0 ? std::ldexp(mantissa, 1 - b - m)
                                     : std::ldexp((1 << m) + mantissa, exponent - b - m));
    }
  }

  int sign() const { return 1 << (bits - 1); }
  float decode(int code) const {
    const int magnitude = code & (sign() - 1);
    float value = not_a_number;
    if (magnitude < numbers) {
      value = static_cast<float>(number[static_cast<size_t>(magnitude)]);
    } else if (format == FpFormat::E5M2 && (magnitude & 3) == 0) {
      value = infinity;
    }
    return code & sign() ? -value : value;
  }
  // By searching the numbers.
  int encode(float x, const float* unit) const {
    const double magnitude = std::fabs(static_cast<double>(x));
    const auto above = std::upper_bound(number.begin(), number.end(), magnitude);
    int code = static_cast<int>(above - number.begin()) - 1;  // the largest number that is not greater
    if (above != number.end()) {
      const double below = number[static_cast<size_t>(code)];
      const double part = (magnitude - below) / (*above - below);
      if (unit ? *unit < part : part > 0.5 || (part == 0.5 && code % 2)) ++code;
    }
    return code | (std::signbit(x) ? sign() : 0);
  }
};

const std::vector<Format>& formats() {
  static const std::vector<Format> all{{FpFormat::E4M3, 4, 3, 7, 448, 127},
                                       {FpFormat::E5M2, 5, 2, 15, 57344, 124},
                                       {FpFormat::E3M2, 3, 2, 3, 28, 32},
                                       {FpFormat::E4M7, 4, 7, 7, 510, 2048},
                                       {FpFormat::E2M1, 2, 1, 1, 6, 8}};
  return all;
}

// Storage by the definition.
std::vector<uint8_t> pack(const std::vector<int>& codes, const std::vector<float>& scales, int bits) {
  const size_t size = codes.size() / scales.size(), code_bytes = size * static_cast<size_t>(bits) / 8;
  std::vector<uint8_t> bytes((code_bytes + 4) * scales.size(), 0);
  for (size_t g = 0; g < scales.size(); ++g) {
    uint8_t* row = bytes.data() + g * (code_bytes + 4);
    for (size_t i = 0; i < size; ++i) {
      for (int b = 0; b < bits; ++b) {
        const size_t position = i * static_cast<size_t>(bits) + static_cast<size_t>(b);
        row[position / 8] = static_cast<uint8_t>(row[position / 8] | ((codes[g * size + i] >> b) & 1) << position % 8);
      }
    }
    std::memcpy(row + code_bytes, &scales[g], 4);
  }
  return bytes;
}

struct FpReference {
  std::vector<int> codes;
  std::vector<float> scales, restored;

  FpReference(const Format& f, const std::vector<float>& x, int64_t groups, const RngState* random = nullptr) {
    const int64_t size = static_cast<int64_t>(x.size()) / groups;
    for (int64_t g = 0; g < groups; ++g) {
      float largest = 0;
      bool finite = true;
      for (int64_t i = g * size; i < (g + 1) * size; ++i) {
        largest = std::fmax(largest, std::fabs(flushed(x[static_cast<size_t>(i)])));
        finite = finite && std::isfinite(x[static_cast<size_t>(i)]);
      }
      float scale = finite ? largest / static_cast<float>(f.limit) : not_a_number;
      if (finite && !(scale >= FLT_MIN)) scale = 1;
      const float inverse = 1 / scale;
      scales.push_back(scale);
      for (int64_t i = g * size; i < (g + 1) * size; ++i) {
        const float unit = random ? unit_of(*random, i) : 0;
        const float scaled = flushed(flushed(x[static_cast<size_t>(i)]) * inverse);
        codes.push_back(finite ? f.encode(scaled, random ? &unit : nullptr) : 0);
        restored.push_back(flushed(f.decode(codes.back()) * scale));
      }
    }
  }
  std::vector<uint8_t> bytes(const Format& f) const { return pack(codes, scales, f.bits); }
};

// Bytes but for the bits of NaNs, of which scales that are NaN have one form.
void expect_storage(const Tensor& found, const FpReference& expected, const Format& f) {
  expect_same(ops::FPQuantizer::get_scales(found).to_vector<float>(), expected.scales, "scales");
  EXPECT_EQ(bytes_of(found), expected.bytes(f));
}

TEST(FPQuantizer, Formats) {
  for (const Format& f : formats()) {
    EXPECT_EQ(ops::fp_format_bits(f.format), f.bits);
    EXPECT_EQ(ops::fp_format_limit(f.format), f.limit);
    EXPECT_EQ(f.number.back(), f.limit);
    EXPECT_EQ(ops::fp_format(f.bits, f.mantissa_bits), f.format);
  }
  EXPECT_EQ(ops::fp_format(12, 4), FpFormat::E4M7);
  expect_refused([] { ops::fp_format(8, 4); }, "8 bits with a mantissa of 4");
  expect_refused([] { ops::fp_format_bits(static_cast<FpFormat>(9)); }, "FpFormat with the number 9");
}

// All codes of a format, with both signs, in every type of elements: scaled by 1 they come back bit for bit. There are at
// least 512 of them, a group that the kernels may treat as a large one.
TEST(FPQuantizer, EveryCodeComesBack) {
  on_every_isa([] {
    const auto ops = fp_quantizer();
    for (const Format& f : formats()) {
      SCOPED_TRACE(f.bits);
      std::vector<int> codes;
      for (int i = 0; i < std::max(512, 2 * f.sign()); ++i) codes.push_back(i % (2 * f.sign()));
      const auto count = static_cast<int64_t>(codes.size());
      for (float scale : {1.0f, 0x1p-20f, 0.3f}) {
        const std::vector<uint8_t> bytes = pack(codes, {scale}, f.bits);
        const Tensor stored =
            there(Tensor::from_host(bytes.data(), {1, static_cast<int64_t>(bytes.size())}, DType::U8));
        std::vector<float> expected;
        for (int code : codes) expected.push_back(f.decode(code) * scale);
        for (DType dtype : element_types) {
          std::vector<float> rounded(expected);
          for (float& x : rounded) x = kept(x, dtype);
          expect_same(ops->dequantize(stored, f.format, dtype).to_vector<float>(), rounded, "numbers");
        }
        // Without those that are no numbers.
        std::vector<float> finite(expected);
        std::vector<int> finite_codes(codes);
        for (size_t i = 0; i < finite.size(); ++i) {
          if (std::isfinite(finite[i])) continue;
          finite[i] = 0;
          finite_codes[i] = 0;
        }
        if (scale == 0.3f) continue;
        const Tensor again = ops->quantize(make_tensor(finite, {count}), count, f.format);
        EXPECT_EQ(bytes_of(again), pack(finite_codes, {scale}, f.bits));
      }
    }
  });
}

// fp8 codes are those of the element types of the same name.
TEST(FPQuantizer, Fp8IsTheStandardFormat) {
  const auto ops = fp_quantizer();
  for (const auto& [format, dtype] : {std::pair{FpFormat::E4M3, DType::F8E4M3}, {FpFormat::E5M2, DType::F8E5M2}}) {
    std::vector<float> numbers = random_numbers(512, 3, 20);
    numbers[0] = ops::fp_format_limit(format);  // a scale of 1
    for (float& x : numbers) x = std::clamp(x, -numbers[0], numbers[0]);
    const Tensor x = make_tensor(numbers, {512});
    const Tensor stored = ops->quantize(x, 512, format);
    EXPECT_EQ(bytes_of(stored.slice(1, 0, 512)), bytes_of(x.to(dtype)));
  }
}

TEST(FPQuantizer, MatchesTheDefinitionOnEveryInstructionSet) {
  on_every_isa([] {
    const auto ops = fp_quantizer();
    uint64_t seed = 1;
    for (const Format& f : formats()) {
      for (DType dtype : element_types) {
        for (int64_t size : {4, 8, 16, 48, 512, 1040}) {
          if (size * f.bits % 32) continue;
          for (int64_t groups : {1, 3, 8}) {
            SCOPED_TRACE(std::to_string(f.bits) + " bits, " + std::string(dtype_name(dtype)) + " " +
                         std::to_string(groups) + " x " + std::to_string(size));
            std::vector<float> numbers = random_numbers(groups * size, ++seed, 3);
            // Reaches the subnormal numbers of every format.
            for (size_t i = 0; i < numbers.size(); i += 3) numbers[i] *= std::ldexp(1.0f, -static_cast<int>(i % 25));
            for (float& x : numbers) x = kept(x, dtype);
            const Tensor x = make_tensor(numbers, {groups, size}, dtype);
            const Tensor stored = ops->quantize(x, size, f.format);
            const FpReference expected(f, numbers, groups);
            expect_storage(stored, expected, f);
            for (DType out : element_types) {
              std::vector<float> restored(expected.restored);
              for (float& r : restored) r = kept(r, out);
              expect_same(ops->dequantize(stored, f.format, out).to_vector<float>(), restored, "restored");
            }
            Generator random;
            random.set_state({seed, (uint64_t{1} << 32) - 3});
            const RngState state = random.get_state();
            expect_storage(ops->quantize(x, size, f.format, &random), FpReference(f, numbers, groups, &state), f);
            EXPECT_EQ(random.get_state().offset, state.offset + static_cast<uint64_t>(groups * size) / 4);
          }
        }
      }
    }
  });
}

// Halfway between neighbours, and just beside it, over the whole format.
// Groups that a device may give to a part of a sub-group, a sub-group, several or a whole group of items, and larger ones; with
// scales from the smallest to large ones.
TEST(FPQuantizer, GroupsOfEveryLength) {
  const auto ops = fp_quantizer();
  uint64_t seed = 70;
  for (DType dtype : element_types) {
    for (int64_t size : {32, 160, 512, 1056, 2048, 4128, 20480}) {
      const int64_t groups = size > 2048 ? 2 : 5;
      for (float deviation : {1.0f, 1e-20f, 1e-36f, 1e6f}) {
        if (dtype == DType::F16 && deviation != 1) continue;
        std::vector<float> numbers = random_numbers(groups * size, ++seed, deviation);
        for (float& x : numbers) x = kept(x, dtype);
        const Tensor x = make_tensor(numbers, {groups * size}, dtype);
        for (const Format& f : formats()) {
          SCOPED_TRACE(std::string(dtype_name(dtype)) + " groups of " + std::to_string(size) + " bits " +
                       std::to_string(f.bits));
          const FpReference expected(f, numbers, groups);
          const Tensor stored = ops->quantize(x, size, f.format);
          expect_storage(stored, expected, f);
          std::vector<float> restored = expected.restored;
          for (float& r : restored) r = kept(r, dtype);
          expect_same(ops->dequantize(stored, f.format, dtype).to_vector<float>(), restored, "restored");
          Generator random;
          const RngState state = random.get_state();
          expect_storage(ops->quantize(x, size, f.format, &random), FpReference(f, numbers, groups, &state), f);
        }
      }
    }
  }
}

// A group need not fill the last vector of its codes. The codes end where memory ends.
TEST(FPQuantizer, ReadsNothingBeyondTheCodes) {
  if (device_under_test()) GTEST_SKIP() << "about memory of the host";
  const auto ops = fp_quantizer();
  EndOfMemory memory(4096);
  for (const int64_t size : {32, 96}) {
    const Tensor x = make_tensor(random_numbers(3 * size, 31), {3 * size});
    for (const Format& f : formats()) {
      const Tensor stored = ops->quantize(x, size, f.format);
      void* const codes = memory.put(stored.data(), stored.nbytes());
      const Tensor last = Tensor::from_blob(codes, stored.shape(), stored.dtype(), nullptr);
      EXPECT_EQ(bytes_of(ops->dequantize(last, f.format)), bytes_of(ops->dequantize(stored, f.format))) << f.bits;
    }
  }
}

TEST(FPQuantizer, TiesGoToEven) {
  on_every_isa([] {
    const auto ops = fp_quantizer();
    for (const Format& f : formats()) {
      std::vector<float> numbers{static_cast<float>(f.limit)};
      for (size_t i = 0; i + 1 < f.number.size(); ++i) {
        const auto middle = static_cast<float>((f.number[i] + f.number[i + 1]) / 2);
        for (float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, infinity)}) {
          numbers.push_back(x);
          numbers.push_back(-x);
        }
      }
      while (numbers.size() % 16) numbers.push_back(-0.0f);
      const auto count = static_cast<int64_t>(numbers.size());
      for (DType dtype : element_types) {
        for (float& x : numbers) x = kept(x, dtype);
        const Tensor x = make_tensor(numbers, {count}, dtype);
        expect_storage(ops->quantize(x, count, f.format), FpReference(f, numbers, 1), f);
      }
    }
  });
}

// All mantissas of bf16 under every exponent from the largest down, in order, so that whole vectors have codes of normal
// numbers only, or of others too; a zero and a denormal now and then.
TEST(FPQuantizer, EveryMantissaOfBf16) {
  on_every_isa([] {
    const auto ops = fp_quantizer();
    for (const Format& f : formats()) {
      for (float largest : {448.0f, 1.0f, 0x1.4p-116f, 0x1.4p-109f, 0x1.a2p127f}) {
        std::vector<float> numbers{largest};
        const uint32_t top = float_to_bf16(largest) >> 7;
        for (uint32_t below = 1; below < 48 && below < top; ++below) {
          for (uint32_t mantissa = 0; mantissa < 128; ++mantissa) {
            const auto bits = static_cast<uint16_t>((top - below) << 7 | mantissa | (mantissa % 3 ? 0 : 0x8000));
            numbers.push_back(bf16_to_float(bits));
          }
          if (below % 5 == 0) numbers.back() = below % 2 ? -0.0f : FLT_MIN / 4;
        }
        while (numbers.size() % 16) numbers.push_back(largest);
        const auto count = static_cast<int64_t>(numbers.size());
        const Tensor x = make_tensor(numbers, {count}, DType::BF16);
        expect_storage(ops->quantize(x, count, f.format), FpReference(f, numbers, 1), f);
      }
    }
  });
}

TEST(FPQuantizer, DoesNotDependOnThreads) {
  for (const Format& f : formats()) {
    for (int64_t groups : {1, 60}) {
      const int64_t size = groups == 1 ? 140048 : 1040;
      const std::vector<float> numbers = random_numbers(groups * size, 7);
      const Tensor x = make_tensor(numbers, {groups * size});
      // Rounded to the nearest, for which codes of bf16 are made by other means.
      std::vector<float> rounded;
      for (float value : numbers) rounded.push_back(kept(value, DType::BF16));
      const Tensor x16 = make_tensor(rounded, {groups * size}, DType::BF16);
      const FpReference expected16(f, rounded, groups);
      Generator random;
      const RngState state = random.get_state();
      const FpReference expected(f, numbers, groups, &state);
      for (int threads : thread_counts()) {
        const ThreadCount count(threads);
        random.set_state(state);
        const auto ops = fp_quantizer();
        const Tensor stored = ops->quantize(x, size, f.format, &random);
        expect_storage(stored, expected, f);
        expect_same(ops->dequantize(stored, f.format, DType::F32).to_vector<float>(), expected.restored, "restored");
        expect_storage(ops->quantize(x16, size, f.format), expected16, f);
      }
    }
  }
}

// Results that are written past the caches, of three kinds of groups in turns: numbers, some of them too small for a normal code, and
// with a NaN.
TEST(FPQuantizer, LargeResults) {
  on_every_isa([] {
    const auto ops = fp_quantizer();
    // Of whole blocks of 64 elements the codes of 6 and 12 bits are made at once; of others they are not.
    std::vector<std::pair<size_t, int64_t>> cases{{0, 400}, {2, 448}, {3, 448}};
    if (!device_under_test()) cases.push_back({2, 400});
    for (const auto& [kind, size] : cases) {
      const Format& f = formats()[kind];
      const int64_t kinds = 3, groups = kinds * 20001;
      std::vector<float> rows;
      for (int64_t k = 0; k < kinds; ++k) {
        std::vector<float> row = random_numbers(size, 5 + static_cast<uint64_t>(k));
        if (k == 1) row[5] = row[70] = 1e-4f;
        if (k == 2) row[100] = not_a_number;
        for (float value : row) rows.push_back(kept(value, DType::BF16));
      }
      const Tensor x = make_tensor(rows, {1, kinds * size}, DType::BF16)
                           .expand({groups / kinds, kinds * size})
                           .contiguous()
                           .view({groups, size});
      const FpReference expected(f, rows, kinds);
      const Tensor found = ops->quantize(x, size, f.format);
      const std::vector<uint8_t> bytes = expected.bytes(f);
      ASSERT_EQ(static_cast<int64_t>(bytes.size()), kinds * found.size(1));
      const Tensor found_rows = found.to(Device{});
      const auto* codes = found_rows.data_as<uint8_t>();
      int64_t wrong = 0;
      for (int64_t g = 0; g < groups; g += kinds) {
        wrong += std::memcmp(codes + g * found.size(1), bytes.data(), bytes.size()) != 0;
      }
      EXPECT_EQ(wrong, 0) << f.bits << " bits, groups of " << size;
      const Tensor back = there(Tensor::empty({groups * size + 3}, DType::BF16)).slice(0, 3, groups * size + 3);
      ops->dequantize_into(back, found, f.format);
      std::vector<uint16_t> restored;
      for (float r : expected.restored) restored.push_back(float_to_bf16(r));
      const Tensor found_back = back.to(Device{});
      const auto* values = found_back.data_as<uint16_t>();
      for (int64_t g = 0; g < groups; g += kinds) {
        // Those of the group with a NaN are NaNs, of any bits.
        wrong += std::memcmp(values + g * size, restored.data(), static_cast<size_t>(2 * size) * 2) != 0;
        for (int64_t i = 2 * size; i < 3 * size; ++i) wrong += (values[g * size + i] & 0x7fff) <= 0x7f80;
      }
      EXPECT_EQ(wrong, 0) << f.bits << " bits, groups of " << size;
    }
  });
}

TEST(FPQuantizer, SpecialGroups) {
  on_every_isa([] {
    const auto ops = fp_quantizer();
    const float tiny = FLT_MIN, denormal = FLT_MIN / 3, huge = FLT_MAX;
    const std::vector<std::vector<float>> groups = {{0, -0.0f, 0, 0},
                                                    {1, not_a_number, 2, -0.0f},
                                                    {infinity, 1, 2, 3},
                                                    {1, -infinity, 2, 3},
                                                    {tiny, -tiny, 0, 0},
                                                    {tiny * 300, -tiny, 0, tiny * 600},
                                                    {denormal, -denormal, denormal, 0},
                                                    {denormal, 1, 0, 0},
                                                    {huge, -huge, 1, 0},
                                                    {1, 1e-30f, -1e-30f, 1e-3f}};
    for (const Format& f : formats()) {
      std::vector<float> numbers;
      for (const auto& group : groups) {
        for (int i = 0; i < 16; ++i) numbers.push_back(group[static_cast<size_t>(i) % 4]);
      }
      const auto count = static_cast<int64_t>(groups.size());
      const Tensor stored = ops->quantize(make_tensor(numbers, {count, 16}), 16, f.format);
      const FpReference expected(f, numbers, count);
      expect_storage(stored, expected, f);
      expect_same(ops->dequantize(stored, f.format, DType::F32).to_vector<float>(), expected.restored, "restored");
      for (size_t i = 16; i < 64; ++i) EXPECT_TRUE(std::isnan(expected.restored[i]));
      for (size_t i = 128; i < 144; ++i) EXPECT_TRUE(std::isfinite(expected.restored[i]));
    }
  });
}

TEST(FPQuantizer, ErrorIsAtMostHalfAStep) {
  const auto ops = fp_quantizer();
  const std::vector<float> numbers = random_numbers(64 * 128, 3);
  for (const Format& f : formats()) {
    const Tensor stored = ops->quantize(make_tensor(numbers, {64 * 128}), 128, f.format);
    const auto scales = ops::FPQuantizer::get_scales(stored).to_vector<float>();
    const auto restored = ops->dequantize(stored, f.format, DType::F32).to_vector<float>();
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double scale = scales[i / 128], x = std::fabs(double{numbers[i]}) / scale;
      const int exponent = std::max(x > 0 ? std::ilogb(x) : -99, 1 - f.bias);
      const double step = std::ldexp(scale, exponent - f.mantissa_bits);
      ASSERT_LE(std::fabs(double{numbers[i]} - restored[i]), step * 0.5001) << i;
    }
  }
}

TEST(FPQuantizer, StochasticRoundingIsUnbiasedAndReproducible) {
  const auto ops = fp_quantizer();
  const int64_t n = 40000;
  for (const Format& f : formats()) {
    for (size_t code : {size_t{0}, size_t{1}, f.number.size() - 2}) {  // two of them subnormal
      const double low = f.number[code], high = f.number[code + 1];
      for (double fraction : {0.1, 0.7}) {
        std::vector<float> numbers(n, static_cast<float>(low + fraction * (high - low)));
        numbers[0] = static_cast<float>(f.limit);
        const double part = (numbers[1] - low) / (high - low);
        Generator random;
        random.manual_seed(11);
        const Tensor x = make_tensor(numbers, {n});
        const Tensor stored = ops->quantize(x, n, f.format, &random);
        double sum = 0;
        const auto restored = ops->dequantize(stored, f.format, DType::F32).to_vector<float>();
        for (size_t i = 1; i < restored.size(); ++i) {
          ASSERT_TRUE(restored[i] == low || restored[i] == high);
          sum += (restored[i] - low) / (high - low);
        }
        EXPECT_NEAR(sum / static_cast<double>(n - 1), part, 5 * std::sqrt(part * (1 - part) / n)) << f.bits;
        const Tensor second = ops->quantize(x, n, f.format, &random);
        EXPECT_NE(bytes_of(second), bytes_of(stored));
        random.manual_seed(11);
        EXPECT_EQ(bytes_of(ops->quantize(x, n, f.format, &random)), bytes_of(stored));
      }
    }
  }
}

TEST(FPQuantizer, AnyStrides) {
  const auto ops = fp_quantizer();
  const Tensor x = make_tensor(random_numbers(32 * 48, 9), {32, 48}).transpose(0, 1);
  for (const Format& f : formats()) {
    const Tensor expected = ops->quantize(x.contiguous(), 64, f.format);
    const Tensor out = there(Tensor::zeros({expected.size(1), expected.size(0)}, DType::U8)).transpose(0, 1);
    ops->quantize_into(out, x, f.format);
    EXPECT_EQ(bytes_of(out), bytes_of(expected));
    const Tensor back = there(Tensor::zeros({32, 48}, DType::F16)).transpose(0, 1);
    ops->dequantize_into(back, out, f.format);
    EXPECT_EQ(bytes_of(back), bytes_of(ops->dequantize(expected, f.format, DType::F16)));
    // Rows with something between them.
    const Tensor wide = there(Tensor::zeros({expected.size(0), expected.size(1) + 8}, DType::U8));
    const Tensor gaps = wide.slice(1, 4, 4 + expected.size(1));
    ops->quantize_into(gaps, x, f.format);
    EXPECT_EQ(bytes_of(gaps), bytes_of(expected));
    EXPECT_EQ(bytes_of(ops::FPQuantizer::get_scales(gaps)), bytes_of(ops::FPQuantizer::get_scales(expected)));
  }
}

TEST(FPQuantizer, SelectiveDequantize) {
  on_every_isa([] {
    const auto ops = fp_quantizer();
    const int64_t rows = 7, groups_per_row = 3, size = 48;
    const Tensor x = make_tensor(random_numbers(rows * groups_per_row * size, 2), {rows, groups_per_row * size});
    const std::vector<int32_t> wanted{6, 0, 3, 3, 1};
    const Tensor indexes = there(Tensor::from_host(wanted.data(), {5}, DType::I32));
    for (const Format& f : formats()) {
      const Tensor stored = ops->quantize(x, size, f.format);
      const Tensor all = ops->dequantize(stored, f.format).view({rows, groups_per_row * size});
      for (const Tensor& list : {indexes, indexes.to(DType::I64)}) {
        const Tensor found = ops->selective_dequantize(stored, list, groups_per_row, f.format);
        const Tensor cube = there(Tensor::empty({5, 12, 12}, DType::BF16));
        ops->selective_dequantize_into(cube, stored, list, f.format);
        for (size_t i = 0; i < wanted.size(); ++i) {
          EXPECT_EQ(bytes_of(found.select(0, static_cast<int64_t>(i))), bytes_of(all.select(0, wanted[i])));
        }
        EXPECT_EQ(bytes_of(cube), bytes_of(found));
      }
      const Tensor none = there(Tensor::empty({0}, DType::I64));
      EXPECT_EQ(ops->selective_dequantize(stored, none, groups_per_row, f.format).numel(), 0);
    }
  });
}

TEST(FPQuantizer, NoElements) {
  const auto ops = fp_quantizer();
  const Tensor stored = ops->quantize(there(Tensor::empty({0, 64}, DType::BF16)), 64, FpFormat::E3M2);
  EXPECT_EQ(stored.shape(), Shape({0, 52}));
  EXPECT_EQ(ops->dequantize(stored, FpFormat::E3M2).shape(), Shape({0, 64}));
  EXPECT_EQ(ops::FPQuantizer::get_scales(stored).numel(), 0);
}

TEST(FPQuantizer, TensorsOfAnotherAccelerator) {
  if (device_under_test()) GTEST_SKIP() << "about the CPU and memory that it does not reach";
  const auto accelerator = make_accelerator("null");
  const auto ops = accelerator->create_op_builder("FPQuantizerBuilder")->load_as<ops::FPQuantizer>();
  const Tensor x = make_tensor(random_numbers(640, 6), {20, 32});
  const Tensor there = x.to(accelerator->device());
  const Tensor expected = ops->quantize(x.transpose(0, 1).contiguous(), 64, FpFormat::E4M7);
  const Tensor found = ops->quantize(there.transpose(0, 1), 64, FpFormat::E4M7);
  EXPECT_EQ(found.device(), accelerator->device());
  EXPECT_EQ(bytes_of(found), bytes_of(expected));
  const Tensor back = ops->dequantize(found, FpFormat::E4M7);
  EXPECT_EQ(back.device(), accelerator->device());
  EXPECT_EQ(bytes_of(back), bytes_of(ops->dequantize(expected, FpFormat::E4M7)));
}

TEST(FPQuantizer, RefusesWhatIsWrong) {
  const auto ops = fp_quantizer();
  const Tensor x = there(Tensor::zeros({6, 32}, DType::BF16));
  const Tensor stored = ops->quantize(x, 32);
  expect_refused([&] { ops->quantize({}, 32); }, "x is absent");
  expect_refused([&] { ops->quantize(x.to(DType::I32), 32); }, "x must be float32, float16 or bfloat16");
  expect_refused([&] { ops->quantize(x, 0); }, "groups of 0 elements");
  expect_refused([&] { ops->quantize(x, -4); }, "groups of -4 elements");
  expect_refused([&] { ops->quantize(x, std::numeric_limits<int64_t>::max()); }, "whole number of 32-bit words");
  expect_refused([&] { ops->quantize(x, 6); }, "whole number of 32-bit words");
  expect_refused([&] { ops->quantize(x, 8, FpFormat::E3M2); }, "whole number of 32-bit words");
  expect_refused([&] { ops->quantize(x, 128); }, "not a multiple of the group size 128");
  expect_refused([&] { ops->quantize(x, 32, static_cast<FpFormat>(5)); }, "FpFormat with the number 5");
  expect_refused(
      [&] {
        ops->quantize_into(stored, there(Tensor::zeros({7, 32}, DType::F32)));
      },
      "out is uint8 [6, 36]");
  expect_refused([&] { ops->quantize_into(x, x); }, "out must be uint8");
  expect_refused(
      [&] {
        const Tensor bytes = there(Tensor::zeros({216}, DType::U8));
        const std::array<int64_t, 1> dense{1};
        ops->dequantize_into(Tensor(bytes.storage(), DType::F16, {96}, dense), bytes.slice(0, 0, 108).view({3, 36}));
      },
      "fp_dequantize: the tensor float16 [96], which is written, shares memory with the tensor uint8 [3, 36]");
  expect_refused([&] { ops->dequantize(stored.slice(1, 0, 4)); }, "codes must be [groups");
  expect_refused([&] { ops->dequantize(stored.view({216})); }, "codes must be [groups");
  expect_refused([&] { ops->dequantize(stored, FpFormat::E4M7); }, "codes must be [groups");
  expect_refused([&] { ops->dequantize(stored, FpFormat::E4M3, DType::U8); }, "not uint8");
  expect_refused([&] { ops->dequantize_into(there(Tensor::zeros({5}, DType::F32)), stored); },
                 "out must have 192 elements");
  const std::vector<int64_t> list{0, 2, -1}, large{3};
  const Tensor negative = there(Tensor::from_host(list.data(), {3}, DType::I64));
  const Tensor beyond = there(Tensor::from_host(large.data(), {1}, DType::I64));
  expect_refused([&] { ops->selective_dequantize(stored, negative, 2); }, "indexes[2] is -1, and codes has 3 rows");
  expect_refused([&] { ops->selective_dequantize(stored, beyond, 2); }, "indexes[0] is 3");
  expect_refused([&] { ops->selective_dequantize(stored, beyond, 4); }, "not a multiple of 4 groups a row");
  expect_refused([&] { ops->selective_dequantize(stored, beyond, 0); }, "not a multiple of 0 groups a row");
  expect_refused([&] { ops->selective_dequantize(stored, x, 2); }, "indexes must be int32 or int64");
  expect_refused(
      [&] {
        ops->selective_dequantize_into(there(Tensor::zeros({1, 48}, DType::F32)), stored, beyond);
      },
      "out must have a row");
  expect_refused([&] { ops::FPQuantizer::get_scales(stored.transpose(0, 1)); }, "get_scales: codes must be");
}

}  // namespace
}  // namespace anyaccel
