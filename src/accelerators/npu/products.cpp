// Implements products, norms, activations and sums with aclnn. If types differ, or an operator would round to 16 bits
// in between, the computation is in fp32 and the result is rounded once.
#include <algorithm>

#include "accelerators/npu/op_rows.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::npu {
namespace {

constexpr aa_tensor no_tensor{};  // AA_DTYPE_NONE

bool same_memory(const aa_tensor& a, const aa_tensor& b) { return a.data && a.data == b.data; }

// ---- products --------------------------------------------------------------------------------------------------------

// A weight, which may be packed: then its tensor has no data.
struct Weight {
  const aa_tensor& tensor;
  const WeightInBlocks* blocks;  // null: in rows
};
Weight weight(const aa_op_call& call, size_t index) { return {call.tensors[index], packed(call, index)}; }

// One product of a call: out = x * transpose(w) + bias + residual, the last two optional.
struct Part {
  const aa_tensor& out;
  const aa_tensor& x;
  Weight w;
  const aa_tensor& bias;
  const aa_tensor& residual;
};

// Weights that must be converted to fp32 are converted in pieces of at most this many bytes.
constexpr int64_t piece_bytes = int64_t{64} << 20;

Shaped transposed(const Shaped& w) { return w.seen_as({w.shape[1], w.shape[0]}, {w.strides[1], w.strides[0]}); }

// Packed weights are multiplied by tensors of their own type, on processors that give fp32 results of such products.
bool has_blocks(const Functions& f) {
  return f.keeps_f32 && f.convert.is_there() && f.matmul_blocks.is_there() && f.copy.is_there();
}
bool multiplies(const Functions& f, const aa_tensor& x, const Weight& w) {
  if (!w.blocks) return is_plain(w.tensor);
  return has_blocks(f) && x.dtype == w.tensor.dtype && is_dense(w.tensor);
}

// Computes out = x * transpose(w) in fp32; `out` is [rows, outputs], in fp32.
void product_in_f32(const Shaped& x, const Weight& given, const Shaped& out, Work& work) {
  if (given.blocks) return work.product(x, *given.blocks, out);
  const Shaped w(given.tensor);
  if (x.type == w.type && (x.type == type_f32 || work.f.keeps_f32)) return work.product(x, transposed(w), out);
  const Shaped wide_x = work.in_f32(x);
  if (w.type == type_f32) return work.product(wide_x, transposed(w), out);
  const int64_t outputs = w.shape[0], inputs = w.shape[1];
  const int64_t together = std::clamp<int64_t>(piece_bytes / (4 * inputs), 1, outputs);
  const Shaped wide = work.temporary(type_f32, {together, inputs});
  for (int64_t begin = 0; begin < outputs; begin += together) {
    const int64_t count = std::min(together, outputs - begin);
    const Shaped piece = wide.rows(0, count);
    work.cast(piece, w.rows(begin, count));
    work.product(wide_x, transposed(piece), out.seen_as({x.shape[0], count}, out.strides, begin * out.strides[1]));
  }
}

bool supports_part(const Functions& f, const Part& part) {
  const auto& [out, x, w, bias, residual] = part;
  bool one_type = true;
  if (!multiplies(f, x, w)) return false;
  for (const aa_tensor* tensor : {&out, &x, &w.tensor, &bias, &residual}) {
    if (!is_there(*tensor)) continue;
    if (!is_plain(*tensor)) return false;
    one_type &= tensor->dtype == out.dtype;
  }
  const bool adds = is_there(bias) || is_there(residual);
  return (!adds || f.add.is_there()) && ((one_type && !(adds && out.dtype != AA_DTYPE_F32)) || f.cast.is_there());
}

void run_part(const Part& part, Work& work) {
  const Shaped out(part.out), x(part.x);
  const bool adds = is_there(part.bias) || is_there(part.residual);
  if (!adds && out.type == x.type && part.x.dtype == part.w.tensor.dtype) {  // rounded once
    if (part.w.blocks) return work.product(x, *part.w.blocks, out);
    return work.product(x, transposed(Shaped(part.w.tensor)), out);
  }
  const Shaped sum = work.f32_for(out);
  const Shaped products = adds ? work.temporary(type_f32, out.shape) : sum;
  product_in_f32(x, part.w, products, work);
  if (is_there(part.bias)) work.add(products, work.in_f32(Shaped(part.bias)), is_there(part.residual) ? products : sum);
  if (is_there(part.residual)) work.add(products, work.in_f32(Shaped(part.residual)), sum);
  work.finish(out, sum);
}

bool has_matmul(const Functions& f) { return f.matmul.is_there(); }

bool supports_linear(const Functions& f, const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  return supports_part(f, {t[0], t[1], weight(call, 2), t[3], t[4]});
}
void linear(const aa_op_call& call, Work& work) {
  const aa_tensor* t = call.tensors;
  run_part({t[0], t[1], weight(call, 2), t[3], t[4]}, work);
}

bool supports_linear_multi(const Functions& f, const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  for (uint32_t i = 1; i < call.tensor_count; i += 3) {
    if (!supports_part(f, {t[i], t[0], weight(call, i + 1), t[i + 2], no_tensor})) return false;
  }
  return true;
}
void linear_multi(const aa_op_call& call, Work& work) {
  const aa_tensor* t = call.tensors;
  for (uint32_t i = 1; i < call.tensor_count; i += 3) {
    run_part({t[i], t[0], weight(call, i + 1), t[i + 2], no_tensor}, work);
  }
}

bool has_gated_linear(const Functions& f) { return f.matmul.is_there() && f.swiglu.is_there() && f.cast.is_there(); }
bool supports_gated_linear(const Functions& f, const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  return params_of<aa_activation_params>(call).kind == AA_ACTIVATION_SILU && !is_there(t[4]) && !is_there(t[5]) &&
         is_plain(t[0]) && is_plain(t[1]) && multiplies(f, t[1], weight(call, 2)) &&
         multiplies(f, t[1], weight(call, 3));
}
// Computes both products side by side in each row, the layout that the operator needs.
void gated_linear(const aa_op_call& call, Work& work) {
  const Shaped out(call.tensors[0]), x(call.tensors[1]);
  const int64_t rows = out.shape[0], outputs = out.shape[1];
  const Shaped both = work.temporary(type_f32, {rows, 2 * outputs});
  product_in_f32(x, weight(call, 2), both.seen_as({rows, outputs}, {2 * outputs, 1}), work);
  product_in_f32(x, weight(call, 3), both.seen_as({rows, outputs}, {2 * outputs, 1}, outputs), work);
  const Shaped result = work.f32_for(out);
  work.call(work.f.swiglu, work.tensor(both), int64_t{-1}, work.tensor(result));
  work.finish(out, result);
}

// ---- norms, activations, sums ----------------------------------------------------------------------------------------

bool supports_rms_norm(const Functions& f, const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  if (!is_there(t[2]) || same_memory(t[0], t[1])) return false;
  bool one_type = true;
  for (const size_t i : {0, 1, 2, 3}) {
    if (!is_there(t[i])) continue;
    if (!is_plain(t[i])) return false;
    one_type &= t[i].dtype == t[0].dtype;
  }
  if (is_there(t[3]) && (t[1].dtype != t[3].dtype || !f.add.is_there())) return false;
  return one_type || f.cast.is_there();
}
// Computes in the tensors' type if all have the same one, else in fp32.
void rms_norm(const aa_op_call& call, Work& work) {
  const aa_tensor* t = call.tensors;
  const bool adds = is_there(t[3]);
  if (adds) work.add(Shaped(t[3]), Shaped(t[1]), Shaped(t[3]));
  const Shaped out(t[0]), given(adds ? t[3] : t[1]), weight(t[2]);
  const bool one_type = out.type == given.type && given.type == weight.type;
  const Shaped x = one_type ? given : work.in_f32(given);
  const Shaped result = one_type ? out : work.f32_for(out);
  // One number for each row: the shape of x with a last dimension of 1.
  std::vector<int64_t> shape = x.shape;
  shape.back() = 1;
  const Shaped root = work.temporary(type_f32, shape);
  const auto eps = static_cast<double>(params_of<aa_norm_params>(call).eps);
  work.call(work.f.rms_norm, work.tensor(x), work.tensor(one_type ? weight : work.in_f32(weight)), eps,
            work.tensor(result), work.tensor(root));
  if (!one_type) work.finish(out, result);
}

bool supports_activation(const Functions&, const aa_op_call& call) {
  return params_of<aa_activation_params>(call).kind == AA_ACTIVATION_SILU &&
         are_plain({&call.tensors[0], &call.tensors[1]});
}
void activation(const aa_op_call& call, Work& work) {
  work.call(work.f.silu, work.tensor(Shaped(call.tensors[1])), work.tensor(Shaped(call.tensors[0])));
}

bool supports_add(const Functions&, const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  return are_plain({&t[0], &t[1], &t[2]});
}
void add(const aa_op_call& call, Work& work) {
  const aa_tensor* t = call.tensors;
  work.add(Shaped(t[1]), Shaped(t[2]), Shaped(t[0]));
}

}  // namespace

