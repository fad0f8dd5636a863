// Implements anyaccel/ops/sparse_attn.h: products, softmax and attention over the blocks of a layout.
#include "anyaccel/ops/sparse_attn.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "anyaccel/error.h"
#include "ops/builders.h"
#include "ops/host/panel_products.h"
#include "ops/host/placed_kernels.h"
#include "ops/host/quant_support.h"
#include "ops/sparse/block_lists.h"

namespace anyaccel::ops {
namespace {

using kernel_arguments::aa_i32, kernel_arguments::aa_i64, kernel_arguments::aa_panels;
#include "kernels/portable/block_sparse_arguments.h"

enum SparseKernel : size_t { sparse_sdd, sparse_dsd, sparse_softmax, sparse_softmax_backward };

// The number of scores that exist at a time if the caller does not need them: about as many as a processor's caches
// hold, and a small part of a device's memory.
constexpr int64_t host_scores = int64_t{1} << 18, device_scores = int64_t{1} << 24;
// The number of scores that the third-level cache holds besides their weights.
constexpr int64_t cached_scores = int64_t{1} << 22;

void check_same_device(const char* op, std::initializer_list<const Tensor*> tensors) {
  const Tensor& first = **tensors.begin();
  for (const Tensor* tensor : tensors) {
    if (*tensor && tensor->device() != first.device()) {
      refuse_call(op, "Inputs must be on the same device, and are " + place_text(first.device()) + " and " +
                          place_text(tensor->device()) + "; Tensor::to() copies them");
    }
  }
}

void check_same_dtype(const char* op, const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype()) {
    refuse_call(op, "Inputs must be the same dtype, and are " + tensor_text(a) + " and " + tensor_text(b));
  }
}

void check_4d(const char* op, const char* name, const Tensor& tensor, const char* dims) {
  check_float(op, name, tensor);
  if (tensor.ndim() != 4) refuse_call(op, std::string(name) + " must be " + dims + ", and is " + tensor_text(tensor));
}

void check_size(const char* op, const char* name, const Tensor& tensor, int dim, int64_t expected, const char* what) {
  if (tensor.size(dim) != expected) {
    refuse_call(op, std::string(name) + " is " + tensor_text(tensor) + "; its dimension " + std::to_string(dim) +
                        " must be " + std::to_string(expected) + ", " + what);
  }
}

void check_shape(const char* op, const char* name, const Tensor& tensor, const Shape& shape) {
  if (tensor.shape() != shape) {
    refuse_call(op, std::string(name) + " must be " + shape.to_string() + ", and is " + tensor_text(tensor));
  }
}

int32_t mask_mode(const char* op, const char* name, const std::string& mode) {
  if (mode == "add") return AA_MASK_ADD;
  if (mode == "mul") return AA_MASK_MUL;
  refuse_call(op, std::string(name) + " must be \"add\" or \"mul\", and is \"" + mode + "\"");
}

}  // namespace

struct SparseAttn::Impl {
  Accelerator& accelerator;
  std::shared_ptr<HostOpLibrary> code;
  PanelProducts dense;
  PlacedKernels kernels;
  void (*rows_backward)(int64_t count, const void* const* arguments);  // sparse_rows_backward of the host

  Impl(Accelerator& active, std::shared_ptr<HostOpLibrary> loaded)
      : accelerator(active),
        code(std::move(loaded)),
        dense(active, code.get()),
        kernels(active, code.get(), "block_sparse.cl",
                {"sparse_sdd", "sparse_dsd", "sparse_softmax", "sparse_softmax_backward"}),
        rows_backward(code->function<void(int64_t, const void* const*)>("run_sparse_rows_backward")) {}

  // ---- the steps, for dense tensors at `place` that are fp32 or have their own dtype ----

