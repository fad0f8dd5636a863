// Implements anyaccel/ops/evoformer_attn.h: attention with two biases and its gradients, computed for one part of the
// scores at a time. On the host kernels/host/evoformer_attn.cpp does everything; devices run portable kernels.
#include "anyaccel/ops/evoformer_attn.h"

#include <algorithm>
#include <cmath>

#include "anyaccel/error.h"
#include "kernels/host/evoformer_calls.h"
#include "ops/builders.h"
#include "ops/host/host_accelerator.h"
#include "ops/host/panel_products.h"
#include "ops/host/placed_kernels.h"
#include "ops/host/quant_support.h"

namespace anyaccel::ops {
namespace {

using kernel_arguments::aa_i32, kernel_arguments::aa_i64;
#include "kernels/portable/evoformer_arguments.h"

enum EvoformerKernel : size_t {
  evoformer_softmax,
  evoformer_delta,
  evoformer_gradient,
  evoformer_keys_gradient,
  evoformer_pairs_gradient,
};

// The number of scores that exist at a time: a small part of a device's memory.
constexpr int64_t device_part = int64_t{1} << 24;

bool given(const Tensor& tensor) { return tensor && tensor.numel() != 0; }

// The sizes of a call. A matrix is a head of a sequence.
struct Sizes {
  int64_t batch, group, length, heads, size;
  int64_t matrices() const { return batch * group * heads; }
  int64_t lse_row() const { return ceil_div(length, 32) * 32; }
};

// Returns x as [matrices, L, d], contiguous.
Tensor by_head(const Tensor& x, const Sizes& sizes, DType dtype = DType::F32) {
  const Tensor rows = x.view(Shape{sizes.batch * sizes.group, sizes.length, sizes.heads, sizes.size}).transpose(1, 2);
  const Tensor heads = Tensor::empty(rows.shape(), dtype, x.device());
  heads.copy_from(rows);
  return heads.view(Shape{sizes.matrices(), sizes.length, sizes.size});
}

// Writes [matrices, L, d] as [*, L, nh, d].
void from_heads(const Tensor& to, const Tensor& x, const Sizes& sizes) {
  to.view(Shape{sizes.batch * sizes.group, sizes.length, sizes.heads, sizes.size})
      .copy_from(x.view(Shape{sizes.batch * sizes.group, sizes.heads, sizes.length, sizes.size}).transpose(1, 2));
}

void check_like(const char* op, const char* name, const Tensor& tensor, const Tensor& q) {
  check_dtype(op, name, tensor, q.dtype());
  if (tensor.shape() != q.shape()) {
    refuse_call(
        op, std::string(name) + " must have q's shape " + q.shape().to_string() + ", and is " + tensor_text(tensor));
  }
  check_place(op, name, tensor, "q", q);
}

void check_bias(const char* op, const char* name, const Tensor& bias, const Shape& shape, DType dtype,
                const Tensor& q) {
  if (bias.shape() != shape) {
    refuse_call(op, std::string(name) + " shape is incorrect: it must be " + shape.to_string() + ", and is " +
                        tensor_text(bias));
  }
  check_dtype(op, name, bias, dtype);
  check_place(op, name, bias, "q", q);
}

Sizes check_inputs(const char* op, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias1,
                   const Tensor& bias2) {
  check_float(op, "q", q);
  if (q.ndim() < 3)
    refuse_call(op, "q must be [.., L, heads, d], usually [B, N, L, heads, d], and is " + tensor_text(q));
  check_like(op, "k", k, q);
  check_like(op, "v", v, q);
  Sizes sizes{1, 1, q.size(-3), q.size(-2), q.size(-1)};
  if (sizes.size < 1) refuse_call(op, "the size of a head must be at least 1, and q is " + tensor_text(q));
  if (q.ndim() > 3) sizes.group = q.size(-4);
  for (int dim = 0; dim + 4 < q.ndim(); ++dim) sizes.batch *= q.size(dim);
  if (given(bias1)) {
    check_bias(op, "bias1", bias1, {sizes.batch, sizes.group, 1, 1, sizes.length}, q.dtype(), q);
  }
  if (given(bias2)) {
    check_bias(op, "bias2", bias2, {sizes.batch, 1, sizes.heads, sizes.length, sizes.length}, q.dtype(), q);
  }
  return sizes;
}

void check_rows(const char* op, const char* name, const Tensor& rows, const Sizes& sizes, const Tensor& q) {
  check_dtype(op, name, rows, DType::F32);
  check_numel(op, name, rows, sizes.matrices() * sizes.lse_row());
  if (!rows.is_contiguous() || rows.device() != q.device()) {
    refuse_call(op, std::string(name) + " must be contiguous and where q is, " + place_text(q.device()));
  }
}

}  // namespace

struct EvoformerAttn::Impl {
  Accelerator& accelerator;
  std::shared_ptr<HostOpLibrary> code;
  // Of devices.
  PanelProducts products;
  PlacedKernels kernels;
  // Of the host.
  using Scratch = int64_t(const aa_evoformer_call*);
  using Run = void(const aa_evoformer_call*);
  Scratch *forward_scratch, *backward_scratch;
  Run *forward, *backward;

