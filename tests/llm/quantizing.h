// Writes quantized models in tests, and checks what the writer reports on the way.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "anyaccel/llm/quantize.h"

namespace anyaccel::llm {

// Quantizes a model and expects its progress to end with all bytes.
inline QuantizeResult quantize_with_progress(const std::string& in, const std::string& out, const std::string& type) {
  QuantizeOptions options;
  options.type = type;
  uint64_t last = 0;
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, total);
    last = done;
  };
  QuantizeResult result = quantize_model(in, out, options);
  EXPECT_EQ(last, result.bytes_before) << in;
  return result;
}

}  // namespace anyaccel::llm
