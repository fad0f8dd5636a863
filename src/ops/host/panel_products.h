// Computes products of many fp32 matrices with the kernels of kernels/portable/dense.cl, on a device or on the host
// (placed_kernels.h), for op builders.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "anyaccel/op_builder.h"
#include "anyaccel/tensor.h"
#include "ops/host/placed_kernels.h"

namespace anyaccel::ops {

namespace kernel_arguments {
using aa_i32 = int32_t;
using aa_i64 = int64_t;
#include "kernels/portable/dense_arguments.h"
}  // namespace kernel_arguments

// The device that runs the kernels; empty for the host.
using Place = std::optional<int>;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The right operand of a product; `storage` owns its packed form.
struct Panels {
  Tensor storage;
  kernel_arguments::aa_panels where;  // of `storage`
  int64_t columns;
};

class PanelProducts {
 public:
  // `code` must include dense.cl. Null: there are no products on the host.
  PanelProducts(Accelerator& accelerator, const HostOpLibrary* code)
      : kernels_(accelerator, code, "dense.cl", {"pack_panels", "dense_product"}) {}

  // Return the number of columns of a panel and of rows that an item computes.
  int64_t panel_columns(Place place) { return AA_PANEL_COLUMNS_OF(kernels_.group_size(place)); }
  int64_t item_rows(Place place) { return AA_ITEM_ROWS_OF(kernels_.group_size(place)); }
  // Returns whether an item is a thread that computes many tiles.
  bool items_work_alone(Place place) { return kernels_.group_size(place) == 1; }

  // Packs the columns of the matrices x [.., rows, columns] (contiguous, float), or of their transposes, into panels,
  // and multiplies them by `scale`. Every `group` columns begin a new panel; 0 means that all are one group.
  Panels pack(Place place, const Tensor& x, bool transposed, int64_t group = 0, float scale = 1);

  // Matrices of fp32 numbers in a tensor, beginning at element `first`, and the strides from matrix to matrix, row to
  // row and column to column.
  struct Strided {
    const Tensor& tensor;
    int64_t first = 0, matrix = 0, row = 0, column = 1;
  };
  // Computes out[m] = a[m] b[first_b + m] or, with `add`, adds this to out[m]; a[m] is [rows, inner]. The columns of
  // out must be adjacent in memory.
  void multiply(Place place, const Strided& out, const Strided& a, const Panels& b, int64_t first_b, int64_t matrices,
                int64_t rows, int64_t inner, int64_t columns, bool add);

 private:
  PlacedKernels kernels_;
};

}  // namespace anyaccel::ops
