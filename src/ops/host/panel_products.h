// Products of many fp32 matrices by the kernels of kernels/portable/dense.cl, on a device or on the host (placed_kernels.h), for
// op builders.
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

// The device that runs the kernels; nothing: the host.
using Place = std::optional<int>;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The right operand of a product; `storage` keeps what was made for it.
struct Panels {
  Tensor storage;
  kernel_arguments::aa_panels where;  // of `storage`
  int64_t columns;
};

class PanelProducts {
 public:
  // `code` includes dense.cl.
  PanelProducts(Accelerator& accelerator, const HostOpLibrary& code)
      : kernels_(accelerator, code, "dense.cl", {"pack_panels", "dense_product"}) {}

  // Columns of a panel, and rows of a tile: what an item keeps in registers.
  int64_t panel_columns(Place place) { return AA_PANEL_COLUMNS_OF(kernels_.group_size(place)); }
  int64_t tile_rows(Place place) { return AA_TILE_ROWS_OF(kernels_.group_size(place)); }
  // True where an item is a thread that does many tiles.
  bool items_work_alone(Place place) { return kernels_.group_size(place) == 1; }

  // The columns of the matrices x [.., rows, columns] (contiguous, float), or of their transposes, in panels, times `scale`.
  // `group`: columns that begin a panel of their own; 0: all are one group.
  Panels pack(Place place, const Tensor& x, bool transposed, int64_t group = 0, float scale = 1);

  // A matrix of fp32 numbers in a tensor, from `first` elements on; from matrix to matrix, row to row, column to column.
  struct Strided {
    const Tensor& tensor;
    int64_t first = 0, matrix = 0, row = 0, column = 1;
  };
  // out[m] = a[m] b[first_b + m], or, with `add`, plus what out holds; a[m] is [rows, inner]. out's columns are neighbours.
  void multiply(Place place, const Strided& out, const Strided& a, const Panels& b, int64_t first_b, int64_t matrices,
                int64_t rows, int64_t inner, int64_t columns, bool add);

 private:
  PlacedKernels kernels_;
};

}  // namespace anyaccel::ops
