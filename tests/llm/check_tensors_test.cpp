// Damaged weights are found and named: values that are no numbers, infinite, or too large for the wanted dtype; every float
// type, every place in a tensor.
#include "anyaccel/llm/check_tensors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <random>

#include "anyaccel/error.h"
#include "anyaccel/llm/safetensors.h"
#include "llm/checkpoint/tensor_scan.h"
#include "llm/model_fixtures.h"
#include "llm/test_directory.h"

namespace anyaccel::llm {
namespace {

namespace fs = std::filesystem;
using testing::checkpoint_error;
using testing::expect_contains;
using testing::TestDirectory;

// A copy of a stored model with changed tensors: `edit` gets each name and its values as fp32, which are what is written.
class EditedModel {
 public:
  using Edit = std::function<void(const std::string&, std::vector<float>&)>;
  explicit EditedModel(const Edit& edit, const std::string& extra = "") {
    const fs::path source = fs::path(anyaccel::testing::models_directory()) / "llama_gqa";
    fs::copy_file(source / "config.json", directory_.path() / "config.json");
    const auto file = SafetensorsFile::open(source / "model.safetensors");
    std::vector<TensorSpec> specs;
    std::vector<std::vector<float>> values;
    for (const TensorInfo& tensor : file->tensors()) {
      std::vector<float> numbers(tensor.bytes / 2);
      for (size_t i = 0; i < numbers.size(); ++i) {
        uint16_t bits = 0;
        std::memcpy(&bits, file->data(tensor) + i * 2, 2);
        numbers[i] = bf16_to_float(bits);
      }
      edit(tensor.name, numbers);
      specs.push_back({tensor.name, DType::F32, tensor.shape});
      values.push_back(std::move(numbers));
    }
    if (!extra.empty()) {
      specs.push_back({extra, DType::F32, {3}});
      values.push_back({1.0f, NAN, 2.0f});
    }
    std::vector<std::span<const std::byte>> bytes;
    for (const std::vector<float>& numbers : values) bytes.push_back(std::as_bytes(std::span(numbers)));
    write_safetensors(directory_.path() / "model.safetensors", specs, bytes);
  }
  std::string path() const { return directory_.path().string(); }