  // out [Z, count, block, block] = blocks first .. first + count - 1 of op(a) b.
  void sdd(Place place, const Tensor& out, const Tensor& a, bool trans_a, const Panels& b, const Layout& layout,
           const PlacedLists& lists, int64_t first, int64_t count) {
    const aa_sparse_sdd s = blocks_of_product(place, a, trans_a, b, layout, first, count);
    kernels.items(sparse_sdd, place, s.batch * count * s.split, out.data(), static_cast<const void*>(a.data()),
                  static_cast<const void*>(b.storage.data()), static_cast<const void*>(lists.places.data()), s);
  }
  aa_sparse_sdd blocks_of_product(Place place, const Tensor& a, bool trans_a, const Panels& b, const Layout& layout,
                                  int64_t first, int64_t count) {
    aa_sparse_sdd s{};
    const int64_t columns = a.size(3);
    s.batch = a.size(0);
    s.heads = a.size(1);
    s.first = first;
    s.count = count;
    s.block = layout.block();
    s.inner = a.size(trans_a ? 2 : 3);
    s.a_matrix = a.size(2) * columns;
    s.a_row = trans_a ? 1 : columns;
    s.a_inner = trans_a ? columns : 1;
    s.panels_per_block = ceil_div(s.block, dense.panel_columns(place));
    s.b = b.where;
    s.split = dense.items_work_alone(place) ? 1 : ceil_div(s.block, dense.item_rows(place)) * s.panels_per_block;
    return s;
  }

  // The rows of blocks that a product or a softmax processes: lists first_list .. first_list + list_count - 1 of a
  // sparse matrix that holds `block_count` blocks, beginning with first_block.
  struct Part {
    int64_t first_list = 0, list_count = 0, first_block = 0, block_count = 0;
  };

  // out [Z, H, M, N] = op(a) b with a sparse `a`; only the rows of the part.
  void dsd(Place place, const Tensor& out, const Tensor& a, bool trans_a, const Panels& b, const Layout& layout,
           const PlacedLists& lists, const Part& part) {
    const aa_sparse_dsd s = rows_of_product(place, out, trans_a, b, layout, part);
    const PlacedLists::Pair& pair = trans_a ? lists.columns : lists.rows;
    kernels.items(sparse_dsd, place, s.batch * s.list_count * ceil_div(s.block, dense.item_rows(place)) * s.split,
                  out.data(), static_cast<const void*>(a.data()), static_cast<const void*>(b.storage.data()),
                  static_cast<const void*>(pair.begins.data()), static_cast<const void*>(pair.entries.data()), s);
  }
  aa_sparse_dsd rows_of_product(Place place, const Tensor& out, bool trans_a, const Panels& b, const Layout& layout,
                                const Part& part) {
    aa_sparse_dsd s{};
    s.batch = out.size(0);
    s.heads = out.size(1);
    s.lists_per_head = trans_a ? layout.columns() : layout.rows();
    s.first_list = part.first_list;
    s.list_count = part.list_count;
    s.first_block = part.first_block;
    s.block_count = part.block_count;
    s.block = layout.block();
    s.columns = out.size(3);
    s.a_row = trans_a ? 1 : s.block;
    s.a_inner = trans_a ? s.block : 1;
    s.out_matrix = out.size(2) * out.size(3);
    s.b = b.where;
    s.split = dense.items_work_alone(place) ? 1 : ceil_div(s.columns, dense.panel_columns(place));
    return s;
  }

  aa_sparse_rows rows_of_part(int64_t batch, int64_t heads, const Layout& layout, const Part& part, float scale) {
    aa_sparse_rows s{};
    s.batch = batch;
    s.heads = heads;
    s.lists_per_head = layout.rows();
    s.first_list = part.first_list;
    s.list_count = part.list_count;
    s.first_block = part.first_block;
    s.block_count = part.block_count;
    s.block = layout.block();
    s.rows = layout.rows() * s.block;
    s.columns = layout.columns() * s.block;
    s.scale = scale;
    return s;
  }

  struct Masks {
    Tensor rpe, keys, pairs;  // absent ones are empty
    int32_t key_mode = AA_MASK_NONE, mode = AA_MASK_NONE;
  };
  void softmax_rows(Place place, const Tensor& x, aa_sparse_rows s, const PlacedLists& lists, const Masks& masks) {
    const auto address = [](const Tensor& t) -> const void* { return t ? t.data() : nullptr; };
    for (const Tensor* mask : {&masks.rpe, &masks.keys, &masks.pairs}) {
      if (*mask) s.dtype = static_cast<int32_t>(mask->dtype());
    }
    s.has_rpe = masks.rpe ? 1 : 0;
    s.key_mask_mode = masks.keys ? masks.key_mode : AA_MASK_NONE;
    s.mask_mode = masks.pairs ? masks.mode : AA_MASK_NONE;
    kernels.groups(sparse_softmax, place, s.batch * s.list_count * s.block, x.data(), address(masks.rpe),
                   address(masks.keys), address(masks.pairs), address(lists.rows.begins), address(lists.rows.entries),
                   s);
  }
  void softmax_gradient(Place place, const Tensor& dy, const Tensor& y, const aa_sparse_rows& s,
                        const PlacedLists& lists) {
    kernels.groups(sparse_softmax_backward, place, s.batch * s.list_count * s.block, dy.data(),
                   static_cast<const void*>(y.data()), static_cast<const void*>(lists.rows.begins.data()),
                   static_cast<const void*>(lists.rows.entries.data()), s);
  }

