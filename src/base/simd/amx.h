// The matrix unit of Intel's processors since Sapphire Rapids (AMX): eight tile registers of at most 16 rows of 64 bytes.
//
// Two classes have the same members: Unit runs the instructions, EmulatedUnit computes the same results in C++, so that kernels
// written as templates over them are tested on every machine. A tile is named by a constant from 0 to 7. A thread's tiles
// hold data only between set_shapes() and release(); nothing that is called between them may use tiles too.
//
// Unit needs Isa::Amx (base/simd/cpu_features.h), because the kernel lets a process use tiles only after it asked. The
// functions are assembly, so that callers need no compiler flags.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace anyaccel::cpu::amx {

constexpr int kTiles = 8;
constexpr int kMostRows = 16;
constexpr int kMostRowBytes = 64;

struct TileShape {
  uint8_t rows = 0;
  uint16_t row_bytes = 0;
};

class Unit {
 public:
  // Sets the shapes of all tiles and fills these with zeros.
  static void set_shapes(const std::array<TileShape, kTiles>& shapes) noexcept {
    struct alignas(64) {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    static_assert(sizeof(config) == 64);
    for (size_t i = 0; i < kTiles; ++i) {
      config.rows[i] = shapes[i].rows;
      config.row_bytes[i] = shapes[i].row_bytes;
    }
    asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
  }
  static void release() noexcept { asm volatile("tilerelease" ::: "memory"); }

  template <int tile>
  static void zero() noexcept {
    asm volatile("tilezero %%tmm%c0" ::"i"(tile));
  }
  // Rows are `stride` bytes apart.
  template <int tile>
  static void load(const void* from, int64_t stride) noexcept {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
  }
  // The same for data that is read once: it should displace little from the caches.
  template <int tile>
  static void load_once(const void* from, int64_t stride) noexcept {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <int tile>
  static void store(void* to, int64_t stride) noexcept {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
  }

  // sum[m][n] += sum over k of a[m][k] * b[k / P][n * P + k % P], where P elements fill 32 bits. The sums are fp32, those of
  // bytes int32. Products of bf16 flush denormals to zero and round to nearest even, whatever MXCSR says.
  template <int sum, int a, int b>
  static void multiply_bf16() noexcept {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(a), "i"(b));
  }
  template <int sum, int a, int b>  // bytes with a sign
  static void multiply_i8_i8() noexcept {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(a), "i"(b));
  }
  template <int sum, int a, int b>  // those of a have a sign, those of b have none
  static void multiply_i8_u8() noexcept {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(a), "i"(b));
  }
  template <int sum, int a, int b>  // those of b have a sign, those of a have none
  static void multiply_u8_i8() noexcept {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(a), "i"(b));
  }
};

// Functions with loops are not inlined: a kernel uses them in so many places that compiling each would take seconds.
class EmulatedUnit {
 public:
  static void set_shapes(const std::array<TileShape, kTiles>& shapes) noexcept {
    state() = {};
    for (size_t i = 0; i < kTiles; ++i) state()[i].shape = shapes[i];
  }
  static void release() noexcept { state() = {}; }
  template <int tile>
  static void zero() noexcept {
    at(tile).bytes = {};
  }
  template <int tile>
  static void load(const void* from, int64_t stride) noexcept {
    load_tile(at(tile), from, stride);
  }
  template <int tile>
  static void load_once(const void* from, int64_t stride) noexcept {
    load<tile>(from, stride);
  }
  template <int tile>
  static void store(void* to, int64_t stride) noexcept {
    store_tile(at(tile), to, stride);
  }
  // In the order of the processor: the first and the second elements of the pairs are summed apart.
  template <int sum, int a, int b>
  static void multiply_bf16() noexcept {
    multiply_pairs(at(sum), at(a), at(b));
  }
  template <int sum, int a, int b>
  static void multiply_i8_i8() noexcept {
    multiply_bytes<int8_t, int8_t>(sum, a, b);
  }
  template <int sum, int a, int b>
  static void multiply_i8_u8() noexcept {
    multiply_bytes<int8_t, uint8_t>(sum, a, b);
  }
  template <int sum, int a, int b>
  static void multiply_u8_i8() noexcept {
    multiply_bytes<uint8_t, int8_t>(sum, a, b);
  }

