// Implements ops::RandomLTD with the ops that gather and scatter rows, embedding and cache_write.
#include "anyaccel/ops/random_ltd.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "anyaccel/accelerator.h"
#include "anyaccel/philox.h"
#include "ops/builders.h"
#include "ops/host/host_tensors.h"
#include "ops/layers/argument_checks.h"
#include "runtime/ops/included_op_builder.h"

namespace anyaccel::ops {
namespace {

void check_floats(ArgumentChecks& check, const char* name, const Tensor& tensor) {
  check.one_of(name, tensor, {DType::F32, DType::F16, DType::BF16});
}

// Returns [S, B, C] as [B, S, C].
Tensor by_sequence(const Tensor& x, bool batch_first) { return batch_first ? x : x.transpose(0, 1); }

Shape shape_of(bool batch_first, int64_t batch, int64_t tokens, int64_t size) {
  return batch_first ? Shape{batch, tokens, size} : Shape{tokens, batch, size};
}

// Writes the rows of `layer` to the rows idx of `all`; both are by sequence.
void scatter(Training& ops, const Tensor& all, const Tensor& layer, const Tensor& idx) {
  if (layer.numel() == 0) return;
  const Tensor first = Tensor::zeros({idx.size(1)}, DType::I32, all.device());
  // The op writes two caches, and there is only one.
  const Tensor unused = Tensor::empty({1, 1, all.size(1), all.size(2)}, all.dtype(), all.device());
  for (int64_t n = 0; n < idx.size(0); ++n) {
    const Tensor to = all.select(0, n).unsqueeze(0).unsqueeze(0);
    const Tensor from = layer.select(0, n).unsqueeze(1);
    ops.cache_write(to, unused, from, from, first, idx.select(0, n));
  }
}

}  // namespace

Tensor RandomLTD::token_sort_(const Tensor& ids, int64_t original_tokens) {
  ArgumentChecks check(accelerator_, "token_sort_");
  check.dtype("ids", ids, DType::I32);
  check.rank("ids", ids, 3, "[layers, B, reserved]");
  check.require(ids.size(2) <= original_tokens,
                "ids has " + std::to_string(ids.size(2)) +
                    " values a row, expected at most original_tokens = " + std::to_string(original_tokens));
  // Made before run_on_host() waits: where the host reaches the device's memory, the copy is still work of the device.
  const Tensor rows = ids.contiguous();
  const HostTensor tensors[] = {{&rows, HostUse::InOut}};
  run_on_host(accelerator_, "token_sort_", tensors, [&](std::span<Tensor> t) {
    auto* const values = t[0].data_as<int32_t>();
    const int64_t size = rows.size(2);
    for (int64_t r = 0; r < rows.size(0) * rows.size(1); ++r) {
      int32_t* const row = values + r * size;
      for (int64_t i = 0; i < size; ++i) {
        check.require(row[i] >= 0 && row[i] < original_tokens,
                      "ids holds " + std::to_string(row[i]) +
                          ", expected numbers from 0 to below original_tokens = " + std::to_string(original_tokens));
      }
      std::sort(row, row + size);
    }
  });
  if (!ids.is_contiguous()) ids.copy_from(rows);
  return ids;
}

Tensor RandomLTD::token_gather(const Tensor& x, const Tensor& idx, bool batch_first) {
  ArgumentChecks check(accelerator_, "token_gather");
  check_floats(check, "x", x);
  check.rank("x", x, 3, batch_first ? "[B, S, C]" : "[S, B, C]");
  check.dtype("idx", idx, DType::I32);
  check.rank("idx", idx, 2, "[B, R]");
  const Tensor from = by_sequence(x, batch_first);
  check.tensor("idx", idx, DType::I32, {from.size(0), idx.size(1)});
  const Tensor out =
      Tensor::empty(shape_of(batch_first, from.size(0), idx.size(1), from.size(2)), x.dtype(), x.device());
  const Tensor to = by_sequence(out, batch_first);
  for (int64_t n = 0; n < from.size(0) && out.numel() > 0; ++n) {
    ops_.embedding(to.select(0, n), from.select(0, n), idx.select(0, n));
  }
  return out;
}

Tensor RandomLTD::token_scatter_(const Tensor& all, const Tensor& layer, const Tensor& idx, bool batch_first) {
  ArgumentChecks check(accelerator_, "token_scatter_");
  check_floats(check, "all", all);
  check.rank("all", all, 3, batch_first ? "[B, S, C]" : "[S, B, C]");
  check.dtype("idx", idx, DType::I32);
  check.rank("idx", idx, 2, "[B, R]");
  const Tensor to = by_sequence(all, batch_first);
  check.tensor("idx", idx, DType::I32, {to.size(0), idx.size(1)});
  check.tensor("layer", layer, all.dtype(), shape_of(batch_first, to.size(0), idx.size(1), to.size(2)));
  scatter(ops_, to, by_sequence(layer, batch_first), idx);
  return all;
}

Tensor RandomLTD::mask_gather_bert(const Tensor& mask, const Tensor& idx) {
  ArgumentChecks check(accelerator_, "mask_gather_bert");
  check_floats(check, "mask", mask);
  check.rank("mask", mask, 4, "[B, 1, S, S]");
  const int64_t batch = mask.size(0), tokens = mask.size(2);
  check.tensor("mask", mask, mask.dtype(), {batch, 1, tokens, tokens});
  check.rank("idx", idx, 3, "[layers, B, R]");
  const int64_t layers = idx.size(0), reserved = idx.size(2);
  check.tensor("idx", idx, DType::I32, {layers, batch, reserved});
  const Tensor out = Tensor::empty({layers, batch, 1, reserved, reserved}, mask.dtype(), mask.device());
  if (out.numel() == 0) return out;
  const Tensor rows = Tensor::empty({reserved, tokens}, mask.dtype(), mask.device());
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (int64_t n = 0; n < batch; ++n) {
      const Tensor which = idx.select(0, layer).select(0, n);
      ops_.embedding(rows, mask.select(0, n).select(0, 0), which);
      ops_.embedding(out.select(0, layer).select(0, n).select(0, 0).transpose(0, 1), rows.transpose(0, 1), which);
    }
  }
  return out;
}