  // The gradients of self-attention on the host, into dense fp32 tensors: of some heads after those of the heads before them, so
  // that the third-level cache still has the gradients of their scores when these are read by columns.
  void gradients_on_host(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout, const Tensor& q,
                         const Tensor& k, const Tensor& v, const Tensor& weights, const Layout& layout,
                         const PlacedLists& placed, const Layout::ForHeads& lists) {
    const Place host;
    const int64_t batch = q.size(0), heads = q.size(1), block = layout.block(), all_blocks = lists.blocks;
    const Panels queries = dense.pack(host, q, false), keys = dense.pack(host, k, false),
                 values = dense.pack(host, v, true, block), gradients = dense.pack(host, dout, false);
    const Tensor wide_dout = dout.to(DType::F32);
    const float scale = 1.0f / std::sqrt(static_cast<float>(q.size(3)));
    const auto scores_of = [&](int64_t head, int64_t end) {
      const auto begin_of = [&](int64_t h) { return lists.rows.begins[static_cast<size_t>(h * layout.rows())]; };
      return Part{head * layout.rows(), (end - head) * layout.rows(), begin_of(head), begin_of(end) - begin_of(head)};
    };
    const auto number_of = [&](const Part& part) { return batch * part.block_count * block * block; };
    Tensor changes;  // the gradients of the scores
    for (int64_t head = 0; head < heads;) {
      int64_t end = head + 1;
      while (end < heads && number_of(scores_of(head, end + 1)) <= cached_scores) ++end;
      const Part rows = scores_of(head, end);
      const Part columns{head * layout.columns(), (end - head) * layout.columns(), rows.first_block, rows.block_count};
      head = end;
      if (!changes || changes.numel() < number_of(rows)) {
        changes = Tensor::empty({number_of(rows)}, DType::F32, q.device());
      }
      const aa_sparse_sdd dy = blocks_of_product(host, wide_dout, false, values, layout, 0, all_blocks);
      const aa_sparse_dsd product = rows_of_product(host, dq, false, keys, layout, rows);
      const aa_sparse_rows s = rows_of_part(batch, heads, layout, rows, scale);
      void *const changed = changes.data(), *const to = dq.data();
      const void *const y = weights.data(), *const a = wide_dout.data(), *const b = values.storage.data(),
                        *const right = keys.storage.data(), *const begins = placed.rows.begins.data(),
                        *const entries = placed.rows.entries.data();
      const std::array<const void*, 12> arguments{&changed, &y,     &all_blocks, &a,      &b,       &dy,
                                                  &to,      &right, &product,    &begins, &entries, &s};
      rows_backward(batch * rows.list_count, arguments.data());
      dsd(host, dk, changes, true, queries, layout, placed, columns);
      const Part of_all{columns.first_list, columns.list_count, 0, all_blocks};
      dsd(host, dv, weights, true, gradients, layout, placed, of_all);
    }
  }

  static Part whole(const Layout::ForHeads& lists, const BlockLists& which) {
    return {0, static_cast<int64_t>(which.begins.size()) - 1, 0, lists.blocks};
  }

  // ---- products of whole tensors ----

