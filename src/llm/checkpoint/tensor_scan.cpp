// Compares magnitudes as integers: without the sign, a floating-point number's bits increase with its value, infinity
// is above every finite number, and NaNs are above infinity.
#include "llm/checkpoint/tensor_scan.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "anyaccel/error.h"
#include "base/copy_bytes.h"

namespace anyaccel::llm {
namespace {

template <class Bits>
struct Format {
  Bits magnitude;  // all bits but the sign
  Bits infinite;
  double (*value)(Bits);
};

double fp16_value(int16_t bits) { return static_cast<double>(fp16_to_float(static_cast<uint16_t>(bits))); }
double bf16_value(int16_t bits) { return static_cast<double>(bf16_to_float(static_cast<uint16_t>(bits))); }
double fp32_value(int32_t bits) { return static_cast<double>(std::bit_cast<float>(bits)); }
double fp64_value(int64_t bits) { return std::bit_cast<double>(bits); }

// Returns the smallest magnitude that rounds to infinity.
double first_infinite(DType wanted) {
  switch (wanted) {
    case DType::F16: return 65520.0;
    case DType::BF16: return 0x1.FFp127;
    case DType::F32: return 0x1.FFFFFFp127;
    default: return INFINITY;
  }
}

// Returns the smallest bit pattern whose value is at least `limit`; that of infinity if no finite value is.
template <class Bits>
Bits bits_from(const Format<Bits>& format, double limit) {
  Bits low = 0;
  Bits high = format.infinite;
  while (low < high) {
    const auto middle = static_cast<Bits>(low + (high - low) / 2);
    if (format.value(middle) >= limit) {
      high = middle;
    } else {
      low = static_cast<Bits>(middle + 1);
    }
  }
  return low;
}

// Pieces of this many bytes are copied to an aligned buffer; they stay in the first-level cache.
constexpr size_t piece_bytes = 16384;

// Magnitudes are treated as signed integers (they have no sign bit), because every instruction set has a vector maximum
// for those.
template <class Bits>
ScanResult scan(std::span<const std::byte> bytes, const Format<Bits>& format, double limit) {
  ScanResult result;
  const Bits first_bad = bits_from(format, limit);
  Bits piece[piece_bytes / sizeof(Bits)];
  Bits largest = 0;
  for (size_t begin = 0; begin < bytes.size(); begin += piece_bytes) {
    const size_t now = std::min(piece_bytes, bytes.size() - begin);
    const size_t count = now / sizeof(Bits);
    copy_bytes(piece, bytes.data() + begin, now);
    Bits most = 0;
    for (size_t i = 0; i < count; ++i) most = std::max(most, static_cast<Bits>(piece[i] & format.magnitude));
    if (most < first_bad) {
      largest = std::max(largest, most);
      continue;
    }
    for (size_t i = 0; i < count; ++i) {
      const auto magnitude = static_cast<Bits>(piece[i] & format.magnitude);
      if (magnitude < format.infinite) largest = std::max(largest, magnitude);
      if (magnitude < first_bad) continue;
      result.first = std::min(result.first, static_cast<uint64_t>(begin / sizeof(Bits) + i));
      if (magnitude > format.infinite) {
        ++result.nan_count;
      } else if (magnitude == format.infinite) {
        ++result.infinite_count;
      } else {
        ++result.overflow_count;
      }
    }
  }
  result.largest = format.value(largest);
  return result;
}

}  // namespace

void ScanResult::add(const ScanResult& other, uint64_t offset) {
  nan_count += other.nan_count;
  infinite_count += other.infinite_count;
  overflow_count += other.overflow_count;
  if (other.first != UINT64_MAX) first = std::min(first, offset + other.first);
  largest = std::max(largest, other.largest);
}

bool can_scan(DType dtype) noexcept {
  return dtype == DType::F16 || dtype == DType::BF16 || dtype == DType::F32 || dtype == DType::F64;
}

ScanResult scan_values(std::span<const std::byte> values, DType dtype, DType wanted) {
  const double limit = first_infinite(wanted);
  switch (dtype) {
    case DType::F16: return scan<int16_t>(values, {0x7FFF, 0x7C00, fp16_value}, limit);
    case DType::BF16: return scan<int16_t>(values, {0x7FFF, 0x7F80, bf16_value}, limit);
    case DType::F32: return scan<int32_t>(values, {0x7FFFFFFF, 0x7F800000, fp32_value}, limit);
    case DType::F64: return scan<int64_t>(values, {0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000, fp64_value}, limit);
    default:
      throw InvalidArgument("tensor scan: " + std::string(dtype_name(dtype)) + " is not a float type of checkpoints");
  }
}

}  // namespace anyaccel::llm
