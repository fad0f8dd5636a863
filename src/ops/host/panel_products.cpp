// Implements panel_products.h, products of many fp32 matrices.
#include "ops/host/panel_products.h"

#include <algorithm>

namespace anyaccel::ops {
namespace {

enum DenseKernel : size_t { pack_panels, dense_product };

}  // namespace

Panels PanelProducts::pack(Place place, const Tensor& x, bool transposed, int64_t group, float scale) {
  const int64_t width = panel_columns(place);
  const int64_t rows = x.size(transposed ? -1 : -2), columns = x.size(transposed ? -2 : -1);
  if (group == 0 && scale == 1 && !transposed && x.dtype() == DType::F32 && columns % width == 0) {
    return {x, {rows * columns, width, columns}, columns};
  }
  if (group == 0) group = std::max<int64_t>(columns, 1);
  kernel_arguments::aa_pack p{};
  p.matrices = rows * columns == 0 ? 0 : x.numel() / (rows * columns);
  p.rows = rows;
  p.columns = columns;
  p.group = group;
  p.panels_per_group = ceil_div(group, width);
  p.panels = ceil_div(columns, group) * p.panels_per_group;
  p.in_matrix = rows * columns;
  p.in_row = transposed ? 1 : columns;
  p.in_column = transposed ? rows : 1;
  p.part = items_work_alone(place) ? 256 : 16;
  p.in_dtype = static_cast<int32_t>(x.dtype());
  p.scale = scale;
  const Tensor out = Tensor::empty({p.matrices * p.panels * rows * width}, DType::F32, x.device());
  kernels_.items(pack_panels, place, p.matrices * p.panels * ceil_div(rows, p.part), out.data(),
                 static_cast<const void*>(x.data()), p);
  return {out, {p.panels * rows * width, rows * width, width}, columns};
}

void PanelProducts::multiply(Place place, const Strided& out, const Strided& a, const Panels& b, int64_t first_b,
                             int64_t matrices, int64_t rows, int64_t inner, int64_t columns, bool add) {
  kernel_arguments::aa_product s{};
  s.matrices = matrices;
  s.rows = rows;
  s.inner = inner;
  s.columns = columns;
  s.a_matrix = a.matrix;
  s.a_row = a.row;
  s.a_inner = a.column;
  s.out_matrix = out.matrix;
  s.out_row = out.row;
  s.split = items_work_alone(place) ? 1 : ceil_div(columns, panel_columns(place));
  s.b = b.where;
  s.add = add ? 1 : 0;
  const auto from = [](const Tensor& tensor, int64_t first) -> const void* { return tensor.data_as<float>() + first; };
  kernels_.items(dense_product, place, matrices * ceil_div(rows, item_rows(place)) * s.split,
                 static_cast<void*>(out.tensor.data_as<float>() + out.first), from(a.tensor, a.first),
                 from(b.storage, first_b * b.where.matrix), s);
}

}  // namespace anyaccel::ops