  // Returns c = op(x) op(y), where `sparse` names the sparse matrix ('c', 'x' or 'y'); checks that the arguments match.
  Tensor product(const char* op, char sparse, const Tensor& x, const Tensor& y, bool trans_x, bool trans_y,
                 Layout& layout) {
    check_4d(op, "a", x, sparse == 'x' ? "[Z, blocks, block, block]" : "[Z, H, rows, columns]");
    check_4d(op, "b", y, sparse == 'y' ? "[Z, blocks, block, block]" : "[Z, H, rows, columns]");
    check_same_device(op, {&x, &y});
    check_same_dtype(op, x, y);
    if (x.size(0) != y.size(0)) {
      refuse_call(op,
                  "a and b must have the same first dimension, and are " + tensor_text(x) + " and " + tensor_text(y));
    }
    const Tensor& whole_one = sparse == 'x' ? y : x;
    const int64_t heads = whole_one.size(1);
    if (layout.heads() != 0 && heads != layout.heads()) {
      refuse_call(op, "the layout has " + std::to_string(layout.heads()) + " heads, and " +
                          (sparse == 'x' ? "b" : "a") + " is " + tensor_text(whole_one));
    }
    const Layout::ForHeads& lists = layout.for_heads(heads);
    const int64_t block = layout.block();
    const auto rows_of = [](const Tensor& t, bool trans) { return t.size(trans ? 3 : 2); };
    const auto columns_of = [](const Tensor& t, bool trans) { return t.size(trans ? 2 : 3); };
    if (sparse == 'c') {
      check_size(op, "b", y, 1, heads, "a's heads");
      check_size(op, "a", x, trans_x ? 3 : 2, layout.rows() * block,
                 "the layout's rows of blocks times the block size");
      check_size(op, "b", y, trans_y ? 2 : 3, layout.columns() * block,
                 "the layout's columns of blocks times the block size");
      check_size(op, "b", y, trans_y ? 3 : 2, columns_of(x, trans_x), "the inner size of a");
      const Tensor c = Tensor::empty({x.size(0), lists.blocks, block, block}, x.dtype(), x.device());
      run(op, {{&x, HostUse::In}, {&y, HostUse::In}, {&c, HostUse::Out}}, [&](std::span<Tensor> t, Place place) {
        const PlacedLists& placed = layout.placed(heads, t[0].device());
        const Panels panels = dense.pack(place, t[1], trans_y, block);
        into(t[2], t[2].shape(), [&](const Tensor& out) {
          sdd(place, out, t[0].to(DType::F32), trans_x, panels, layout, placed, 0, lists.blocks);
        });
      });
      return c;
    }
    // The sparse operand must be on the left: for op(x) op(y) with a sparse y, this computes op(y)^T op(x)^T, the
    // transpose of the result.
    const bool from_right = sparse == 'y';
    const Tensor& blocks = from_right ? y : x;
    const char* sparse_name = from_right ? "b" : "a";
    check_size(op, sparse_name, blocks, 1, lists.blocks, "the layout's number of blocks");
    check_size(op, sparse_name, blocks, 2, block, "the block size");
    check_size(op, sparse_name, blocks, 3, block, "the block size");
    const bool trans_sparse = from_right ? !trans_y : trans_x;
    const bool trans_dense = from_right ? !trans_x : trans_y;
    const int64_t rows = (trans_sparse ? layout.columns() : layout.rows()) * block;
    const int64_t inner = (trans_sparse ? layout.rows() : layout.columns()) * block;
    check_size(op, from_right ? "a" : "b", whole_one, trans_dense ? 3 : 2, inner,
               "the inner size of the sparse matrix");
    const int64_t columns = columns_of(whole_one, trans_dense);
    const Tensor c = from_right ? Tensor::empty({x.size(0), heads, columns, rows}, x.dtype(), x.device())
                                : Tensor::empty({x.size(0), heads, rows, columns}, x.dtype(), x.device());
    run(op, {{&blocks, HostUse::In}, {&whole_one, HostUse::In}, {&c, HostUse::Out}},
        [&](std::span<Tensor> t, Place place) {
          const PlacedLists& placed = layout.placed(heads, t[0].device());
          const Panels panels = dense.pack(place, t[1], trans_dense);
          const Tensor result = from_right ? t[2].transpose(2, 3) : t[2];
          into(result, Shape{x.size(0), heads, rows, columns}, [&](const Tensor& out) {
            dsd(place, out, t[0].to(DType::F32), trans_sparse, panels, layout, placed,
                whole(lists, trans_sparse ? lists.columns : lists.rows));
          });
        });
    static_cast<void>(rows_of);
    return c;
  }

  // Lets `fill` write a dense fp32 tensor of that shape, and stores it in `result`.
  static void into(const Tensor& result, const Shape& shape, const std::function<void(const Tensor&)>& fill) {
    if (result.dtype() == DType::F32 && result.is_contiguous()) return fill(result);
    const Tensor wide = Tensor::empty(shape, DType::F32, result.device());
    fill(wide);
    result.copy_from(wide);
  }

