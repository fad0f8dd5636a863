// Implements quantization to groups of integers with a scale, see anyaccel/ops/quantizer.h.
#include "anyaccel/ops/quantizer.h"

#include "anyaccel/error.h"
#include "kernels/host/quantizer_calls.h"
#include "ops/builders.h"
#include "ops/host/quant_support.h"
#include "ops/portable/portable_ops.h"
#include "ops/portable/quantizers.h"

namespace anyaccel::ops {
namespace {

DType values_dtype(int bits) { return bits == 4 ? DType::U8 : DType::I8; }

void check_bits(const char* op, int bits) {
  if (bits != 8 && bits != 4) refuse_call(op, "values have 8 or 4 bits, not " + std::to_string(bits));
}

// Returns the size of a group if `count` elements are divided into `groups` groups.
int64_t group_size_of(const char* op, const char* name, int64_t count, int64_t groups, int bits) {
  if (groups < 1) refuse_call(op, "the number of groups must be at least 1, and is " + std::to_string(groups));
  if (count % groups != 0) {
    refuse_call(op, std::string(name) + " has " + std::to_string(count) + " elements, which are not a multiple of " +
                        std::to_string(groups) + " groups");
  }
  const int64_t size = count / groups;
  if (bits == 4 && size % 2 != 0) {
    refuse_call(op, std::string(name) + " has groups of " + std::to_string(size) +
                        " elements; two values of 4 bits share a byte, so the size of a group must be even");
  }
  return size;
}

Shape packed_shape(const char* op, const Tensor& x, int bits) {
  if (bits == 8) return x.shape();
  std::vector<int64_t> dims(x.shape().dims().begin(), x.shape().dims().end());
  if (dims.empty() || dims.back() % 2 != 0) {
    refuse_call(op,
                "x is " + tensor_text(x) + "; two values of 4 bits share a byte, so its last dimension must be even");
  }
  dims.back() /= 2;
  return Shape(dims);
}

Quantized make_quantized(const Shape& values, int bits, int64_t groups, QuantKind kind, Device device) {
  const int64_t columns = kind == QuantKind::Asymmetric ? 2 : 1;
  return {Tensor::empty(values, values_dtype(bits), device), Tensor::empty({groups, columns}, DType::F32, device)};
}

// Checks that values and params belong together; returns the number of elements.
int64_t check_quantized(const char* op, const char* values_name, const char* params_name, const Quantized& q) {
  check_present(op, values_name, q.values);
  if (q.values.dtype() != DType::I8 && q.values.dtype() != DType::U8) {
    refuse_call(op, std::string(values_name) + " must be int8 (8 bits) or uint8 (4 bits, two a byte), and is " +
                        tensor_text(q.values));
  }
  check_dtype(op, params_name, q.params, DType::F32);
  if (q.params.ndim() != 2 || (q.params.size(1) != 1 && q.params.size(1) != 2) || q.params.size(0) < 1) {
    refuse_call(op, std::string(params_name) +
                        " must be [groups, 1] (scales) or [groups, 2] (scales and offsets), and is " +
                        tensor_text(q.params));
  }
  const int64_t count = q.values.numel() * (q.bits() == 4 ? 2 : 1);
  group_size_of(op, values_name, count, q.groups(), q.bits());
  return count;
}

// Sets the parameters of groups without elements.
void fill_params(const Tensor& params) {
  params.fill(1);
  if (params.size(1) == 2) params.slice(1, 1, 2).fill(0);
}

int32_t is_asymmetric(const Quantized& q) { return q.kind() == QuantKind::Asymmetric ? 1 : 0; }

}  // namespace

struct Quantizer::Impl {
  Accelerator& accelerator;
  std::unique_ptr<portable::QuantizerKernels> kernels;  // null if the accelerator has none
  std::shared_ptr<HostOpLibrary> code;
  void (*quantize)(const aa_quantize_args*);
  void (*fake)(const aa_quantize_args*);
  void (*dequantize)(const aa_dequantize_args*);
  void (*reduction)(const aa_quantized_reduction_args*);
  void (*to_half)(const aa_dequantize_to_half_args*);