  Impl(Accelerator& active, std::shared_ptr<HostOpLibrary> loaded)
      : accelerator(active),
        code(std::move(loaded)),
        products(active, nullptr),
        kernels(active, nullptr, "evoformer.cl",
                {"evoformer_softmax", "evoformer_delta", "evoformer_gradient", "evoformer_keys_gradient",
                 "evoformer_pairs_gradient"}),
        forward_scratch(code->function<Scratch>("evoformer_forward_scratch")),
        backward_scratch(code->function<Scratch>("evoformer_backward_scratch")),
        forward(code->function<Run>("evoformer_forward")),
        backward(code->function<Run>("evoformer_backward")) {}

  // Runs `op` on the host with memory for what `scratch` asks for.
  static void on_host(aa_evoformer_call call, const Sizes& sizes, const Tensor& q, Scratch* scratch, Run* op) {
    call.batch = sizes.batch;
    call.group = sizes.group;
    call.length = sizes.length;
    call.heads = sizes.heads;
    call.size = sizes.size;
    call.lse_row = sizes.lse_row();
    call.dtype = static_cast<int32_t>(q.dtype());
    call.threads = op_services()->threads();
    const Tensor memory = Tensor::empty({scratch(&call)}, DType::F32, q.device());
    call.scratch = memory.data_as<float>();
    op(&call);
  }
  // The address of a bias or of its gradient; null if it is absent.
  template <class T = const void>
  static T* address(const Tensor& t) {
    return given(t) ? static_cast<T*>(t.data()) : nullptr;
  }

  aa_evoformer arguments(Place place, const Sizes& sizes, const Tensor& bias1, const Tensor& bias2) {
    aa_evoformer s{};
    s.count = sizes.matrices();
    s.pitch = ceil_div(sizes.length, products.panel_columns(place)) * products.panel_columns(place);
    s.heads = sizes.heads;
    s.group = sizes.group;
    s.length = sizes.length;
    s.size = sizes.size;
    s.lse_row = sizes.lse_row();
    s.has_keys = given(bias1);
    s.has_pairs = given(bias2);
    s.dtype = static_cast<int32_t>(given(bias1) ? bias1.dtype() : given(bias2) ? bias2.dtype() : DType::F32);
    return s;
  }

  // Calls `body` with the parts of the scores one after another: several matrices, or some rows of one.
  template <class Body>
  void each_part(Place place, const Sizes& sizes, aa_evoformer s, const Body& body) {
    const int64_t limit = device_part, matrix = sizes.length * s.pitch;
    const int64_t item = products.item_rows(place);
    const int64_t count = std::max<int64_t>(1, limit / matrix);
    const int64_t rows = matrix <= limit ? sizes.length : std::max(item, limit / s.pitch / item * item);
    for (s.first = 0; s.first < sizes.matrices(); s.first += count) {
      s.count = std::min(count, sizes.matrices() - s.first);
      for (s.first_row = 0; s.first_row < sizes.length; s.first_row += rows) {
        s.row_count = std::min(rows, sizes.length - s.first_row);
        body(s);
      }
    }
  }
  // Returns memory for the scores of the largest part.
  Tensor scores_for(Place place, const Sizes& sizes, const aa_evoformer& s, Device device) {
    int64_t most = 0;
    each_part(place, sizes, s, [&](const aa_evoformer& part) { most = std::max(most, part.count * part.row_count); });
    return Tensor::empty({most * s.pitch}, DType::F32, device);
  }

