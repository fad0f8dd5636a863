// Checks which products the simulated cuBLASLt accepts: the rows of the data type table of cublasLtMatmul() for real
// numbers of 16 and 32 bits, regular orders, and what fits together in shapes, leading dimensions and batches.
#include <algorithm>
#include <iterator>

#include "simulators/cuda_libraries/cublaslt.h"

namespace sim_library {
namespace {

struct TypeRow {
  int compute, scale, ab, cd, bias;
};
constexpr TypeRow kTypes[] = {
    {kCompute16F, kF16, kF16, kF16, kF16},         {kCompute32F, kF32, kBf16, kBf16, kBf16},
    {kCompute32F, kF32, kF16, kF16, kF16},         {kCompute32F, kF32, kBf16, kF32, kF32},
    {kCompute32F, kF32, kF16, kF32, kF32},         {kCompute32F, kF32, kF32, kF32, kF32},
    {kCompute32FFast16F, kF32, kF32, kF32, kF32},  {kCompute32FFastBf16, kF32, kF32, kF32, kF32},
    {kCompute32FFastTf32, kF32, kF32, kF32, kF32},
};

InputRounding rounding_of(int compute) {
  switch (compute) {
    case kCompute32FFast16F: return InputRounding::f16;
    case kCompute32FFastBf16: return InputRounding::bf16;
    case kCompute32FFastTf32: return InputRounding::tf32;
    default: return InputRounding::none;
  }
}

Strided strided(const Layout& layout, bool transposed) {
  std::int64_t row_step = layout.order == 0 ? 1 : layout.leading;
  std::int64_t column_step = layout.order == 0 ? layout.leading : 1;
  if (transposed) std::swap(row_step, column_step);
  return {layout.type, row_step, column_step, layout.batch > 1 ? layout.batch_step : 0};
}

std::size_t bytes_of(const Layout& layout) {
  const std::uint64_t lines = layout.order == 0 ? layout.columns : layout.rows;
  const std::uint64_t line = layout.order == 0 ? layout.rows : layout.columns;
  const std::uint64_t elements =
      (lines - 1) * static_cast<std::uint64_t>(layout.leading) + line +
      static_cast<std::uint64_t>(layout.batch - 1) * static_cast<std::uint64_t>(layout.batch_step);
  return elements * size_of_type(layout.type);
}

// Null when the layout alone makes sense.
const char* layout_problem(const Layout& layout) {
  if (size_of_type(layout.type) == 0) return "a matrix has a type that the simulator does not know";
  if (layout.order != 0 && layout.order != 1) return "a matrix is neither in column nor in row order";
  if (layout.rows == 0 || layout.columns == 0) return "a matrix has no rows or no columns";
  const std::uint64_t line = layout.order == 0 ? layout.rows : layout.columns;
  if (layout.leading < 0 || static_cast<std::uint64_t>(layout.leading) < line) {
    return "a leading dimension is smaller than the matrix";
  }
  if (layout.batch < 1) return "a batch count is below 1";
  if (layout.batch > 1 && layout.batch_step < 0) return "a batch stride is negative";
  // The library takes it, and kernels for Hopper, whose bulk copies have strides of 40 bits, then access other memory (an H200).
  if (layout.batch > 1 && static_cast<std::uint64_t>(layout.batch_step) * size_of_type(layout.type) >> 40 != 0) {
    return "a batch stride of a TiB or more";
  }
  return nullptr;
}

void mix(std::uint64_t* hash, std::uint64_t value) {
  *hash = (*hash ^ value) * 0x100000001b3;
  *hash ^= *hash >> 29;
}

}  // namespace

cublasStatus_t check_problem(const MatmulDesc& desc, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
                             Problem* problem, const char** why) {
  const auto refuse = [&](cublasStatus_t status, const char* sentence) {
    *why = sentence;
    return status;
  };
  for (const Layout* layout : {&a, &b, &c, &d}) {
    if (const char* wrong = layout_problem(*layout)) return refuse(CUBLAS_STATUS_INVALID_VALUE, wrong);
  }
  for (const std::int32_t transpose : {desc.transpose_a, desc.transpose_b}) {
    if (transpose < 0 || transpose > 2)
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "a transpose is no cublasOperation_t");
  }
  if (desc.transpose_c != 0) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "C cannot be transposed");
  if (desc.pointer_mode != 0)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "the simulator takes alpha and beta from the host");

  Product& product = problem->product;
  const bool at = desc.transpose_a != 0, bt = desc.transpose_b != 0;
  product.m = static_cast<std::int64_t>(at ? a.columns : a.rows);
  product.k = static_cast<std::int64_t>(at ? a.rows : a.columns);
  product.n = static_cast<std::int64_t>(bt ? b.rows : b.columns);
  if (static_cast<std::int64_t>(bt ? b.columns : b.rows) != product.k) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the inner dimensions of A and B differ");
  }
  for (const Layout* layout : {&c, &d}) {
    if (static_cast<std::int64_t>(layout->rows) != product.m ||
        static_cast<std::int64_t>(layout->columns) != product.n) {
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "C or D has another shape than the product");
    }
  }
  for (const Layout* layout : {&b, &c, &d}) {
    if (layout->batch != a.batch) return refuse(CUBLAS_STATUS_INVALID_VALUE, "the batch counts differ");
  }
  if (c.order != d.order) return refuse(CUBLAS_STATUS_INVALID_VALUE, "C and D have different orders");
  if (d.batch > 1 && static_cast<std::size_t>(d.batch_step) * size_of_type(d.type) <
                         bytes_of(Layout{d.type, d.order, d.rows, d.columns, d.leading, 1, 0})) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the matrices of D's batch overlap");
  }

  const int compute = desc.compute == kCompute32FPedantic ? static_cast<int>(kCompute32F) : desc.compute;
  const TypeRow* row = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeRow& t) {
    return t.compute == compute && t.scale == desc.scale && t.ab == a.type && t.ab == b.type && t.cd == c.type &&
           t.cd == d.type;
  });
  if (row == std::end(kTypes)) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "these types of A, B, C, D, compute and scale do not go together");
  }
  const std::uint32_t activation = desc.epilogue & ~static_cast<std::uint32_t>(kEpilogueBias);
  product.bias = (desc.epilogue & kEpilogueBias) != 0;
  if (desc.epilogue == kEpilogueDefault || desc.epilogue == kEpilogueBias) {
    product.activation = Activation::none;
  } else if (activation == kEpilogueRelu) {
    product.activation = Activation::relu;
  } else if (activation == kEpilogueGelu) {
    product.activation = Activation::gelu;
  } else {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "the simulator has no such epilogue");
  }
  if (product.bias && desc.bias_type != -1 && desc.bias_type != row->bias) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "the bias has another type than D");
  }
  // D in rows would have its bias along columns.
  if (product.bias && d.order != 0) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "a bias wants D in column order");
  product.bias_type = row->bias;
  product.bias_batch_step = desc.bias_batch_step;
  if (product.bias && desc.bias_batch_step != 0 && desc.bias_batch_step < product.m) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the batch stride of the bias is smaller than the bias");
  }

  product.batch = a.batch;
  product.rounding = rounding_of(compute);
  product.a = strided(a, at);
  product.b = strided(b, bt);
  product.c = strided(c, false);
  product.d = strided(d, false);
  problem->a_bytes = bytes_of(a);
  problem->b_bytes = bytes_of(b);
  problem->c_bytes = bytes_of(c);
  problem->d_bytes = bytes_of(d);
  const auto one = [](Layout layout) {
    layout.batch = 1;
    return bytes_of(layout);
  };
  problem->a_one_bytes = one(a);
  problem->d_one_bytes = one(d);
  const auto has_gaps = [&](const Layout& layout) {
    return layout.batch > 1 && static_cast<std::size_t>(layout.batch_step) * size_of_type(layout.type) > one(layout);
  };
  problem->apart = has_gaps(a) || has_gaps(d);
  problem->bias_bytes =
      static_cast<std::size_t>(product.m + (product.batch - 1) * product.bias_batch_step) * size_of_type(row->bias);
  problem->hash = 0xcbf29ce484222325;
  for (const std::int64_t value :
       {product.m, product.n, product.k, product.batch, std::int64_t{desc.compute}, std::int64_t{a.type},
        std::int64_t{d.type}, std::int64_t{desc.transpose_a}, std::int64_t{desc.transpose_b},
        std::int64_t{desc.epilogue}, std::int64_t{a.order}, std::int64_t{b.order}, std::int64_t{d.order}}) {
    mix(&problem->hash, static_cast<std::uint64_t>(value));
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace sim_library