 private:
  TestDirectory directory_;
};

constexpr const char* gate = "model.layers.1.mlp.gate_proj.weight";  // [96, 64]

TEST(CheckTensors, StoredModelsAreWhole) {
  for (const std::string& name : anyaccel::testing::reference_model_names()) {
    SCOPED_TRACE(name);
    const TensorCheck check = check_tensors(anyaccel::testing::models_directory() + "/" + name);
    EXPECT_TRUE(check.findings.empty()) << check.findings[0].to_string();
    EXPECT_GT(check.tensors, 10u);
    EXPECT_GT(check.bytes, 100000u);
  }
}

TEST(CheckTensors, CountsAndPlaces) {
  const EditedModel model([](const std::string& name, std::vector<float>& values) {
    if (name == gate) values[2 * 64 + 5] = values[3 * 64] = NAN;
    if (name == gate) values[95 * 64 + 63] = -INFINITY;
    if (name == "model.norm.weight") values[63] = NAN;
  });
  const TensorCheck check = check_tensors(model.path());
  ASSERT_EQ(check.findings.size(), 2u);
  EXPECT_EQ(check.damaged(), 2u);
  const TensorFinding& found = check.findings[0];
  EXPECT_EQ(found.tensor, gate);
  EXPECT_EQ(found.nan_count, 2u);
  EXPECT_EQ(found.infinite_count, 1u);
  EXPECT_EQ(found.overflow_count, 0u);
  EXPECT_EQ(found.first, (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(found.to_string(), std::string(gate) + " [96, 64] float32 in " + model.path() +
                                   "/model.safetensors: 2 not a number, 1 infinite; the first at [2, 5]");
  EXPECT_EQ(check.findings[1].tensor, "model.norm.weight");
  EXPECT_EQ(check.findings[1].first, (std::vector<int64_t>{63}));
}

TEST(CheckTensors, WhatIsTooLargeDependsOnTheDtype) {
  const EditedModel model([](const std::string& name, std::vector<float>& values) {
    if (name == gate) values[7] = 1e6f;
    // Norms are fp32 in every model.
    if (name == "model.norm.weight") values[0] = 1e6f;
  });
  for (const DType fine : {DType::None, DType::F32, DType::BF16}) {
    EXPECT_TRUE(check_tensors(model.path(), fine).findings.empty()) << dtype_name(fine);
  }
  const TensorCheck check = check_tensors(model.path(), DType::F16);
  ASSERT_EQ(check.findings.size(), 1u);
  EXPECT_EQ(check.findings[0].tensor, gate);
  EXPECT_EQ(check.findings[0].overflow_count, 1u);
  expect_contains(check.findings[0].to_string(),
                  "1 too large for float16 (up to 1e+06); the first at [0, 7]; bf16 and fp32 hold these values");
}

TEST(CheckTensors, ZerosAreNotedAndUnusedTensorsToo) {
  const EditedModel model(
      [](const std::string& name, std::vector<float>& values) {
        if (name == gate) std::fill(values.begin(), values.end(), 0.0f);
      },
      "left.over");
  const TensorCheck check = check_tensors(model.path());
  ASSERT_EQ(check.findings.size(), 2u);
  EXPECT_EQ(check.damaged(), 0u);
  expect_contains(check.findings[0].to_string(), "left.over [3]");
  expect_contains(check.findings[0].to_string(),
                  "1 not a number; the first at [1]; the model does not use this tensor");
  expect_contains(check.findings[1].to_string(), "is all zero");
}

TEST(CheckTensors, WhatCannotBeLoadedIsTheSameError) {
  checkpoint_error([] { check_tensors("/nonexistent"); });
  EXPECT_THROW(check_tensors(anyaccel::testing::models_directory() + "/llama_gqa", DType::I32), InvalidArgument);
}

// -- the scan of values as bits, against the values themselves --

struct Plain {
  uint64_t nan = 0, infinite = 0, overflow = 0, first = UINT64_MAX;
  double largest = 0;
};

Plain plain_scan(const std::vector<double>& values, double limit) {
  Plain result;
  for (size_t i = 0; i < values.size(); ++i) {
    const double magnitude = std::abs(values[i]);
    const bool finite = std::isfinite(magnitude);
    if (finite) result.largest = std::max(result.largest, magnitude);
    if (finite && magnitude < limit) continue;
    result.first = std::min<uint64_t>(result.first, i);
    if (std::isnan(magnitude)) ++result.nan;
    if (std::isinf(magnitude)) ++result.infinite;
    if (finite) ++result.overflow;
  }
  return result;
}

void expect_equal(const ScanResult& found, const Plain& expected) {
  EXPECT_EQ(found.nan_count, expected.nan);
  EXPECT_EQ(found.infinite_count, expected.infinite);
  EXPECT_EQ(found.overflow_count, expected.overflow);
  EXPECT_EQ(found.first, expected.first);
  EXPECT_EQ(found.largest, expected.largest);
}

TEST(TensorScan, EveryHalfPrecisionValue) {
  for (const DType dtype : {DType::F16, DType::BF16}) {
    for (const DType wanted : {DType::F16, DType::BF16, DType::F32, DType::None}) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " as " + std::string(dtype_name(wanted)));
      for (uint32_t bits = 0; bits < 65536; ++bits) {
        const auto half = static_cast<uint16_t>(bits);
        const float value = dtype == DType::F16 ? fp16_to_float(half) : bf16_to_float(half);
        const bool finite = std::isfinite(value);
        const bool fits = wanted == DType::F16    ? std::isfinite(fp16_to_float(float_to_fp16(value)))
                          : wanted == DType::BF16 ? std::isfinite(bf16_to_float(float_to_bf16(value)))
                                                  : true;
        const ScanResult found = scan_values(std::as_bytes(std::span(&half, 1)), dtype, wanted);
        ASSERT_EQ(found.nan_count, std::isnan(value) ? 1u : 0u) << bits;
        ASSERT_EQ(found.infinite_count, std::isinf(value) ? 1u : 0u) << bits;
        ASSERT_EQ(found.overflow_count, finite && !fits ? 1u : 0u) << bits;
        ASSERT_EQ(found.first, !finite || !fits ? 0u : UINT64_MAX) << bits;
        ASSERT_EQ(found.largest, finite ? std::abs(static_cast<double>(value)) : 0.0) << bits;
      }
    }
  }
}

TEST(TensorScan, BordersOfSinglePrecision) {
  const float largest = std::numeric_limits<float>::max();
  const auto overflows = [](float value, DType wanted) {
    return scan_values(std::as_bytes(std::span(&value, 1)), DType::F32, wanted).overflow_count == 1;
  };
  for (const float value : {65504.0f, 65519.99f, 65520.0f, -65520.0f, 1e6f}) {
    EXPECT_EQ(overflows(value, DType::F16), std::isinf(fp16_to_float(float_to_fp16(value)))) << value;
  }
  for (const uint32_t bits : {0x7F7F0000u, 0x7F7F7FFFu, 0x7F7F8000u, 0x7F7F8001u, 0x7F7FFFFFu}) {
    const float value = std::bit_cast<float>(bits);
    EXPECT_EQ(overflows(value, DType::BF16), std::isinf(bf16_to_float(float_to_bf16(value)))) << std::hex << bits;
  }
  EXPECT_FALSE(overflows(largest, DType::F32));
  const auto wide = [](double value) {
    return scan_values(std::as_bytes(std::span(&value, 1)), DType::F64, DType::F32).overflow_count == 1;
  };
  for (const double value : {0x1.FFFFFEp127, 0x1.FFFFFEFFFFp127, 0x1.FFFFFFp127, 1e39, 1e300}) {
    EXPECT_EQ(wide(value), std::isinf(static_cast<float>(value))) << value;
  }
}

TEST(TensorScan, RandomPiecesOfEveryLength) {
  std::mt19937 random(5);
  for (size_t round = 0; round < 60; ++round) {
    const size_t count = round < 20 ? round : 8000 + random() % 30000;
    std::vector<float> values(count);
    std::vector<double> wide(count);
    for (size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(static_cast<int>(random() % 2000) - 1000);
      if (round % 3 == 0 && random() % 5000 == 0) {
        const float odd[] = {NAN, INFINITY, -INFINITY, 1e30f, -7e4f};
        values[i] = odd[random() % 5];
      }
      wide[i] = static_cast<double>(values[i]);
    }
    expect_equal(scan_values(std::as_bytes(std::span(values)), DType::F32, DType::F16), plain_scan(wide, 65520.0));
    expect_equal(scan_values(std::as_bytes(std::span(wide)), DType::F64, DType::F32), plain_scan(wide, 1e39));
    // Two halves give the whole.
    const size_t half = count / 2;
    ScanResult joined = scan_values(std::as_bytes(std::span(values).first(half)), DType::F32, DType::F16);
    joined.add(scan_values(std::as_bytes(std::span(values).subspan(half)), DType::F32, DType::F16), half);
    expect_equal(joined, plain_scan(wide, 65520.0));
  }
}

}  // namespace
}  // namespace anyaccel::llm
