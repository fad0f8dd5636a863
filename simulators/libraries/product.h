// Computes the matrix product of the simulated cuBLASLt: plain loops, sums in fp32 in the order of k, one rounding to
// the type of D.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sim_library {

// Numbers of cudaDataType.
enum DataType : int { kF32 = 0, kF16 = 2, kBf16 = 14 };
std::size_t size_of_type(int type);  // 0: unknown

float load_number(const char* at, int type);
void store_number(char* at, int type, float value);

// The precision to which inputs are rounded before they are multiplied (compute types of fp32 inputs).
enum class InputRounding { none, tf32, bf16, f16 };
enum class Activation { none, relu, gelu };

// One matrix of a batch: element (row, column) at row * row_step + column * column_step elements.
struct Strided {
  int type;
  std::int64_t row_step, column_step, batch_step;
};

// d[m x n] = activation(alpha * a[m x k] * b[k x n] + beta * c + bias), transposes already in the steps.
struct Product {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  Strided a{}, b{}, c{}, d{};
  float alpha = 1, beta = 0;
  InputRounding rounding = InputRounding::none;
  Activation activation = Activation::none;
  bool bias = false;
  int bias_type = kF32;
  std::int64_t bias_batch_step = 0;
};
// c may be null when beta is 0; bias may be null when there is none.
void compute(const Product& product, const char* a, const char* b, const char* c, const char* bias, char* d);

}  // namespace sim_library
