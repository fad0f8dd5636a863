// Implements quantization to small floating-point numbers with a scale for each group, see anyaccel/ops/fp_quantizer.h.
#include "anyaccel/ops/fp_quantizer.h"

#include <array>

#include "anyaccel/error.h"
#include "kernels/host/fp_quantizer_calls.h"
#include "ops/builders.h"
#include "ops/host/quant_support.h"
#include "ops/portable/portable_ops.h"
#include "ops/portable/quantizers.h"

namespace anyaccel::ops {
namespace {

// The formats, indexed by FpFormat. Columns: bits, mantissa bits, bias, code of the limit, first code that is not a
// number, limit.
constexpr std::array<aa_fp_format, 5> formats{{
    {8, 3, 7, 0x7e, 0x7f, 448.0f},
    {8, 2, 15, 0x7b, 0x7c, 57344.0f},
    {6, 2, 3, 0x1f, 0x20, 28.0f},
    {12, 7, 7, 0x7ff, 0x800, 510.0f},
    {4, 1, 1, 0x7, 0x8, 6.0f},
}};

const aa_fp_format& format_of(FpFormat format) {
  const auto index = static_cast<size_t>(format);
  if (index >= formats.size()) {
    throw InvalidArgument("there is no FpFormat with the number " + std::to_string(static_cast<int32_t>(format)));
  }
  return formats[index];
}

constexpr int64_t scale_bytes = 4;

int64_t row_bytes_of(const char* op, int64_t group_size, const aa_fp_format& format) {
  if (group_size < 1 || group_size > (int64_t{1} << 56) || group_size * format.bits % 32 != 0) {
    refuse_call(op, "groups of " + std::to_string(group_size) + " elements of " + std::to_string(format.bits) +
                        " bits are not a whole number of 32-bit words; choose another group size");
  }
  return group_size * format.bits / 8 + scale_bytes;
}

// Returns the group size that follows from the shape of the codes.
int64_t group_size_of(const char* op, const char* name, const Tensor& codes, const aa_fp_format& format) {
  check_dtype(op, name, codes, DType::U8);
  const int64_t code_bytes = codes.ndim() == 2 ? codes.size(1) - scale_bytes : 0;
  if (code_bytes < 1 || code_bytes % 4 != 0 || code_bytes * 8 % format.bits != 0) {
    refuse_call(op, std::string(name) + " must be [groups, group size * " + std::to_string(format.bits) +
                        " / 8 + 4], and is " + tensor_text(codes));
  }
  return code_bytes * 8 / format.bits;
}

}  // namespace

FpFormat fp_format(int bits, int mantissa_bits) {
  for (size_t i = 0; i < formats.size(); ++i) {
    const bool same = formats[i].mantissa_bits == mantissa_bits || (bits == 12 && mantissa_bits == 4);
    if (formats[i].bits == bits && same) return static_cast<FpFormat>(i);
  }
  throw InvalidArgument("there is no floating-point format of " + std::to_string(bits) + " bits with a mantissa of " +
                        std::to_string(mantissa_bits) + ": 8 with 3 or 2, 6 with 2, 12 with 7, and 4 with 1 exist");
}

int fp_format_bits(FpFormat format) { return format_of(format).bits; }
float fp_format_limit(FpFormat format) { return format_of(format).max_value; }

struct FPQuantizer::Impl {
  Accelerator& accelerator;
  std::unique_ptr<portable::FPQuantizerKernels> kernels;  // null if the accelerator has none
  std::shared_ptr<HostOpLibrary> code;
  void (*quantize)(const aa_fp_quantize_args*);
  void (*dequantize)(const aa_fp_dequantize_args*);

  Impl(Accelerator& active, std::shared_ptr<HostOpLibrary> loaded)
      : accelerator(active),
        kernels(portable::make_kernels<portable::FPQuantizerKernels>(active)),
        code(std::move(loaded)),
        quantize(code->function<void(const aa_fp_quantize_args*)>("fp_quantizer_quantize")),
        dequantize(code->function<void(const aa_fp_dequantize_args*)>("fp_quantizer_dequantize")) {}

