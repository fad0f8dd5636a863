// The shapes at which kernels change, for the cases of sizes.
#pragma once

#include <string>
#include <vector>

#include "conformance/op_run.h"

namespace anyaccel::conformance {

// Around every power of two, where groups, vectors and tiles have a remainder.
inline constexpr int64_t boundaries[] = {1,  2,  3,  4,  5,  7,   8,   9,   15,  16,  17, 31,
                                         32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257};
// More rows and more columns than 16 bits count.
inline constexpr int64_t many = 65537;
inline constexpr int64_t vocabulary = 151936;

// Rows and columns of tensors with a last dimension.
inline std::vector<Shape> row_shapes() {
  std::vector<Shape> shapes;
  for (const int64_t size : boundaries) {
    shapes.push_back({3, size});
    shapes.push_back({size, 5});
  }
  shapes.insert(shapes.end(), {{129, 257}, {2, 4097}, {1, 11008}, {many, 3}, {2, vocabulary}});
  return shapes;
}

inline std::string text(const Shape& shape) {
  return std::to_string(shape[0]) + " rows of " + std::to_string(shape[1]);
}

}  // namespace anyaccel::conformance