size_t bytes_in_blocks(const Functions& f, const aa_tensor& x, const aa_tensor& w) {
  const bool fits = has_blocks(f) && bytes_of(acl_type(w.dtype)) == 2 && is_plain(w) && w.ndim == 2;
  // The operators take no matrix of one row or column.
  if (!fits || x.dtype != w.dtype || w.shape[0] < 2 || w.shape[1] < 2) return 0;
  return WeightInBlocks::bytes(w.shape[0], w.shape[1]);
}

bool takes_packed(Op op, uint32_t tensor) {
  switch (op) {
    case Op::Linear: return tensor == 2;
    case Op::LinearMulti: return tensor % 3 == 2;
    case Op::GatedLinear: return tensor == 2 || tensor == 3;
    default: return false;
  }
}

std::span<const OpRow> product_ops() {
  static constexpr OpRow rows[] = {
      {Op::Linear, has_matmul, supports_linear, linear},
      {Op::LinearMulti, has_matmul, supports_linear_multi, linear_multi},
      {Op::GatedLinear, has_gated_linear, supports_gated_linear, gated_linear},
      {Op::RmsNorm, [](const Functions& f) { return f.rms_norm.is_there(); }, supports_rms_norm, rms_norm},
      {Op::Activation, [](const Functions& f) { return f.silu.is_there(); }, supports_activation, activation},
      {Op::Add, [](const Functions& f) { return f.add.is_there(); }, supports_add, add},
  };
  return rows;
}

}  // namespace anyaccel::npu