  void run(const char* op, std::initializer_list<HostTensor> tensors,
           const std::function<void(std::span<Tensor>, Place)>& body) {
    run_dense(accelerator, kernels.on_devices(), op, tensors, body);
  }
};

SparseAttn::SparseAttn(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code)
    : impl_(std::make_shared<Impl>(accelerator, std::move(code))) {}
SparseAttn::~SparseAttn() = default;

// ---- MatMul ---------------------------------------------------------------------------------------------------------

SparseAttn::MatMul SparseAttn::matmul(const Tensor& layout, int64_t block, const std::string& mode, bool trans_a,
                                      bool trans_b) const {
  if (mode != "sdd" && mode != "dsd" && mode != "dds") {
    refuse_call("matmul", "mode must be \"sdd\", \"dsd\" or \"dds\", and is \"" + mode + "\"");
  }
  MatMul made;
  made.impl_ = impl_;
  made.layout_ = std::make_shared<Layout>("matmul", layout, block);
  made.c_ = mode[0];
  made.a_ = mode[1];
  made.b_ = mode[2];
  made.trans_a_ = trans_a;
  made.trans_b_ = trans_b;
  return made;
}

Tensor SparseAttn::MatMul::operator()(const Tensor& a, const Tensor& b) const {
  return impl_->product("matmul", c_ == 's' ? 'c' : a_ == 's' ? 'x' : 'y', a, b, trans_a_, trans_b_, *layout_);
}

SparseAttn::MatMul::Gradients SparseAttn::MatMul::backward(const Tensor& a, const Tensor& b, const Tensor& dc) const {
  const char* op = "matmul's backward";
  // The gradient of op(a) is dc op(b)^T, and that of op(b) is op(a)^T dc; the gradient of a transposed operand is the
  // transpose.
  const auto product = [&](const Tensor& x, char x_kind, bool trans_x, const Tensor& y, char y_kind, bool trans_y) {
    return impl_->product(op, x_kind == 's' ? 'x' : y_kind == 's' ? 'y' : 'c', x, y, trans_x, trans_y, *layout_);
  };
  const Tensor da = trans_a_ ? product(b, b_, trans_b_, dc, c_, true) : product(dc, c_, false, b, b_, !trans_b_);
  const Tensor db = trans_b_ ? product(dc, c_, true, a, a_, trans_a_) : product(a, a_, !trans_a_, dc, c_, false);
  return {da, db};
}

// ---- Softmax --------------------------------------------------------------------------------------------------------

SparseAttn::Softmax SparseAttn::softmax(const Tensor& layout, int64_t block) const {
  Softmax made;
  made.impl_ = impl_;
  made.layout_ = std::make_shared<Layout>("softmax", layout, block);
  return made;
}

namespace {

// Returns the number of heads of a sparse tensor with this layout.
int64_t heads_of_blocks(const char* op, const char* name, const Tensor& x, const SparseAttn::Layout& layout) {
  check_4d(op, name, x, "[Z, blocks, block, block]");
  const int64_t blocks = layout.blocks();
  const bool fits = layout.heads() != 0 ? x.size(1) == blocks : blocks == 0 ? x.size(1) == 0 : x.size(1) % blocks == 0;
  if (!fits || x.size(2) != layout.block() || x.size(3) != layout.block()) {
    refuse_call(op, std::string(name) + " must be [Z, " + std::to_string(blocks) +
                        (layout.heads() ? "" : " for each head") + ", " + std::to_string(layout.block()) + ", " +
                        std::to_string(layout.block()) + "], and is " + tensor_text(x));
  }
  return layout.heads() != 0 ? layout.heads() : blocks == 0 ? 0 : x.size(1) / blocks;
}

void check_masks(const char* op, DType dtype, int64_t batch, int64_t heads, int64_t rows, int64_t columns,
                 const Tensor& rpe, const Tensor& keys, const Tensor& pairs) {
  if (rpe) {
    check_dtype(op, "rpe", rpe, dtype);
    check_shape(op, "rpe", rpe, {batch, heads, rows, columns});
  }
  if (keys) {
    check_dtype(op, "key_padding_mask", keys, dtype);
    check_shape(op, "key_padding_mask", keys, {batch, columns});
  }
  if (pairs) {
    check_dtype(op, "attn_mask", pairs, dtype);
    check_shape(op, "attn_mask", pairs, {rows, columns});
  }
}

}  // namespace