Tensor RandomLTD::mask_gather_gpt(const Tensor& mask, int64_t reserved) {
  ArgumentChecks check(accelerator_, "mask_gather_gpt");
  check_floats(check, "mask", mask);
  check.rank("mask", mask, 4, "[B, 1, S, S]");
  check.tensor("mask", mask, mask.dtype(), {mask.size(0), 1, mask.size(2), mask.size(2)});
  check.require(reserved >= 0 && reserved <= mask.size(2), "reserved is " + std::to_string(reserved) +
                                                               ", expected 0 to " + std::to_string(mask.size(2)) +
                                                               ", the mask's size");
  return mask.slice(2, 0, reserved).slice(3, 0, reserved).clone();
}

Tensor RandomLTD::token_gather_backward(const Tensor& grad, const Tensor& idx, int64_t tokens, bool batch_first) {
  ArgumentChecks check(accelerator_, "token_gather_backward");
  check_floats(check, "grad", grad);
  check.rank("grad", grad, 3, batch_first ? "[B, R, C]" : "[R, B, C]");
  const Tensor from = by_sequence(grad, batch_first);
  check.tensor("idx", idx, DType::I32, {from.size(0), from.size(1)});
  check.require(tokens >= from.size(1), "tokens is " + std::to_string(tokens) + ", expected at least " +
                                            std::to_string(from.size(1)) + ", the gathered ones");
  const Tensor out =
      Tensor::zeros(shape_of(batch_first, from.size(0), tokens, from.size(2)), grad.dtype(), grad.device());
  scatter(ops_, by_sequence(out, batch_first), from, idx);
  return out;
}