  // Dequantizes the rows at `indexes`; all groups if that is empty.
  void run_dequantize(const char* op, const Tensor& out, const Tensor& codes, const Tensor& indexes,
                      int64_t groups_per_row, const aa_fp_format& format, int64_t group_size) {
    if (out.numel() == 0) return;
    const Tensor rows = indexes ? checked_rows(op, codes, indexes, groups_per_row) : Tensor();
    run_dense(accelerator, kernels != nullptr, op, {{&codes, HostUse::In}, {&rows, HostUse::In}, {&out, HostUse::Out}},
              [&](std::span<Tensor> t, std::optional<int> device) {
                aa_fp_dequantize_args args{};
                args.format = format;
                args.codes = t[0].data_as<uint8_t>();
                args.groups_per_row = groups_per_row;
                args.groups = out.numel() / group_size;
                args.group_size = group_size;
                args.out = t[2].data();
                args.dtype = static_cast<int32_t>(out.dtype());
                args.rows = t[1] ? t[1].data_as<int64_t>() : nullptr;
                device ? kernels->dequantize(args, *device) : dequantize(&args);
              });
  }

  // Returns the indexes as int64 on the device of `codes`; throws if an index is out of range. Waits for them.
  static Tensor checked_rows(const char* op, const Tensor& codes, const Tensor& indexes, int64_t groups_per_row) {
    const Tensor rows = indexes.to(Device{}).to(DType::I64).contiguous();
    const int64_t count = codes.size(0) / groups_per_row;
    const auto* row = rows.data_as<int64_t>();
    for (int64_t i = 0; i < rows.numel(); ++i) {
      if (row[i] >= 0 && row[i] < count) continue;
      throw InvalidArgument(std::string(op) + ": indexes[" + std::to_string(i) + "] is " + std::to_string(row[i]) +
                                ", and codes has " + std::to_string(count) + " rows",
                            AA_OUT_OF_RANGE);
    }
    return rows.to(codes.device());
  }