  // scores = the part's rows of a times b.
  void score(Place place, const Tensor& scores, const Tensor& a, const Panels& b, const aa_evoformer& s) {
    const int64_t matrix = s.length * s.size;
    products.multiply(place, {scores, 0, s.row_count * s.pitch, s.pitch},
                      {a, s.first * matrix + s.first_row * s.size, matrix, s.size}, b, s.first, s.count, s.row_count,
                      s.size, s.length, false);
  }
  // The part's rows of out = scores times b.
  void weigh(Place place, const Tensor& out, const Tensor& scores, const Panels& b, const aa_evoformer& s) {
    const int64_t matrix = s.length * s.size;
    products.multiply(place, {out, s.first * matrix + s.first_row * s.size, matrix, s.size},
                      {scores, 0, s.row_count * s.pitch, s.pitch}, b, s.first, s.count, s.row_count, s.length, s.size,
                      false);
  }
  // out = scores^T times the part's rows of b; further parts of a matrix are added.
  void collect(Place place, const Tensor& out, const Tensor& scores, Panels b, const aa_evoformer& s) {
    const int64_t matrix = s.length * s.size;
    b.storage = b.storage.view(Shape{b.storage.numel()}).slice(0, s.first_row * b.where.row, b.storage.numel());
    products.multiply(place, {out, s.first * matrix, matrix, s.size}, {scores, 0, s.row_count * s.pitch, 1, s.pitch}, b,
                      s.first, s.count, s.length, s.row_count, s.size, s.first_row != 0);
  }

  void softmax(Place place, const Tensor& scores, const Tensor& bias1, const Tensor& bias2, const Tensor& lse,
               const aa_evoformer& s) {
    kernels.groups(evoformer_softmax, place, s.count * s.row_count, scores.data(), address(bias1), address(bias2),
                   lse.data(), s);
  }
};

EvoformerAttn::EvoformerAttn(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code)
    : impl_(std::make_unique<Impl>(accelerator, std::move(code))) {}
EvoformerAttn::~EvoformerAttn() = default;

void EvoformerAttn::attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias1,
                              const Tensor& bias2, const Tensor& o, const Tensor& lse) {
  const char* op = "evoformer attention";
  const Sizes sizes = check_inputs(op, q, k, v, bias1, bias2);
  check_like(op, "o", o, q);
  check_rows(op, "lse", lse, sizes, q);
  if (q.numel() == 0) return;
  const HostUse in = HostUse::In;
  run_dense(impl_->accelerator, impl_->kernels.on_devices(), op,
            {{&q, in}, {&k, in}, {&v, in}, {&bias1, in}, {&bias2, in}, {&o, HostUse::Out}, {&lse, HostUse::InOut}},
            [&](std::span<Tensor> t, Place place) {
              if (!place) {
                aa_evoformer_call call{};
                call.q = t[0].data();
                call.k = t[1].data();
                call.v = t[2].data();
                call.keys = Impl::address(t[3]);
                call.pairs = Impl::address(t[4]);
                call.o = t[5].data();
                call.lse = t[6].data_as<float>();
                return Impl::on_host(call, sizes, t[0], impl_->forward_scratch, impl_->forward);
              }
              const float scale = 1.0f / std::sqrt(static_cast<float>(sizes.size));
              const Tensor queries = by_head(t[0], sizes);
              const Panels keys = impl_->products.pack(place, by_head(t[1], sizes, t[1].dtype()), true, 0, scale);
              const Panels values = impl_->products.pack(place, by_head(t[2], sizes, t[2].dtype()), false);
              const Tensor out = Tensor::empty(queries.shape(), DType::F32, queries.device());
              const aa_evoformer all = impl_->arguments(place, sizes, t[3], t[4]);
              const Tensor scores = impl_->scores_for(place, sizes, all, queries.device());
              impl_->each_part(place, sizes, all, [&](const aa_evoformer& part) {
                impl_->score(place, scores, queries, keys, part);
                impl_->softmax(place, scores, t[3], t[4], t[6], part);
                impl_->weigh(place, out, scores, values, part);
              });
              from_heads(t[5], out, sizes);
            });
}