 private:
  struct Tile {
    TileShape shape;
    std::array<uint8_t, kMostRows * kMostRowBytes> bytes{};
    uint8_t* row(int r) noexcept { return bytes.data() + r * kMostRowBytes; }
  };
  static std::array<Tile, kTiles>& state() noexcept {
    thread_local std::array<Tile, kTiles> tiles;
    return tiles;
  }
  static Tile& at(int tile) noexcept { return state()[static_cast<size_t>(tile)]; }
  [[gnu::noinline]] static void load_tile(Tile& t, const void* from, int64_t stride) noexcept {
    t.bytes = {};
    for (int r = 0; r < t.shape.rows; ++r) {
      std::memcpy(t.row(r), static_cast<const uint8_t*>(from) + r * stride, t.shape.row_bytes);
    }
  }
  [[gnu::noinline]] static void store_tile(Tile& t, void* to, int64_t stride) noexcept {
    for (int r = 0; r < t.shape.rows; ++r) {
      std::memcpy(static_cast<uint8_t*>(to) + r * stride, t.row(r), t.shape.row_bytes);
    }
  }

  static float flush(float value) noexcept {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    return (bits & 0x7f800000u) == 0 ? std::bit_cast<float>(bits & 0x80000000u) : value;
  }
  static float widen(uint16_t bf16) noexcept { return flush(std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16)); }

  template <class T>
  static T element(Tile& tile, int row, int column) noexcept {
    T value;
    std::memcpy(&value, tile.row(row) + static_cast<int>(sizeof(T)) * column, sizeof(T));
    return value;
  }
  // left * right + sum with one rounding. The product of two bf16 numbers is exact as a float unless it overflows or ends up below
  // the smallest normal number. Those are left to std::fma(), which is a call where the instruction may be missing.
  static float add_product(float left, float right, float sum) noexcept {
    const float product = left * right;
    const uint32_t exponent = std::bit_cast<uint32_t>(product) & 0x7f800000u;
    const bool exact = exponent != 0x7f800000u && (exponent != 0 || left == 0 || right == 0);
    return exact ? product + sum : std::fma(left, right, sum);
  }
  [[gnu::noinline]] static void multiply_pairs(Tile& s, Tile& x, Tile& y) noexcept {
    constexpr int kMostElements = kMostRowBytes / 2;
    const int pairs = x.shape.row_bytes / 4, columns = s.shape.row_bytes / 4;
    float left[kMostElements], right[kMostRows][kMostElements];
    for (int k = 0; k < pairs; ++k) {
      for (int n = 0; n < 2 * columns; ++n) right[k][n] = widen(element<uint16_t>(y, k, n));
    }
    for (int m = 0; m < s.shape.rows; ++m) {
      for (int k = 0; k < 2 * pairs; ++k) left[k] = widen(element<uint16_t>(x, m, k));
      for (int n = 0; n < columns; ++n) {
        float first = 0, second = 0;
        for (int k = 0; k < pairs; ++k) {
          first = flush(add_product(left[2 * k], right[k][2 * n], first));
          second = flush(add_product(left[2 * k + 1], right[k][2 * n + 1], second));
        }
        const float total = flush(flush(element<float>(s, m, n)) + flush(first + second));
        std::memcpy(s.row(m) + 4 * n, &total, sizeof(total));
      }
    }
  }
  template <class A, class B>
  [[gnu::noinline]] static void multiply_bytes(int sum, int a, int b) noexcept {
    Tile &s = at(sum), &x = at(a), &y = at(b);
    for (int m = 0; m < s.shape.rows; ++m) {
      for (int n = 0; n < s.shape.row_bytes / 4; ++n) {
        auto total = element<uint32_t>(s, m, n);  // wraps around
        for (int k = 0; k < x.shape.row_bytes / 4; ++k) {
          for (int i = 0; i < 4; ++i) {
            total += static_cast<uint32_t>(int32_t{element<A>(x, m, 4 * k + i)} * int32_t{element<B>(y, k, 4 * n + i)});
          }
        }
        std::memcpy(s.row(m) + 4 * n, &total, sizeof(total));
      }
    }
  }
};

}  // namespace anyaccel::cpu::amx