  // Checks the arguments that choose rows; returns the number of chosen rows.
  static int64_t check_rows(const char* op, const Tensor& codes, const Tensor& indexes, int64_t groups_per_row) {
    check_present(op, "indexes", indexes);
    if ((indexes.dtype() != DType::I32 && indexes.dtype() != DType::I64) || indexes.ndim() != 1) {
      refuse_call(op, "indexes must be int32 or int64 of one dimension, and is " + tensor_text(indexes));
    }
    if (groups_per_row < 1 || codes.size(0) % groups_per_row != 0) {
      refuse_call(op, "codes has " + std::to_string(codes.size(0)) + " groups, which are not a multiple of " +
                          std::to_string(groups_per_row) + " groups a row");
    }
    return indexes.size(0);
  }
};

FPQuantizer::FPQuantizer(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code)
    : impl_(std::make_unique<Impl>(accelerator, std::move(code))) {}
FPQuantizer::~FPQuantizer() = default;

Tensor FPQuantizer::quantize(const Tensor& x, int64_t group_size, FpFormat format, Generator* stochastic) {
  const char* op = "fp_quantize";
  check_float(op, "x", x);
  const int64_t row_bytes = row_bytes_of(op, group_size, format_of(format));
  if (x.numel() % group_size != 0) {
    refuse_call(op, "x is " + tensor_text(x) + ", whose elements are not a multiple of the group size " +
                        std::to_string(group_size));
  }
  const Tensor out = Tensor::empty({x.numel() / group_size, row_bytes}, DType::U8, x.device());
  quantize_into(out, x, format, stochastic);
  return out;
}

void FPQuantizer::quantize_into(const Tensor& out, const Tensor& x, FpFormat format, Generator* stochastic) {
  const char* op = "fp_quantize";
  check_float(op, "x", x);
  const int64_t group_size = group_size_of(op, "out", out, format_of(format));
  if (out.size(0) * group_size != x.numel()) {
    refuse_call(op, "out is " + tensor_text(out) + " for " + std::to_string(out.size(0) * group_size) +
                        " elements, and x is " + tensor_text(x));
  }
  if (x.numel() == 0) return;
  const DrawState draw = draw_words(stochastic, x.numel());
  run_dense(impl_->accelerator, impl_->kernels != nullptr, op, {{&x, HostUse::In}, {&out, HostUse::Out}},
            [&](std::span<Tensor> t, std::optional<int> device) {
              aa_fp_quantize_args args{};
              args.format = format_of(format);
              args.x = t[0].data();
              args.dtype = static_cast<int32_t>(x.dtype());
              args.stochastic = draw.stochastic;
              args.groups = out.size(0);
              args.group_size = group_size;
              args.seed = draw.seed;
              args.offset = draw.offset;
              args.out = t[1].data_as<uint8_t>();
              device ? impl_->kernels->quantize(args, *device) : impl_->quantize(&args);
            });
}

Tensor FPQuantizer::dequantize(const Tensor& codes, FpFormat format, DType dtype) {
  const char* op = "fp_dequantize";
  const int64_t group_size = group_size_of(op, "codes", codes, format_of(format));
  check_float_dtype(op, dtype);
  const Tensor out = Tensor::empty({codes.size(0), group_size}, dtype, codes.device());
  dequantize_into(out, codes, format);
  return out;
}

void FPQuantizer::dequantize_into(const Tensor& out, const Tensor& codes, FpFormat format) {
  const char* op = "fp_dequantize";
  const int64_t group_size = group_size_of(op, "codes", codes, format_of(format));
  check_float(op, "out", out);
  check_numel(op, "out", out, codes.size(0) * group_size);
  impl_->run_dequantize(op, out, codes, {}, 1, format_of(format), group_size);
}

Tensor FPQuantizer::selective_dequantize(const Tensor& codes, const Tensor& indexes, int64_t groups_per_row,
                                         FpFormat format, DType dtype) {
  const char* op = "selective_dequantize";
  const int64_t group_size = group_size_of(op, "codes", codes, format_of(format));
  check_float_dtype(op, dtype);
  const int64_t rows = Impl::check_rows(op, codes, indexes, groups_per_row);
  const Tensor out = Tensor::empty({rows, groups_per_row * group_size}, dtype, codes.device());
  impl_->run_dequantize(op, out, codes, indexes, groups_per_row, format_of(format), group_size);
  return out;
}

void FPQuantizer::selective_dequantize_into(const Tensor& out, const Tensor& codes, const Tensor& indexes,
                                            FpFormat format) {
  const char* op = "selective_dequantize";
  const int64_t group_size = group_size_of(op, "codes", codes, format_of(format));
  check_float(op, "out", out);
  check_present(op, "indexes", indexes);
  const int64_t rows = out.ndim() ? out.size(0) : 0;
  const int64_t row = rows ? out.numel() / rows : 0;
  if (out.ndim() < 1 || rows != indexes.numel() || row % group_size != 0) {
    refuse_call(op, "out must have a row for each of the " + std::to_string(indexes.numel()) +
                        " indexes, made of groups of " + std::to_string(group_size) + " elements, and is " +
                        tensor_text(out));
  }
  const int64_t groups_per_row = row ? row / group_size : 1;
  Impl::check_rows(op, codes, indexes, groups_per_row);
  impl_->run_dequantize(op, out, codes, indexes, groups_per_row, format_of(format), group_size);
}

Tensor FPQuantizer::get_scales(const Tensor& codes) {
  const char* op = "get_scales";
  check_dtype(op, "codes", codes, DType::U8);
  if (codes.ndim() != 2 || codes.size(1) < 2 * scale_bytes || codes.size(1) % 4 != 0 || codes.stride(1) != 1 ||
      codes.stride(0) % 4 != 0 || codes.storage_offset() % 4 != 0) {
    refuse_call(op, "codes must be [groups, group size * bits / 8 + 4] with dense rows, and is " + tensor_text(codes));
  }
  if (codes.numel() == 0) return Tensor::empty({0}, DType::F32, codes.device());
  const std::array<int64_t, 1> strides{codes.stride(0) / 4};
  return Tensor(codes.storage(), DType::F32, Shape{codes.size(0)}, strides,
                (codes.storage_offset() + codes.size(1) - scale_bytes) / 4);
}

std::unique_ptr<OpBuilder> make_fp_quantizer_builder(Accelerator& accelerator) {
  return std::make_unique<BundledOpBuilder<FPQuantizer>>("FPQuantizerBuilder",
                                                         std::vector<std::string>{"fp_quantizer.cpp"}, accelerator);
}

}  // namespace anyaccel::ops
