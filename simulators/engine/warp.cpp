// Collectives of a warp: the last item that arrives does the work for all.
#include "simulators/engine/warp.h"

#include <cmath>
#include <cstring>

#include "simulators/engine/fiber.h"

namespace sim {
namespace {

constexpr int kWarp = 32;

float as_float(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
std::uint32_t as_bits(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

struct Shuffle {
  std::uint32_t value;
  int from;
};

void do_shuffle(void* const* items, int count) {
  std::uint32_t values[kWarp];
  for (int i = 0; i < count; ++i) values[i] = static_cast<Shuffle*>(items[i])->value;
  for (int i = 0; i < count; ++i) {
    Shuffle& s = *static_cast<Shuffle*>(items[i]);
    s.value = values[s.from & (kWarp - 1)];
  }
}

void do_nothing(void* const*, int) {}

struct LoadMatrix {
  const char* row;
  std::uint32_t* r;
};

void do_ldmatrix(void* const* items, int) {
  for (int lane = 0; lane < kWarp; ++lane) {
    std::uint32_t* const r = static_cast<LoadMatrix*>(items[lane])->r;
    for (int m = 0; m < 4; ++m) {
      std::memcpy(&r[m], static_cast<LoadMatrix*>(items[8 * m + lane / 4])->row + 4 * (lane % 4), 4);
    }
  }
}

void do_ldmatrix_transposed(void* const* items, int) {
  for (int lane = 0; lane < kWarp; ++lane) {
    std::uint32_t* const r = static_cast<LoadMatrix*>(items[lane])->r;
    for (int m = 0; m < 4; ++m) {
      std::uint16_t pair[2];
      for (int k = 0; k < 2; ++k) {
        std::memcpy(&pair[k], static_cast<LoadMatrix*>(items[8 * m + 2 * (lane % 4) + k])->row + 2 * (lane / 4), 2);
      }
      std::memcpy(&r[m], pair, 4);
    }
  }
}

struct Product {
  float* d;
  const std::uint32_t* a;
  std::uint32_t b[2];
};

template <float (*kConvert)(std::uint16_t)>
void do_mma(void* const* items, int) {
  float a[16][16], b[16][8], d[16][8];
  for (int lane = 0; lane < kWarp; ++lane) {
    const Product& p = *static_cast<Product*>(items[lane]);
    const int row = lane / 4, pair = 2 * (lane % 4);
    for (int k = 0; k < 2; ++k) {  // low half, high half
      const auto half = [k](std::uint32_t v) { return kConvert(static_cast<std::uint16_t>(v >> (16 * k))); };
      a[row][pair + k] = half(p.a[0]);
      a[row + 8][pair + k] = half(p.a[1]);
      a[row][pair + 8 + k] = half(p.a[2]);
      a[row + 8][pair + 8 + k] = half(p.a[3]);
      b[pair + k][row] = half(p.b[0]);
      b[pair + 8 + k][row] = half(p.b[1]);
      d[row][pair + k] = p.d[k];
      d[row + 8][pair + k] = p.d[2 + k];
    }
  }
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) {
      for (int j = 0; j < 8; ++j) d[i][j] += a[i][k] * b[k][j];
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    float* const out = static_cast<Product*>(items[lane])->d;
    const int row = lane / 4, pair = 2 * (lane % 4);
    for (int k = 0; k < 2; ++k) {
      out[k] = d[row][pair + k];
      out[2 + k] = d[row + 8][pair + k];
    }
  }
}

float float_from_bf16(std::uint16_t bits) { return as_float(static_cast<std::uint32_t>(bits) << 16); }

}  // namespace

float float_from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return as_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  // The exponent's bias differs by 112; subnormal halves are normal floats and come out right too.
  return as_float(sign | as_bits(as_float(rest << 13) * 0x1p112f));
}

std::uint16_t f16_from_float(float x) {
  if (std::isnan(x)) return 0x7fff;
  const auto half = static_cast<_Float16>(x);
  std::uint16_t bits;
  std::memcpy(&bits, &half, sizeof bits);
  return bits;
}

std::uint16_t bf16_from_float(float x) {
  if (std::isnan(x)) return 0x7fff;
  const std::uint32_t bits = as_bits(x);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

std::uint32_t warp_shuffle(std::uint32_t value, int from_lane) {
  Shuffle mine = {value, from_lane};
  GroupRunner::current().collective(&mine, &do_shuffle);
  return mine.value;
}

void warp_sync() { GroupRunner::current().collective(nullptr, &do_nothing); }

void warp_ldmatrix(std::uint32_t (&r)[4], const void* row, bool transposed) {
  GroupRunner& runner = GroupRunner::current();
  LoadMatrix mine = {static_cast<const char*>(runner.checked_local(row, 16, 16)), r};
  runner.collective(&mine, transposed ? &do_ldmatrix_transposed : &do_ldmatrix);
}

void warp_mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  Product mine = {d, a, {b0, b1}};
  GroupRunner::current().collective(&mine, &do_mma<&float_from_bf16>);
}

void warp_mma_f16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  Product mine = {d, a, {b0, b1}};
  GroupRunner::current().collective(&mine, &do_mma<&float_from_f16>);
}

}  // namespace sim