Tensor SparseAttn::Softmax::operator()(const Tensor& x, float scale, const Tensor& rpe, const Tensor& key_padding_mask,
                                       const Tensor& attn_mask, const std::string& key_padding_mask_mode,
                                       const std::string& attn_mask_mode) const {
  const char* op = "softmax";
  const int64_t heads = heads_of_blocks(op, "x", x, *layout_), block = layout_->block();
  check_masks(op, x.dtype(), x.size(0), heads, layout_->rows() * block, layout_->columns() * block, rpe,
              key_padding_mask, attn_mask);
  check_same_device(op, {&x, &rpe, &key_padding_mask, &attn_mask});
  Impl::Masks masks;
  masks.key_mode = mask_mode(op, "key_padding_mask_mode", key_padding_mask_mode);
  masks.mode = mask_mode(op, "attn_mask_mode", attn_mask_mode);
  if (x.numel() == 0) return x;
  const Layout::ForHeads& lists = layout_->for_heads(heads);
  const HostUse in = HostUse::In;
  impl_->run(op, {{&x, HostUse::InOut}, {&rpe, in}, {&key_padding_mask, in}, {&attn_mask, in}},
             [&](std::span<Tensor> t, Place place) {
               masks.rpe = t[1];
               masks.keys = t[2];
               masks.pairs = t[3];
               const Tensor wide = t[0].to(DType::F32);
               impl_->softmax_rows(
                   place, wide, impl_->rows_of_part(x.size(0), heads, *layout_, Impl::whole(lists, lists.rows), scale),
                   layout_->placed(heads, wide.device()), masks);
               if (t[0].dtype() != DType::F32) t[0].copy_from(wide);
             });
  return x;
}

Tensor SparseAttn::Softmax::backward(const Tensor& y, const Tensor& dy, float scale) const {
  const char* op = "softmax's backward";
  const int64_t heads = heads_of_blocks(op, "y", y, *layout_);
  check_present(op, "dy", dy);
  check_shape(op, "dy", dy, y.shape());
  check_same_device(op, {&y, &dy});
  check_same_dtype(op, y, dy);
  if (y.numel() == 0) return dy;
  const Layout::ForHeads& lists = layout_->for_heads(heads);
  impl_->run(op, {{&dy, HostUse::InOut}, {&y, HostUse::In}}, [&](std::span<Tensor> t, Place place) {
    const Tensor wide = t[0].to(DType::F32);
    impl_->softmax_gradient(place, wide, t[1].to(DType::F32),
                            impl_->rows_of_part(y.size(0), heads, *layout_, Impl::whole(lists, lists.rows), scale),
                            layout_->placed(heads, wide.device()));
    if (t[0].dtype() != DType::F32) t[0].copy_from(wide);
  });
  return dy;
}

// ---- SelfAttention --------------------------------------------------------------------------------------------------

struct SparseAttn::SelfAttention::State {
  int64_t heads, block, max_length, blocks;  // `blocks` is the number in a row of the whole layout
  std::vector<uint8_t> seen;                 // [heads][blocks][blocks]
  int32_t key_mode, mode;
  std::mutex mutex;
  std::map<int64_t, std::shared_ptr<Layout>> layouts;  // by length

  std::shared_ptr<Layout> layout_of(int64_t length) {
    std::lock_guard lock(mutex);
    std::shared_ptr<Layout>& layout = layouts[length];
    if (!layout) {
      const int64_t n = length / block;
      std::vector<uint8_t> part;
      part.reserve(static_cast<size_t>(heads * n * n));
      for (int64_t head = 0; head < heads; ++head) {
        for (int64_t row = 0; row < n; ++row) {
          const auto begin = seen.begin() + (head * blocks + row) * blocks;
          part.insert(part.end(), begin, begin + n);
        }
      }
      layout = std::make_shared<Layout>(std::move(part), heads, n, n, block);
    }
    return layout;
  }

