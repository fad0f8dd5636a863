// Declares what kernels of the simulated Synapse's nodes compute with: the tensors of a node, and their elements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "simulators/habana/graph.h"
#include "simulators/libraries/product.h"

namespace sim::habana {

// synDataType. A truth is an i8.
enum : int { kI8 = 1, kBf16 = 2, kF32 = 4, kI32 = 16, kF16 = 256 };

// Of a float type; -1: another.
inline int number_type(int type) {
  switch (type) {
    case kBf16: return sim_library::kBf16;
    case kF32: return sim_library::kF32;
    case kF16: return sim_library::kF16;
    default: return -1;
  }
}
// 0: a type that is not simulated.
inline std::uint64_t element_bytes(int type) {
  if (type == kI8) return 1;
  if (type == kI32) return 4;
  return number_type(type) < 0 ? 0 : sim_library::size_of_type(number_type(type));
}
inline const char* suffix_of(int type) {
  switch (type) {
    case kI8: return "i8";
    case kBf16: return "bf16";
    case kF32: return "f32";
    case kI32: return "i32";
    default: return "f16";
  }
}
inline std::uint64_t bytes_of(const TensorFacts& tensor) { return tensor.elements() * element_bytes(tensor.type); }

struct Operands {
  const std::vector<TensorFacts>& tensors;
  const OpNode& node;
  const std::vector<char*>& bytes;  // by tensor

  const TensorFacts& in(std::size_t i) const { return tensors[node.inputs[i]]; }
  const TensorFacts& out(std::size_t i = 0) const { return tensors[node.outputs[i]]; }
  double load(std::size_t i, std::uint64_t at) const {
    const int type = in(i).type;
    const char* const from = bytes[node.inputs[i]] + at * element_bytes(type);
    if (type == kI8) return static_cast<signed char>(*from);
    if (type == kI32) {
      std::int32_t value = 0;
      std::memcpy(&value, from, sizeof value);
      return value;
    }
    return sim_library::load_number(from, number_type(type));
  }
  // Whole numbers wrap, as those of 32 bits do in two's complement.
  void store(std::uint64_t at, double value, std::size_t i = 0) const {
    const int type = out(i).type;
    char* const to = bytes[node.outputs[i]] + at * element_bytes(type);
    if (number_type(type) >= 0) return sim_library::store_number(to, number_type(type), static_cast<float>(value));
    const auto whole = static_cast<std::int64_t>(std::isfinite(value) ? value : 0);
    if (type == kI8) {
      *to = static_cast<char>(whole);
    } else {
      const auto narrow = static_cast<std::uint32_t>(whole);
      std::memcpy(to, &narrow, sizeof narrow);
    }
  }
};

// The element of an input that belongs to one of the output's; a size of 1 stands for all of them.
inline std::uint64_t broadcast_index(const TensorFacts& in, const TensorFacts& out, std::uint64_t at) {
  std::uint64_t index = 0, step = 1;
  for (std::size_t d = 0; d < out.sizes.size(); ++d) {
    const std::uint64_t place = at % out.sizes[d];
    at /= out.sizes[d];
    if (d >= in.sizes.size()) continue;
    if (in.sizes[d] != 1) index += place * step;
    step *= in.sizes[d];
  }
  return index;
}

inline bool broadcasts(const TensorFacts& in, const TensorFacts& out) {
  if (in.sizes.size() > out.sizes.size()) return false;
  for (std::size_t d = 0; d < in.sizes.size(); ++d) {
    if (in.sizes[d] != 1 && in.sizes[d] != out.sizes[d]) return false;
  }
  return true;
}

// Kernels that move, choose, compare or reduce elements (tensor_nodes.cpp). What is wrong with a node of one of them, as one
// sentence, empty for nothing; no value for a guid that is none of them.
std::optional<std::string> check_tensor_node(const OpNode& node, const std::vector<TensorFacts>& tensors);
// False for a guid that is none of them.
bool run_tensor_node(const Operands& on);

}  // namespace sim::habana