std::pair<Tensor, Tensor> RandomLTD::token_scatter_backward(const Tensor& grad, const Tensor& idx, bool batch_first) {
  const Tensor layer = token_gather(grad, idx, batch_first);
  const Tensor all = grad.clone();
  return {token_scatter_(all, Tensor::zeros(layer.shape(), layer.dtype(), layer.device()), idx, batch_first), layer};
}

Tensor RandomLTD::sample(const char* function, int64_t reserved, int64_t tokens, int64_t batch, int64_t layers,
                         const Device& device) {
  const ArgumentChecks check(accelerator_, function);
  const auto at_least_0 = [&](const char* name, int64_t value) {
    check.require(value >= 0, std::string(name) + " is " + std::to_string(value) + ", expected at least 0");
  };
  at_least_0("tokens", tokens);
  at_least_0("batch", batch);
  at_least_0("layers", layers);
  check.require(reserved >= 0 && reserved <= tokens,
                "reserved is " + std::to_string(reserved) + ", expected 0 to tokens = " + std::to_string(tokens));
  check.require(device.accelerator == &accelerator_ || (device.is_host() && accelerator_.is_host_coherent()),
                "device is " + device.name() + ", expected one of " + accelerator_.name());
  // Draws the first `reserved` places of a shuffled row, each with 64 bits, so that no place is likelier by more than
  // 2^-32.
  const int64_t rows = layers * batch;
  const int index = device.accelerator == &accelerator_ ? device.index : 0;
  const RngState state =
      accelerator_.default_generator(index).reserve(static_cast<uint64_t>((rows * reserved + 1) / 2));
  std::vector<int32_t> drawn;
  std::vector<int32_t> row(static_cast<size_t>(tokens));
  uint64_t draws = 0;
  for (int64_t r = 0; r < rows; ++r) {
    std::iota(row.begin(), row.end(), 0);
    for (int64_t i = 0; i < reserved; ++i, ++draws) {
      const auto words = philox_words(state.seed, state.offset + draws / 2);
      const uint64_t bits = uint64_t{words[2 * (draws % 2) + 1]} << 32 | words[2 * (draws % 2)];
      const auto other = static_cast<size_t>(i) + bits % static_cast<uint64_t>(tokens - i);
      std::swap(row[static_cast<size_t>(i)], row[other]);
    }
    std::sort(row.begin(), row.begin() + reserved);
    drawn.insert(drawn.end(), row.begin(), row.begin() + reserved);
  }
  return Tensor::from_host(drawn.data(), {layers, batch, reserved}, DType::I32, device);
}

std::pair<Tensor, Tensor> RandomLTD::gpt_sample_tokens(int64_t reserved, int64_t tokens, int64_t batch, int64_t layers,
                                                       const Device& device, const Tensor& attn_mask) {
  const Tensor ids = sample("gpt_sample_tokens", reserved, tokens, batch, layers, device);
  return {ids, attn_mask ? mask_gather_gpt(attn_mask, reserved) : Tensor()};
}

std::pair<Tensor, std::vector<Tensor>> RandomLTD::bert_sample_tokens(int64_t reserved, int64_t tokens, int64_t batch,
                                                                     int64_t layers, const Device& device,
                                                                     const Tensor& attn_mask) {
  const Tensor ids = sample("bert_sample_tokens", reserved, tokens, batch, layers, device);
  std::vector<Tensor> masks;
  const Tensor all = mask_gather_bert(attn_mask, ids);
  for (int64_t layer = 0; layer < layers; ++layer) masks.push_back(all.select(0, layer));
  return {ids, masks};
}

std::unique_ptr<OpBuilder> make_random_ltd_builder(Accelerator& accelerator) {
  return std::make_unique<IncludedOpBuilder<RandomLTD>>("RandomLTDBuilder", accelerator);
}

}  // namespace anyaccel::ops