void EvoformerAttn::attention_bwd(const Tensor& go, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                                  const Tensor& lse, const Tensor& delta, const Tensor& bias1, const Tensor& bias2,
                                  const Tensor& gq, const Tensor& gk, const Tensor& gv, const Tensor& gb1,
                                  const Tensor& gb2) {
  const char* op = "evoformer attention's backward";
  const Sizes sizes = check_inputs(op, q, k, v, bias1, bias2);
  for (const auto& [name, tensor] :
       {std::pair("go", &go), std::pair("o", &o), std::pair("gq", &gq), std::pair("gk", &gk), std::pair("gv", &gv)}) {
    check_like(op, name, *tensor, q);
  }
  check_rows(op, "lse", lse, sizes, q);
  check_rows(op, "delta", delta, sizes, q);
  if (given(gb1)) check_bias(op, "gb1", gb1, {sizes.batch, sizes.group, 1, 1, sizes.length}, DType::F32, q);
  if (given(gb2)) check_bias(op, "gb2", gb2, {sizes.batch, 1, sizes.heads, sizes.length, sizes.length}, DType::F32, q);
  if (q.numel() == 0) return;
  const HostUse in = HostUse::In, result = HostUse::Out, both = HostUse::InOut;
  run_dense(impl_->accelerator, impl_->kernels.on_devices(), op,
            {{&go, in},
             {&q, in},
             {&k, in},
             {&v, in},
             {&o, in},
             {&lse, in},
             {&delta, both},
             {&bias1, in},
             {&bias2, in},
             {&gq, result},
             {&gk, result},
             {&gv, result},
             {&gb1, both},
             {&gb2, both}},
            [&](std::span<Tensor> t, Place place) {
              if (!place) {
                aa_evoformer_call call{};
                call.go = t[0].data();
                call.q = t[1].data();
                call.k = t[2].data();
                call.v = t[3].data();
                call.o = t[4].data();
                call.lse = t[5].data_as<float>();
                call.keys = Impl::address(t[7]);
                call.pairs = Impl::address(t[8]);
                call.gq = t[9].data();
                call.gk = t[10].data();
                call.gv = t[11].data();
                call.gkeys = Impl::address<float>(t[12]);
                call.gpairs = Impl::address<float>(t[13]);
                return Impl::on_host(call, sizes, t[1], impl_->backward_scratch, impl_->backward);
              }
              const float scale = 1.0f / std::sqrt(static_cast<float>(sizes.size));
              PanelProducts& products = impl_->products;
              const Tensor gradient = by_head(t[0], sizes), queries = by_head(t[1], sizes);
              const Tensor key_rows = by_head(t[2], sizes, t[2].dtype());
              const Tensor value_rows = by_head(t[3], sizes, t[3].dtype());
              // These are for the scores and for the gradient of the weights; the gradients of q and k are scaled
              // through k and q.
              const Panels keys = products.pack(place, key_rows, true, 0, scale),
                           values = products.pack(place, value_rows, true);
              const Panels scaled_keys = products.pack(place, key_rows, false, 0, scale);
              const Panels scaled_queries = products.pack(place, queries, false, 0, scale);
              const Panels gradients = products.pack(place, gradient, false);
              const auto like = [&] { return Tensor::empty(queries.shape(), DType::F32, queries.device()); };
              const Tensor dq = like(), dk = like(), dv = like();
              aa_evoformer all = impl_->arguments(place, sizes, t[7], t[8]);
              all.known = 1;
              impl_->kernels.items(evoformer_delta, place, all.count * all.length, t[6].data(),
                                   static_cast<const void*>(gradient.data()),
                                   static_cast<const void*>(by_head(t[4], sizes).data()), all);
              const Tensor weights = impl_->scores_for(place, sizes, all, queries.device());
              const Tensor changes = Tensor::empty(weights.shape(), DType::F32, weights.device());
              impl_->each_part(place, sizes, all, [&](const aa_evoformer& s) {
                impl_->score(place, weights, queries, keys, s);
                impl_->softmax(place, weights, t[7], t[8], t[5], s);
                impl_->score(place, changes, gradient, values, s);
                impl_->kernels.groups(evoformer_gradient, place, s.count * s.row_count, changes.data(),
                                      static_cast<const void*>(weights.data()), static_cast<const void*>(t[6].data()),
                                      s);
                impl_->weigh(place, dq, changes, scaled_keys, s);
                impl_->collect(place, dk, changes, scaled_queries, s);
                impl_->collect(place, dv, weights, gradients, s);
                // These two kernels divide the columns among this many items.
                const int64_t columns = ceil_div(s.length, products.items_work_alone(place) ? 64 : 1);
                if (given(t[12])) {
                  const int64_t sequences = (s.first + s.count - 1) / s.heads - s.first / s.heads + 1;
                  impl_->kernels.items(evoformer_keys_gradient, place, sequences * columns, t[12].data(),
                                       static_cast<const void*>(changes.data()), s);
                }
                if (given(t[13])) {
                  const int64_t per_pair = s.group * s.heads;
                  const int64_t pairs = (s.first + s.count - 1) / per_pair - s.first / per_pair + 1;
                  impl_->kernels.items(evoformer_pairs_gradient, place, pairs * s.heads * s.row_count * columns,
                                       t[13].data(), static_cast<const void*>(changes.data()), s);
                }
              });
              from_heads(t[9], dq, sizes);
              from_heads(t[10], dk, sizes);
              from_heads(t[11], dv, sizes);
            });
}