  // Checks q, k and v, and returns the layout for them.
  std::shared_ptr<Layout> check(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
    check_4d(op, "q", q, "[Z, H, S, d]");
    for (const auto& [name, tensor] : {std::pair("k", &k), std::pair("v", &v)}) {
      check_4d(op, name, *tensor, "[Z, H, S, d]");
      check_same_dtype(op, q, *tensor);
      if (tensor->shape() != q.shape()) {
        refuse_call(op, std::string("only self-attention is supported: ") + name +
                            " must have q's shape, and they are " + tensor_text(*tensor) + " and " + tensor_text(q));
      }
    }
    check_same_device(op, {&q, &k, &v});
    check_size(op, "q", q, 1, heads, "the configuration's num_heads");
    const int64_t length = q.size(2);
    if (length % block != 0) {
      refuse_call(op, "Sequence Length, " + std::to_string(length) + ", needs to be dividable by Block size " +
                          std::to_string(block) + "!");
    }
    if (length > max_length) {
      refuse_call(op, "the sequence has " + std::to_string(length) + " positions, and max_seq_length is " +
                          std::to_string(max_length));
    }
    if (q.size(3) < 1) refuse_call(op, "the size of a head must be at least 1, and q is " + tensor_text(q));
    return layout_of(length);
  }
};

SparseAttn::SelfAttention SparseAttn::self_attention(SparsityConfig& config, const std::string& key_padding_mask_mode,
                                                     const std::string& attn_mask_mode, int64_t max_seq_length) const {
  const char* op = "self_attention";
  auto state = std::make_shared<SelfAttention::State>();
  state->key_mode = mask_mode(op, "key_padding_mask_mode", key_padding_mask_mode);
  state->mode = mask_mode(op, "attn_mask_mode", attn_mask_mode);
  const Tensor layout = config.make_layout(max_seq_length);
  const auto* values = layout.data_as<int64_t>();
  state->seen.assign(values, values + layout.numel());
  state->heads = config.num_heads();
  state->block = config.block();
  state->max_length = max_seq_length;
  state->blocks = max_seq_length / config.block();
  SelfAttention made;
  made.impl_ = impl_;
  made.state_ = std::move(state);
  return made;
}

Tensor SparseAttn::SelfAttention::forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& rpe,
                                          const Tensor& key_padding_mask, const Tensor& attn_mask,
                                          Tensor* weights) const {
  const char* op = "sparse self-attention";
  const std::shared_ptr<Layout> layout = state_->check(op, q, k, v);
  const int64_t batch = q.size(0), heads = q.size(1), length = q.size(2), size = q.size(3), block = layout->block();
  check_masks(op, q.dtype(), batch, heads, length, length, rpe, key_padding_mask, attn_mask);
  check_same_device(op, {&q, &rpe, &key_padding_mask, &attn_mask});
  const Tensor out = Tensor::empty(q.shape(), q.dtype(), q.device());
  const Layout::ForHeads& lists = layout->for_heads(heads);
  Tensor kept;
  if (weights) *weights = kept = Tensor::empty({batch, lists.blocks, block, block}, DType::F32, q.device());
  if (out.numel() == 0) return out;
  const HostUse in = HostUse::In;
  const auto body = [&](std::span<Tensor> t, Place place) {
    const Impl::Masks masks{t[4], t[5], t[6], state_->key_mode, state_->mode};
    const PlacedLists& placed = layout->placed(heads, t[0].device());
    const Tensor queries = t[0].to(DType::F32);
    const float scale = 1.0f / std::sqrt(static_cast<float>(size));
    const Panels keys = impl_->dense.pack(place, t[1], true, block, scale);
    const Panels values = impl_->dense.pack(place, t[2], false);
    const int64_t limit = t[7] ? INT64_MAX : place ? device_scores : host_scores;
    const std::vector<int32_t>& begins = lists.rows.begins;
    Impl::into(t[3], t[3].shape(), [&](const Tensor& result) {
      Tensor scores = t[7];
      for (size_t list = 0; list + 1 < begins.size();) {
        Impl::Part part{static_cast<int64_t>(list), 1, begins[list], begins[list + 1] - begins[list]};
        while (++list + 1 < begins.size() && (begins[list + 1] - part.first_block) * batch * block * block <= limit) {
          ++part.list_count;
          part.block_count = begins[list + 1] - part.first_block;
        }
        const Shape shape{batch, part.block_count, block, block};
        if (!t[7] && (!scores || scores.numel() < shape.numel())) {
          scores = Tensor::empty(shape, DType::F32, t[0].device());
        }
        impl_->sdd(place, scores, queries, false, keys, *layout, placed, part.first_block, part.block_count);
        impl_->softmax_rows(place, scores, impl_->rows_of_part(batch, heads, *layout, part, 1), placed, masks);
        impl_->dsd(place, result, scores, false, values, *layout, placed, part);
      }
    });
  };
  impl_->run(op,
             {{&q, in},
              {&k, in},
              {&v, in},
              {&out, HostUse::Out},
              {&rpe, in},
              {&key_padding_mask, in},
              {&attn_mask, in},
              {&kept, HostUse::Out}},
             body);
  return out;
}