  Impl(Accelerator& active, std::shared_ptr<HostOpLibrary> loaded)
      : accelerator(active),
        kernels(portable::make_kernels<portable::QuantizerKernels>(active)),
        code(std::move(loaded)),
        quantize(code->function<void(const aa_quantize_args*)>("quantizer_quantize")),
        fake(code->function<void(const aa_quantize_args*)>("quantizer_fake")),
        dequantize(code->function<void(const aa_dequantize_args*)>("quantizer_dequantize")),
        reduction(code->function<void(const aa_quantized_reduction_args*)>("quantizer_quantized_reduction")),
        to_half(code->function<void(const aa_dequantize_to_half_args*)>("quantizer_dequantize_to_half")) {}

  // Fills `out`, whose shapes are right already.
  void run_quantize(const char* op, const Quantized& out, const Tensor& x, Generator* stochastic,
                    const Swizzle& swizzle, const Tensor& error, float beta) {
    if (x.numel() == 0) return fill_params(out.params);
    const DrawState draw = draw_words(stochastic, x.numel());
    const HostUse write = HostUse::Out;
    run_dense(accelerator, kernels != nullptr, op,
              {{&x, HostUse::In}, {&out.values, write}, {&out.params, write}, {&error, HostUse::InOut}},
              [&](std::span<Tensor> t, std::optional<int> device) {
                aa_quantize_args args{};
                args.x = t[0].data();
                args.dtype = static_cast<int32_t>(x.dtype());
                args.bits = out.bits();
                args.asymmetric = is_asymmetric(out);
                args.stochastic = draw.stochastic;
                args.groups = out.groups();
                args.group_size = x.numel() / out.groups();
                args.seed = draw.seed;
                args.offset = draw.offset;
                args.values = t[1].data();
                args.params = t[2].data_as<float>();
                args.nodes = swizzle.nodes;
                args.devices = swizzle.devices;
                args.pipeline = swizzle.stages;
                args.error = t[3] ? t[3].data() : nullptr;
                args.error_dtype = static_cast<int32_t>(error.dtype());
                args.error_beta = beta;
                device ? kernels->quantize(args, *device) : quantize(&args);
              });
  }

  void run_fake(const char* op, const Tensor& x, int64_t groups, int bits, QuantKind kind, Generator* stochastic) {
    check_float(op, "x", x);
    if (bits < 2 || bits > 16) refuse_call(op, "bits must be from 2 to 16, and is " + std::to_string(bits));
    const int64_t group_size = group_size_of(op, "x", x.numel(), groups, 8);
    if (x.numel() == 0) return;
    const DrawState draw = draw_words(stochastic, x.numel());
    run_dense(accelerator, kernels != nullptr, op, {{&x, HostUse::InOut}},
              [&](std::span<Tensor> t, std::optional<int> device) {
                aa_quantize_args args{};
                args.x = t[0].data();
                args.dtype = static_cast<int32_t>(x.dtype());
                args.bits = bits;
                args.asymmetric = kind == QuantKind::Asymmetric ? 1 : 0;
                args.stochastic = draw.stochastic;
                args.groups = groups;
                args.group_size = group_size;
                args.seed = draw.seed;
                args.offset = draw.offset;
                device ? kernels->fake(args, *device) : fake(&args);
              });
  }

  Quantized run_swizzle(const char* op, const Tensor& x, const Tensor& error, float beta, int64_t groups, int bits,
                        QuantKind kind, const Swizzle& swizzle) {
    check_float(op, "x", x);
    check_bits(op, bits);
    group_size_of(op, "x", x.numel(), groups, bits);
    if (swizzle.nodes < 1 || swizzle.devices < 1 || swizzle.stages < 1 || swizzle.nodes > groups ||
        swizzle.devices > groups / swizzle.nodes || swizzle.stages > groups / (swizzle.nodes * swizzle.devices) ||
        groups % (swizzle.nodes * swizzle.devices * swizzle.stages) != 0) {
      refuse_call(op, std::to_string(groups) + " groups cannot be shared by " + std::to_string(swizzle.nodes) +
                          " nodes of " + std::to_string(swizzle.devices) + " devices in " +
                          std::to_string(swizzle.stages) + " stages: their product must divide the number of groups");
    }
    const Quantized out = make_quantized(Shape{x.numel() / (bits == 4 ? 2 : 1)}, bits, groups, kind, x.device());
    run_quantize(op, out, x, nullptr, swizzle, error, beta);
    return out;
  }

