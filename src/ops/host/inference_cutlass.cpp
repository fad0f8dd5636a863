// Implements anyaccel/ops/inference_cutlass.h: products with quantized weights and with the weights of many experts.
#include "anyaccel/ops/inference_cutlass.h"

#include <string>

#include "anyaccel/error.h"
#include "ops/builders.h"
#include "ops/host/panel_products.h"
#include "ops/host/placed_kernels.h"
#include "ops/host/quant_support.h"

namespace anyaccel::ops {
namespace {

using kernel_arguments::aa_i32, kernel_arguments::aa_i64;
#include "kernels/portable/grouped_arguments.h"

int32_t activation_number(const char* op, ActivationType act) {
  switch (act) {
    case ActivationType::GELU: return static_cast<int32_t>(Activation::GeluTanh);
    case ActivationType::RELU: return static_cast<int32_t>(Activation::Relu);
    case ActivationType::SILU: return static_cast<int32_t>(Activation::Silu);
    case ActivationType::IDENTITY: return -1;
    default:
      refuse_call(
          op, "act must be GELU, RELU, SILU or IDENTITY, and is number " + std::to_string(static_cast<int32_t>(act)));
  }
}

// Checks that the tensor is present, has this dtype and shape, and is on the device of x.
void check_shaped(const char* op, const char* name, const Tensor& tensor, DType dtype, const Shape& shape,
                  const Tensor& x) {
  check_dtype(op, name, tensor, dtype);
  if (tensor.shape() != shape) {
    refuse_call(op, std::string(name) + " must be " + shape.to_string() + ", and is " + tensor_text(tensor));
  }
  check_place(op, name, tensor, "x", x);
}

}  // namespace

struct InferenceCutlass::Impl {
  Accelerator& accelerator;
  std::shared_ptr<HostOpLibrary> code;
  PlacedKernels kernels;

  Impl(Accelerator& active, std::shared_ptr<HostOpLibrary> loaded)
      : accelerator(active), code(std::move(loaded)), kernels(active, code.get(), "grouped.cl", {"grouped_product"}) {}

  // If num_bits is 0, the weight has x's dtype. Without `experts` there is one weight, and no tensor has the dimension
  // of experts.
  void product(const char* op, const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& scales,
               const Tensor& bias, const Tensor& before, int num_bits, bool experts, ActivationType act) {
    check_float(op, "x", x);
    if (x.ndim() != 2) refuse_call(op, "x must be [T, K], and is " + tensor_text(x));
    check_present(op, "w", w);
    if (num_bits != 0 && num_bits != 4 && num_bits != 8) {
      refuse_call(op, "num_bits must be 4 or 8, and is " + std::to_string(num_bits));
    }
    if (num_bits == 0) check_dtype(op, "w", w, x.dtype());
    if (num_bits == 8) check_dtype(op, "w", w, DType::I8);
    if (num_bits == 4 && w.dtype() != DType::U8 && w.dtype() != DType::I8) {
      refuse_call(op, "w must be uint8 or int8 with two elements to a byte, and is " + tensor_text(w));
    }
    if (w.ndim() != (experts ? 3 : 2)) {
      refuse_call(op, std::string("w must be ") + (experts ? "[E, K, " : "[K, ") + (num_bits == 4 ? "N / 2]" : "N]") +
                          ", and is " + tensor_text(w));
    }
    aa_grouped s{};
    s.rows = x.size(0);
    s.inner = x.size(1);
    s.columns = w.size(-1) * (num_bits == 4 ? 2 : 1);
    s.experts = experts ? w.size(0) : 1;
    s.weight = num_bits == 8 ? AA_WEIGHT_8 : num_bits == 4 ? AA_WEIGHT_4 : static_cast<int32_t>(x.dtype());
    s.dtype = static_cast<int32_t>(x.dtype());
    s.has_scales = num_bits != 0;
    s.has_bias = static_cast<bool>(bias);
    s.activation = activation_number(op, act);
    s.all_rows = !experts;
    const Shape each = experts ? Shape{s.experts, s.columns} : Shape{s.columns};
    const Shape weight = experts ? Shape{s.experts, s.inner, w.size(-1)} : Shape{s.inner, w.size(-1)};
    check_shaped(op, "w", w, w.dtype(), weight, x);
    check_shaped(op, "out", out, x.dtype(), {s.rows, s.columns}, x);
    if (s.has_scales) check_shaped(op, "scales", scales, x.dtype(), each, x);
    if (bias) check_shaped(op, "bias", bias, x.dtype(), each, x);
    if (experts) check_shaped(op, "rows_before_expert", before, DType::I64, {s.experts}, x);
    if (out.numel() == 0 || s.experts == 0) return;
    const HostUse in = HostUse::In;
    run_dense(accelerator, kernels.on_devices(), op,
              {{&out, experts ? HostUse::InOut : HostUse::Out},
               {&x, in},
               {&w, in},
               {&scales, in},
               {&bias, in},
               {&before, in}},
              [&](std::span<Tensor> t, Place place) {
                const auto address = [](const Tensor& tensor) -> const void* {
                  return tensor ? tensor.data() : nullptr;
                };
                const int group = kernels.group_size(place);
                s.tiles = ceil_div(s.rows, AA_GROUPED_ROWS_OF(group)) + (experts ? s.experts : 0);
                const Tensor rows = t[1].to(DType::F32);
                kernels.items(0, place, s.tiles * ceil_div(s.columns, AA_GROUPED_COLUMNS_OF(group)), t[0].data(),
                              address(rows), address(t[2]), address(t[3]), address(t[4]), address(t[5]), s);
              });
  }
};

InferenceCutlass::InferenceCutlass(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code)
    : impl_(std::make_unique<Impl>(accelerator, std::move(code))) {}
InferenceCutlass::~InferenceCutlass() = default;

void InferenceCutlass::mixed_gemm(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& scales,
                                  const Tensor& bias, int num_bits, ActivationType act) {
  if (num_bits == 0) refuse_call("mixed_gemm", "num_bits must be 4 or 8, and is 0");
  impl_->product("mixed_gemm", out, x, w, scales, bias, {}, num_bits, false, act);
}

void InferenceCutlass::moe_gemm(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias,
                                const Tensor& rows_before_expert, ActivationType act) {
  impl_->product("moe_gemm", out, x, w, {}, bias, rows_before_expert, 0, true, act);
}

void InferenceCutlass::mixed_moe_gemm(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& scales,
                                      const Tensor& bias, const Tensor& rows_before_expert, int num_bits,
                                      ActivationType act) {
  if (num_bits == 0) refuse_call("mixed_moe_gemm", "num_bits must be 4 or 8, and is 0");
  impl_->product("mixed_moe_gemm", out, x, w, scales, bias, rows_before_expert, num_bits, true, act);
}

std::unique_ptr<OpBuilder> make_inference_cutlass_builder(Accelerator& accelerator) {
  return std::make_unique<BundledOpBuilder<InferenceCutlass>>(
      "InferenceCutlassBuilder", std::vector<std::string>{"inference_cutlass.cpp"}, accelerator);
}

}  // namespace anyaccel::ops