SparseAttn::SelfAttention::Gradients SparseAttn::SelfAttention::backward(const Tensor& dout, const Tensor& q,
                                                                         const Tensor& k, const Tensor& v,
                                                                         const Tensor& weights) const {
  const char* op = "sparse self-attention's backward";
  const std::shared_ptr<Layout> layout = state_->check(op, q, k, v);
  const int64_t batch = q.size(0), heads = q.size(1), size = q.size(3), block = layout->block();
  check_float(op, "dout", dout);
  check_same_dtype(op, q, dout);
  check_shape(op, "dout", dout, q.shape());
  const Layout::ForHeads& lists = layout->for_heads(heads);
  check_dtype(op, "weights", weights, DType::F32);
  check_shape(op, "weights", weights, {batch, lists.blocks, block, block});
  check_same_device(op, {&q, &dout, &weights});
  const auto like = [&](const Tensor& x) { return Tensor::empty(x.shape(), x.dtype(), x.device()); };
  const Gradients gradients{like(q), like(k), like(v)};
  if (q.numel() == 0) return gradients;
  const HostUse in = HostUse::In, result = HostUse::Out;
  impl_->run(op,
             {{&dout, in},
              {&q, in},
              {&k, in},
              {&v, in},
              {&weights, in},
              {&gradients.q, result},
              {&gradients.k, result},
              {&gradients.v, result}},
             [&](std::span<Tensor> t, Place place) {
               const PlacedLists& placed = layout->placed(heads, t[0].device());
               if (!place) {
                 return Impl::into(t[5], q.shape(), [&](const Tensor& dq) {
                   Impl::into(t[6], k.shape(), [&](const Tensor& dk) {
                     Impl::into(t[7], v.shape(), [&](const Tensor& dv) {
                       impl_->gradients_on_host(dq, dk, dv, t[0], t[1], t[2], t[3], t[4], *layout, placed, lists);
                     });
                   });
                 });
               }
               const Impl::Part rows = Impl::whole(lists, lists.rows), columns = Impl::whole(lists, lists.columns);
               const auto from_left = [&](const Tensor& to, const Tensor& blocks, bool trans, const Tensor& other) {
                 const Panels panels = impl_->dense.pack(place, other, false);
                 Impl::into(to, to.shape(), [&](const Tensor& wide) {
                   impl_->dsd(place, wide, blocks, trans, panels, *layout, placed, trans ? columns : rows);
                 });
               };
               from_left(t[7], t[4], true, t[0]);  // dv = P^T dout
               // dS = P * (dP - sum of P * dP) / sqrt(d), dP = dout v^T
               const Tensor scores = Tensor::empty(weights.shape(), DType::F32, t[0].device());
               impl_->sdd(place, scores, t[0].to(DType::F32), false, impl_->dense.pack(place, t[3], true, block),
                          *layout, placed, 0, lists.blocks);
               impl_->softmax_gradient(
                   place, scores, t[4],
                   impl_->rows_of_part(batch, heads, *layout, rows, 1.0f / std::sqrt(static_cast<float>(size))),
                   placed);
               from_left(t[5], scores, false, t[2]);  // dq = dS k
               from_left(t[6], scores, true, t[1]);   // dk = dS^T q
             });
  return gradients;
}

std::unique_ptr<OpBuilder> make_sparse_attn_builder(Accelerator& accelerator) {
  return std::make_unique<BundledOpBuilder<SparseAttn>>("SparseAttnBuilder",
                                                        std::vector<std::string>{"sparse_attn.cpp"}, accelerator);
}

}  // namespace anyaccel::ops