  Quantized run_reduction(const char* op, const Quantized& x, const Tensor& error, float beta, bool has_error,
                          int64_t out_groups, int64_t chunks) {
    const int64_t total = check_quantized(op, "x.values", "x.params", x);
    if (chunks < 1 || x.groups() % chunks != 0) {
      refuse_call(op, "x.params has " + std::to_string(x.groups()) + " groups, which are not a multiple of " +
                          std::to_string(chunks) + " chunks");
    }
    const int64_t count = total / chunks;
    const int64_t out_size = group_size_of(op, "the sum", count, out_groups, x.bits());
    if (has_error) {
      check_float(op, "error", error);
      check_numel(op, "error", error, count);
    }
    const Quantized out =
        make_quantized(Shape{x.values.numel() / chunks}, x.bits(), out_groups, x.kind(), x.values.device());
    if (count == 0) {
      fill_params(out.params);
      return out;
    }
    run_dense(accelerator, kernels != nullptr, op,
              {{&x.values, HostUse::In},
               {&x.params, HostUse::In},
               {&out.values, HostUse::Out},
               {&out.params, HostUse::Out},
               {&error, HostUse::InOut}},
              [&](std::span<Tensor> t, std::optional<int> device) {
                aa_quantized_reduction_args args{};
                args.values = t[0].data();
                args.params = t[1].data_as<float>();
                args.bits = x.bits();
                args.asymmetric = is_asymmetric(x);
                args.chunks = chunks;
                args.count = count;
                args.in_group_size = total / x.groups();
                args.out_group_size = out_size;
                args.out_values = t[2].data();
                args.out_params = t[3].data_as<float>();
                args.error = t[4] ? t[4].data() : nullptr;
                args.error_dtype = static_cast<int32_t>(error.dtype());
                args.error_beta = beta;
                device ? kernels->quantized_reduction(args, *device) : reduction(&args);
              });
    return out;
  }

