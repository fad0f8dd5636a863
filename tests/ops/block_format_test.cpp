// Blocks of quantized weights are decoded to the bits that the gguf package computes, for random bytes and extremes.
#include "base/block_format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/abi/ops.h"
#include "anyaccel/llm/safetensors.h"

namespace anyaccel {
namespace {

TEST(BlockFormat, DecodesToTheBitsOfTheGgufPackage) {
  const auto file = llm::SafetensorsFile::open(std::string(ANYACCEL_TEST_DATA) + "/block_formats.safetensors");
  for (const BlockFormat& format : block_formats()) {
    const std::string name(format.name);
    const llm::TensorInfo* blocks = file->find(name + ".blocks");
    const llm::TensorInfo* values = file->find(name + ".values");
    ASSERT_TRUE(blocks != nullptr && values != nullptr) << name;
    ASSERT_EQ(blocks->shape[1], format.bytes) << name;
    ASSERT_EQ(values->shape[1], format.values) << name;
    std::vector<float> expected(values->bytes / sizeof(float));
    file->read(values->offset, std::as_writable_bytes(std::span(expected)));
    // At an odd address, as a file may have them.
    std::vector<std::byte> bytes(blocks->bytes + 1);
    file->read(blocks->offset, std::span(bytes).subspan(1));
    std::vector<float> found(expected.size());
    decode_blocks(format, std::span(bytes).subspan(1), found);
    size_t finite = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      if (std::isnan(expected[i])) {
        ASSERT_TRUE(std::isnan(found[i])) << name << " value " << i;
        continue;
      }
      finite += std::isfinite(expected[i]) ? 1 : 0;
      ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(expected[i]))
          << name << " value " << i << ": " << found[i] << ", expected " << expected[i];
    }
    EXPECT_GE(finite, size_t{3} * format.values) << name;
  }
}

TEST(BlockFormat, HasTheNumberOfTheInterface) {
  const std::pair<aa_block_format, const char*> names[] = {
      {AA_BLOCK_Q4_0, "Q4_0"},   {AA_BLOCK_Q4_1, "Q4_1"},   {AA_BLOCK_Q5_0, "Q5_0"},     {AA_BLOCK_Q5_1, "Q5_1"},
      {AA_BLOCK_Q8_0, "Q8_0"},   {AA_BLOCK_Q2_K, "Q2_K"},   {AA_BLOCK_Q3_K, "Q3_K"},     {AA_BLOCK_Q4_K, "Q4_K"},
      {AA_BLOCK_Q5_K, "Q5_K"},   {AA_BLOCK_Q6_K, "Q6_K"},   {AA_BLOCK_IQ4_NL, "IQ4_NL"}, {AA_BLOCK_IQ4_XS, "IQ4_XS"},
      {AA_BLOCK_TQ1_0, "TQ1_0"}, {AA_BLOCK_TQ2_0, "TQ2_0"}, {AA_BLOCK_MXFP4, "MXFP4"}};
  EXPECT_EQ(std::size(names), block_formats().size());
  for (const auto& [number, name] : names) {
    ASSERT_NE(find_block_format(number), nullptr) << name;
    EXPECT_EQ(find_block_format(number)->name, name);
  }
}

TEST(BlockFormat, IsFoundByItsNumber) {
  std::set<uint32_t> numbers;
  for (const BlockFormat& format : block_formats()) {
    EXPECT_EQ(find_block_format(format.number), &format);
    numbers.insert(format.number);
  }
  EXPECT_EQ(numbers.size(), block_formats().size());
  for (const uint32_t none : {0U, 1U, 4U, 15U, 30U, 40U, UINT32_MAX}) EXPECT_EQ(find_block_format(none), nullptr);
}

}  // namespace
}  // namespace anyaccel
