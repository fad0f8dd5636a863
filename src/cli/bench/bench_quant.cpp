// Implements bench quant: compares the quantizers' bandwidth (bytes read and written) with the best copy of the same
// process.
#include <algorithm>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/fp_quantizer.h"
#include "anyaccel/ops/inference.h"
#include "anyaccel/ops/quantizer.h"
#include "cli/bench/bench.h"

namespace anyaccel::cli::bench {
namespace {

// Elements of a group: DeepSpeed's usual sizes.
constexpr int64_t kGroup = 2048;
constexpr int64_t kFpGroup = 512;

size_t bytes_of(const ops::Quantized& q) { return q.values.nbytes() + q.params.nbytes(); }

}  // namespace

void run_quant(const Options& options, std::vector<Result>& results) {
  Accelerator& accelerator = *get_accelerator();
  const Device device = accelerator.device();
  auto inference = accelerator.create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  auto quantizer = accelerator.create_op_builder("QuantizerBuilder")->load_as<ops::Quantizer>();
  auto fp_quantizer = accelerator.create_op_builder("FPQuantizerBuilder")->load_as<ops::FPQuantizer>();
  // The copy's speed is measured around each run, as briefly as the run.
  Options brief = options;
  brief.seconds = std::min(options.seconds, 0.1);
  const auto measure = [&](const char* name, size_t bytes, const std::function<void()>& body) {
    Result result{.name = name, .unit = "GB/s", .ceiling_name = "best copy (read + written bytes)"};
    std::vector<double> values;
    const std::vector<double> copies = ceilings_in_turns(
        AA_CEILING_COPY, brief, [&] { values.push_back(1e-9 * static_cast<double>(bytes) / seconds_a_call(body)); });
    summarize_turns(result, values, scaled(copies, 1e-9), false);
    results.push_back(result);
  };

  // The input has half of the bytes, so that input and output together are about as large as the data that the copy
  // moves.
  const auto bytes = static_cast<int64_t>(std::max(options.bytes / 2, size_t{1} << 20));
  {
    const int64_t count = bytes / 4 / kGroup * kGroup, groups = count / kGroup;
    const Tensor x = Tensor::empty({count}, DType::F32, device);
    inference->random(x, AA_RANDOM_UNIFORM, 1, 0, -1.0, 1.0);
    const ops::Quantized q8 = quantizer->quantize(x, groups, 8), q4 = quantizer->quantize(x, groups, 4);
    const ops::Quantized skew = quantizer->quantize(x, groups, 8, ops::QuantKind::Asymmetric);
    Generator generator;
    measure("quant.int8", x.nbytes() + bytes_of(q8), [&] { quantizer->quantize_into(q8, x); });
    measure("quant.int8_asym", x.nbytes() + bytes_of(skew), [&] { quantizer->quantize_into(skew, x); });
    measure("quant.int8_sr", x.nbytes() + bytes_of(q8), [&] { quantizer->quantize_into(q8, x, &generator); });
    measure("quant.int4", x.nbytes() + bytes_of(q4), [&] { quantizer->quantize_into(q4, x); });
    measure("dequant.int8", x.nbytes() + bytes_of(q8), [&] { quantizer->dequantize_into(x, q8); });
    measure("dequant.int4", x.nbytes() + bytes_of(q4), [&] { quantizer->dequantize_into(x, q4); });
  }
  const int64_t count = bytes / 2 / kGroup * kGroup;
  const Tensor x = Tensor::empty({count}, DType::BF16, device);
  inference->random(x, AA_RANDOM_UNIFORM, 2, 0, -1.0, 1.0);
  {
    const ops::Quantized q8 = quantizer->quantize(x, count / kGroup, 8);
    measure("quant.int8_bf16", x.nbytes() + bytes_of(q8), [&] { quantizer->quantize_into(q8, x); });
  }
  const struct {
    ops::FpFormat format;
    const char *quantize, *dequantize;
  } formats[] = {{ops::FpFormat::E4M3, "quant.fp8", "dequant.fp8"},
                 {ops::FpFormat::E3M2, "quant.fp6", "dequant.fp6"},
                 {ops::FpFormat::E4M7, "quant.fp12", "dequant.fp12"}};
  for (const auto& f : formats) {
    const Tensor codes = fp_quantizer->quantize(x, kFpGroup, f.format);
    measure(f.quantize, x.nbytes() + codes.nbytes(), [&] { fp_quantizer->quantize_into(codes, x, f.format); });
    measure(f.dequantize, x.nbytes() + codes.nbytes(), [&] { fp_quantizer->dequantize_into(x, codes, f.format); });
  }
  accelerator.empty_cache();
}

}  // namespace anyaccel::cli::bench