  Tensor run_to_half(const char* op, const Tensor& values, const Tensor& scale, const Tensor& minimum, int bits) {
    check_dtype(op, "values", values, DType::U8);
    check_float(op, "scale", scale);
    check_float(op, "minimum", minimum);
    if (values.ndim() != 2) refuse_call(op, "values must be [groups, group size], and is " + tensor_text(values));
    const int64_t groups = values.size(0), group_size = values.size(1) * (bits == 4 ? 2 : 1);
    check_numel(op, "scale", scale, groups);
    check_numel(op, "minimum", minimum, groups);
    const Tensor out = Tensor::empty({groups, group_size}, DType::F16, values.device());
    if (out.numel() == 0) return out;
    const Tensor wide_scale = scale.to(DType::F32), wide_minimum = minimum.to(DType::F32);
    run_dense(accelerator, kernels != nullptr, op,
              {{&values, HostUse::In}, {&wide_scale, HostUse::In}, {&wide_minimum, HostUse::In}, {&out, HostUse::Out}},
              [&](std::span<Tensor> t, std::optional<int> device) {
                aa_dequantize_to_half_args args{};
                args.values = t[0].data_as<uint8_t>();
                args.scale = t[1].data_as<float>();
                args.minimum = t[2].data_as<float>();
                args.bits = bits;
                args.groups = groups;
                args.group_size = group_size;
                args.out = t[3].data();
                device ? kernels->dequantize_to_half(args, *device) : to_half(&args);
              });
    return out;
  }
};

Quantizer::Quantizer(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code)
    : impl_(std::make_unique<Impl>(accelerator, std::move(code))) {}
Quantizer::~Quantizer() = default;

Quantized Quantizer::quantize(const Tensor& x, int64_t groups, int bits, QuantKind kind, Generator* stochastic) {
  const char* op = "quantize";
  check_float(op, "x", x);
  check_bits(op, bits);
  group_size_of(op, "x", x.numel(), groups, bits);
  const Quantized out = make_quantized(packed_shape(op, x, bits), bits, groups, kind, x.device());
  impl_->run_quantize(op, out, x, stochastic, {}, {}, 0);
  return out;
}

void Quantizer::quantize_into(const Quantized& out, const Tensor& x, Generator* stochastic) {
  const char* op = "quantize";
  check_float(op, "x", x);
  check_quantized(op, "out.values", "out.params", out);
  const Shape expected = packed_shape(op, x, out.bits());
  if (out.values.shape() != expected) {
    refuse_call(op, "out.values must be " + expected.to_string() + " for x " + tensor_text(x) + ", and is " +
                        tensor_text(out.values));
  }
  impl_->run_quantize(op, out, x, stochastic, {}, {}, 0);
}

Tensor Quantizer::dequantize(const Quantized& x, DType dtype) {
  const char* op = "dequantize";
  check_quantized(op, "x.values", "x.params", x);
  check_float_dtype(op, dtype);
  std::vector<int64_t> dims(x.values.shape().dims().begin(), x.values.shape().dims().end());
  if (x.bits() == 4 && dims.empty()) dims.push_back(1);
  if (x.bits() == 4) dims.back() *= 2;
  const Tensor out = Tensor::empty(Shape(dims), dtype, x.values.device());
  dequantize_into(out, x);
  return out;
}

void Quantizer::dequantize_into(const Tensor& out, const Quantized& x) {
  const char* op = "dequantize";
  const int64_t count = check_quantized(op, "x.values", "x.params", x);
  check_float(op, "out", out);
  check_numel(op, "out", out, count);
  if (count == 0) return;
  run_dense(impl_->accelerator, impl_->kernels != nullptr, op,
            {{&x.values, HostUse::In}, {&x.params, HostUse::In}, {&out, HostUse::Out}},
            [&](std::span<Tensor> t, std::optional<int> device) {
              aa_dequantize_args args{};
              args.values = t[0].data();
              args.params = t[1].data_as<float>();
              args.bits = x.bits();
              args.asymmetric = is_asymmetric(x);
              args.groups = x.groups();
              args.group_size = count / x.groups();
              args.out = t[2].data();
              args.dtype = static_cast<int32_t>(out.dtype());
              device ? impl_->kernels->dequantize(args, *device) : impl_->dequantize(&args);
            });
}

void Quantizer::ds_quantize(const Tensor& x, int64_t groups, int bits) {
  impl_->run_fake("ds_quantize", x, groups, bits, QuantKind::Symmetric, nullptr);
}
void Quantizer::ds_quantize_asym(const Tensor& x, int64_t groups, int bits) {
  impl_->run_fake("ds_quantize_asym", x, groups, bits, QuantKind::Asymmetric, nullptr);
}
void Quantizer::ds_sr_quantize(const Tensor& x, int64_t groups, int bits, Generator& random) {
  impl_->run_fake("ds_sr_quantize", x, groups, bits, QuantKind::Symmetric, &random);
}
void Quantizer::ds_sr_quantize_asym(const Tensor& x, int64_t groups, int bits, Generator& random) {
  impl_->run_fake("ds_sr_quantize_asym", x, groups, bits, QuantKind::Asymmetric, &random);
}

Quantized Quantizer::swizzle_quant(const Tensor& x, int64_t groups, int bits, QuantKind kind, const Swizzle& swizzle) {
  return impl_->run_swizzle("swizzle_quant", x, {}, 0, groups, bits, kind, swizzle);
}

Quantized Quantizer::loco_swizzle_quant(const Tensor& x, const Tensor& error, float beta, int64_t groups, int bits,
                                        QuantKind kind, const Swizzle& swizzle) {
  const char* op = "loco_swizzle_quant";
  check_float(op, "x", x);
  check_float(op, "error", error);
  if (error.shape() != x.shape()) {
    refuse_call(op, "error must have x's shape " + x.shape().to_string() + ", and is " + tensor_text(error));
  }
  return impl_->run_swizzle(op, x, error, beta, groups, bits, kind, swizzle);
}

Quantized Quantizer::quantized_reduction(const Quantized& x, int64_t out_groups, int64_t chunks) {
  return impl_->run_reduction("quantized_reduction", x, {}, 0, false, out_groups, chunks);
}

Quantized Quantizer::loco_quantized_reduction(const Quantized& x, const Tensor& error, float beta, int64_t out_groups,
                                              int64_t chunks) {
  return impl_->run_reduction("loco_quantized_reduction", x, error, beta, true, out_groups, chunks);
}

Tensor Quantizer::dequantize_int4_to_half(const Tensor& values, const Tensor& scale, const Tensor& minimum) {
  return impl_->run_to_half("dequantize_int4_to_half", values, scale, minimum, 4);
}
Tensor Quantizer::dequantize_int8_to_half(const Tensor& values, const Tensor& scale, const Tensor& minimum) {
  return impl_->run_to_half("dequantize_int8_to_half", values, scale, minimum, 8);
}

std::unique_ptr<OpBuilder> make_quantizer_builder(Accelerator& accelerator) {
  return std::make_unique<BundledOpBuilder<Quantizer>>("QuantizerBuilder", std::vector<std::string>{"quantizer.cpp"},
                                                       accelerator);
}

}  // namespace anyaccel::ops
