// Implements warpgroup.h: products of matrices in the background, a warp's rows at once.
#include "simulators/engine/warpgroup.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "simulators/engine/fiber.h"
#include "simulators/engine/warp.h"

namespace sim {
namespace {

constexpr int kLanes = 32, kProductRows = 16, kProductDepth = 16, kMostColumns = 256;
constexpr std::uint32_t kFirstAddress = 256;

// Fields of a descriptor; addresses and distances in bytes.
struct Descriptor {
  std::uint32_t start, leading, stride;
  explicit Descriptor(std::uint64_t bits)
      : start(field(bits, 0)),
        leading(field(bits, 16)),
        stride(field(bits, 32)),
        swizzle(static_cast<int>(bits >> 62)) {}
  static std::uint32_t field(std::uint64_t bits, int shift) {
    return static_cast<std::uint32_t>(bits >> shift & 0x3FFF) << 4;
  }
  int swizzle;  // 1: 128 bytes
};

// The element at an address before it is swizzled: bits 7 to 9 of the address are added to bits 4 to 6, without carry.
float element(std::uint32_t address, bool f16) {
  GroupRunner& runner = GroupRunner::current();
  const std::uint32_t at = address ^ (address >> 7 & 7) << 4;
  const char* const local = static_cast<const char*>(runner.dynamic_local()) + (at - kFirstAddress);
  std::uint16_t bits;
  std::memcpy(&bits, runner.checked_local(local, 2, 2), 2);
  if (f16) return float_from_f16(bits);
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// Element (row, column) of a matrix of which 16 columns are multiplied: eight rows of 128 bytes, then the next eight.
std::uint32_t by_rows(const Descriptor& d, int row, int column) {
  return d.start + static_cast<std::uint32_t>(row / 8) * d.stride +
         static_cast<std::uint32_t>(row % 8 * 128 + column * 2);
}
// Element (row, column) of a matrix of which 16 rows are multiplied: panels of 64 columns, of each eight rows of 128 bytes.
std::uint32_t by_columns(const Descriptor& d, int row, int column) {
  return d.start + static_cast<std::uint32_t>(column / 64) * d.leading +
         static_cast<std::uint32_t>(row / 8) * d.stride + static_cast<std::uint32_t>(row % 8 * 128 + column % 64 * 2);
}

struct WarpProduct {
  WarpgroupProduct of_lane0;
  std::array<float*, kLanes> d;
  std::array<const std::uint32_t*, kLanes> a;
  int first_row;  // of the warp's, among the warpgroup's

  void run() const {
    const WarpgroupProduct& p = of_lane0;
    float a_values[kProductRows][kProductDepth], result[kProductRows][kMostColumns] = {};
    for (int r = 0; r < kProductRows; ++r) {
      for (int k = 0; k < kProductDepth; ++k) a_values[r][k] = a_value(r, k);
    }
    const Descriptor b(p.b);
    for (int n = 0; n < p.columns; ++n) {
      for (int k = 0; k < kProductDepth; ++k) {
        const float value = element(p.b_by_rows ? by_rows(b, n, k) : by_columns(b, k, n), p.f16);
        for (int r = 0; r < kProductRows; ++r) result[r][n] += a_values[r][k] * value;
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int i = 0; i < p.columns / 2; ++i) {
        const float value = result[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2];
        float& out = d[static_cast<std::size_t>(lane)][i];
        out = p.add ? out + value : value;
      }
    }
  }
  float a_value(int row, int k) const {
    if (of_lane0.a == nullptr) return element(by_rows(Descriptor(of_lane0.a_rows), first_row + row, k), of_lane0.f16);
    const std::uint32_t two = a[static_cast<std::size_t>(row % 8 * 4 + k % 8 / 2)][row / 8 + k / 8 * 2];
    const auto bits = static_cast<std::uint16_t>(k % 2 == 0 ? two : two >> 16);
    if (of_lane0.f16) return float_from_f16(bits);
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
};

void do_product(void* const* items, int) {
  WarpProduct product{*static_cast<WarpgroupProduct*>(items[0]), {}, {}, 0};
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const auto& own = *static_cast<WarpgroupProduct*>(items[lane]);
    product.d[lane] = own.d;
    product.a[lane] = own.a;
    // Whoever looks before the end of the product sees it.
    if (!own.add) std::fill_n(own.d, own.columns / 2, std::numeric_limits<float>::quiet_NaN());
  }
  GroupRunner& runner = GroupRunner::current();
  product.first_row = runner.item() / kLanes % 4 * kProductRows;
  runner.background([product] { product.run(); });
}
void do_commit(void* const*, int) { GroupRunner::current().background_commit(); }
void do_wait(void* const* items, int) { GroupRunner::current().background_wait(*static_cast<int*>(items[0])); }

}  // namespace

std::uint32_t local_address(const void* local) {
  return static_cast<std::uint32_t>(static_cast<const char*>(local) -
                                    static_cast<const char*>(GroupRunner::current().dynamic_local())) +
         kFirstAddress;
}

void warpgroup_product(const WarpgroupProduct& product) {
  WarpgroupProduct mine = product;
  GroupRunner::current().collective(&mine, &do_product);
}
void warpgroup_commit() { GroupRunner::current().collective(nullptr, &do_commit); }
void warpgroup_wait(int groups_left) { GroupRunner::current().collective(&groups_left, &do_wait); }

}  // namespace sim