namespace {

Tensor bias_of(const char* op, std::span<const Tensor> biases, size_t number) {
  if (biases.size() > 2) {
    refuse_call(op, "at most 2 biases are supported, and there are " + std::to_string(biases.size()));
  }
  return number < biases.size() ? biases[number] : Tensor();
}

Tensor rows_for(const Sizes& sizes, Device device) {
  return Tensor::zeros({sizes.batch * sizes.group, sizes.heads, sizes.lse_row()}, DType::F32, device);
}

}  // namespace

Tensor EvoformerAttn::DS4Sci_EvoformerAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                                                std::span<const Tensor> biases, Saved* saved) {
  const char* op = "DS4Sci_EvoformerAttention";
  const Tensor bias1 = bias_of(op, biases, 0), bias2 = bias_of(op, biases, 1);
  const Sizes sizes = check_inputs(op, q, k, v, bias1, bias2);
  const Tensor o = Tensor::empty(q.shape(), q.dtype(), q.device()), lse = rows_for(sizes, q.device());
  attention(q, k, v, bias1, bias2, o, lse);
  if (saved) *saved = {o, lse};
  return o;
}

EvoformerAttn::Gradients EvoformerAttn::backward(const Tensor& go, const Tensor& q, const Tensor& k, const Tensor& v,
                                                 std::span<const Tensor> biases, const Saved& saved) {
  const char* op = "DS4Sci_EvoformerAttention's backward";
  const Tensor bias1 = bias_of(op, biases, 0), bias2 = bias_of(op, biases, 1);
  const Sizes sizes = check_inputs(op, q, k, v, bias1, bias2);
  const auto like = [&] { return Tensor::empty(q.shape(), q.dtype(), q.device()); };
  const auto sums = [&](const Tensor& bias) {
    return given(bias) ? Tensor::zeros(bias.shape(), DType::F32, q.device()) : Tensor();
  };
  Gradients gradients{like(), like(), like(), sums(bias1), sums(bias2)};
  attention_bwd(go, q, k, v, saved.o, saved.lse, rows_for(sizes, q.device()), bias1, bias2, gradients.q, gradients.k,
                gradients.v, gradients.bias1, gradients.bias2);
  if (gradients.bias1) gradients.bias1 = gradients.bias1.to(bias1.dtype());
  if (gradients.bias2) gradients.bias2 = gradients.bias2.to(bias2.dtype());
  return gradients;
}

std::unique_ptr<OpBuilder> make_evoformer_attn_builder(Accelerator& accelerator) {
  return std::make_unique<BundledOpBuilder<EvoformerAttn>>("EvoformerAttnBuilder",
                                                           std::vector<std::string>{"evoformer_attn.cpp"}, accelerator);
}

}  // namespace anyaccel::ops
