// References of the ops that work element by element: embedding, embedding_shard, quantized_embedding,
// quantized_embedding_shard, activation, gated_activation, add, copy, increment, repetition_penalty, frequency_penalty and
// random.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <span>
#include <vector>

#include "accelerators/cpu/kernels/checks.h"
#include "accelerators/cpu/ops.h"
#include "accelerators/cpu/reference/element_access.h"
#include "anyaccel/philox.h"
#include "base/block_format.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::cpu {
namespace {

double activate(double x, int kind) {
  switch (kind) {
    case AA_ACTIVATION_SILU: return x / (1 + std::exp(-x));
    case AA_ACTIVATION_GELU: return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case AA_ACTIVATION_GELU_TANH: {
      // 0.5 (1 + tanh(u)) = sigmoid(2u), which keeps its precision for large negative u.
      const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return x / (1 + std::exp(-2 * u));
    }
    case AA_ACTIVATION_RELU: return x < 0 ? 0 : x;
    case AA_ACTIVATION_SIGMOID: return 1 / (1 + std::exp(-x));
    default: return std::tanh(x);
  }
}

int activation_kind(const aa_op_call& call) { return params_of<aa_activation_params>(call).kind; }

// Word number `n` of the stream of words that "random" draws from.
uint32_t random_word(const aa_random_params& params, uint64_t n) {
  return philox_words(params.seed, params.offset + n / 4)[n % 4];
}

}  // namespace

void embedding_reference(const aa_op_call& call) {
  const Elements out(call.tensors[0]), table(call.tensors[1]), ids(call.tensors[2]);
  check_indices("embedding", "ids", call.tensors[2], table.dim(0), "rows of the table");
  for (int64_t t = 0; t < out.dim(0); ++t) {
    for (int64_t i = 0; i < out.dim(1); ++i) {
      out.set(out.at(t, i), table.get(table.at(ids.get_integer(ids.at(t)), i)));
    }
  }
}

void embedding_shard_reference(const aa_op_call& call) {
  const Elements out(call.tensors[0]), table(call.tensors[1]), ids(call.tensors[2]);
  const int64_t first = params_of<aa_embedding_shard_params>(call).first;
  for (int64_t t = 0; t < out.dim(0); ++t) {
    const int64_t id = ids.get_integer(ids.at(t));
    const bool here = id >= first && id - first < table.dim(0);
    for (int64_t i = 0; i < out.dim(1); ++i) out.set(out.at(t, i), here ? table.get(table.at(id - first, i)) : 0);
  }
}

void quantized_embedding_reference(const aa_op_call& call) {
  const Elements out(call.tensors[0]), ids(call.tensors[2]);
  const aa_tensor& table = call.tensors[1];
  const BlockFormat& format = *find_block_format(static_cast<uint32_t>(params_of<aa_quantized_params>(call).format));
  check_indices("quantized_embedding", "ids", call.tensors[2], table.shape[0], "rows of the table");
  std::vector<float> row(static_cast<size_t>(out.dim(1)));
  for (int64_t t = 0; t < out.dim(0); ++t) {
    const auto* blocks = static_cast<const std::byte*>(table.data) + ids.get_integer(ids.at(t)) * table.strides[0];
    decode_blocks(format, std::span(blocks, static_cast<size_t>(table.shape[1])), row);
    for (int64_t i = 0; i < out.dim(1); ++i) out.set(out.at(t, i), static_cast<double>(row[static_cast<size_t>(i)]));
  }
}

void quantized_embedding_shard_reference(const aa_op_call& call) {
  const Elements out(call.tensors[0]), ids(call.tensors[2]);
  const aa_tensor& table = call.tensors[1];
  const auto& params = params_of<aa_quantized_shard_params>(call);
  const BlockFormat& format = *find_block_format(static_cast<uint32_t>(params.format));
  std::vector<float> row(static_cast<size_t>(out.dim(1)));
  for (int64_t t = 0; t < out.dim(0); ++t) {
    const int64_t id = ids.get_integer(ids.at(t));
    if (id >= params.first && id - params.first < table.shape[0]) {
      const auto* blocks = static_cast<const std::byte*>(table.data) + (id - params.first) * table.strides[0];
      decode_blocks(format, std::span(blocks, static_cast<size_t>(table.shape[1])), row);
    } else {
      std::ranges::fill(row, 0.0F);
    }
    for (int64_t i = 0; i < out.dim(1); ++i) out.set(out.at(t, i), static_cast<double>(row[static_cast<size_t>(i)]));
  }
}

void activation_reference(const aa_op_call& call) {
  const Elements out(call.tensors[0]), x(call.tensors[1]);
  for (int64_t i = 0; i < x.count(); ++i) out.set(out.flat(i), activate(x.get(x.flat(i)), activation_kind(call)));
}

void gated_activation_reference(const aa_op_call& call) {
  const Elements out(call.tensors[0]), gate(call.tensors[1]), up(call.tensors[2]);
  for (int64_t i = 0; i < gate.count(); ++i) {
    out.set(out.flat(i), activate(gate.get(gate.flat(i)), activation_kind(call)) * up.get(up.flat(i)));
  }
}

void add_reference(const aa_op_call& call) {
  const Elements out(call.tensors[0]), a(call.tensors[1]), b(call.tensors[2]);
  for (int64_t i = 0; i < a.count(); ++i) out.set(out.flat(i), a.get(a.flat(i)) + b.get(b.flat(i)));
}

void copy_reference(const aa_op_call& call) {
  const Elements out(call.tensors[0]), x(call.tensors[1]);
  for (int64_t i = 0; i < x.count(); ++i) {
    if (is_floating(x.dtype())) {
      out.set(out.flat(i), x.get(x.flat(i)));
    } else {
      out.set(out.flat(i), x.get_integer(x.flat(i)));
    }
  }
}

void increment_reference(const aa_op_call& call) {
  const int64_t amount = params_of<aa_increment_params>(call).amount;
  const Elements x(call.tensors[0]);
  for (int64_t i = 0; i < x.count(); ++i) {
    // Unsigned, so that it wraps.
    const uint64_t sum = static_cast<uint64_t>(x.get_integer(x.flat(i))) + static_cast<uint64_t>(amount);
    x.set(x.flat(i), static_cast<int64_t>(sum));
  }
}

void repetition_penalty_reference(const aa_op_call& call) {
  const double penalty = params_of<aa_repetition_params>(call).penalty;
  const Elements logits(call.tensors[0]), seen(call.tensors[1]);
  for (int64_t i = 0; i < logits.count(); ++i) {
    if (seen.get_integer(seen.flat(i)) == 0) continue;
    const double logit = logits.get(logits.flat(i));
    logits.set(logits.flat(i), logit > 0 ? logit / penalty : logit * penalty);
  }
}

void frequency_penalty_reference(const aa_op_call& call) {
  const auto& params = params_of<aa_frequency_params>(call);
  const Elements logits(call.tensors[0]), counts(call.tensors[1]), ids(call.tensors[2]);
  for (int64_t row = 0; row < logits.dim(0); ++row) {
    const int64_t newest = ids.present() ? ids.get_integer(ids.at(row)) : -1;
    for (int64_t i = 0; i < logits.dim(1); ++i) {
      const int64_t count = counts.get_integer(counts.at(row, i)) + (i == newest ? 1 : 0);
      if (i == newest) counts.set(counts.at(row, i), count);
      if (count == 0) continue;
      const double penalty =
          static_cast<double>(params.frequency) * static_cast<double>(count) + static_cast<double>(params.presence);
      logits.set(logits.at(row, i), logits.get(logits.at(row, i)) - penalty);
    }
  }
}

void random_reference(const aa_op_call& call) {
  const auto& params = params_of<aa_random_params>(call);
  const Elements out(call.tensors[0]);
  const float low = static_cast<float>(params.low);
  const float range = static_cast<float>(params.high) - low;
  for (int64_t i = 0; i < out.count(); ++i) {
    const uint64_t n = static_cast<uint64_t>(i);
    switch (params.kind) {
      case AA_RANDOM_UNIFORM: {
        const volatile float product = range * philox_unit(random_word(params, n));  // volatile: rounded before the sum
        out.set(out.flat(i), low + product);
        break;
      }
      case AA_RANDOM_NORMAL: {
        const double first = static_cast<double>((random_word(params, n & ~uint64_t{1}) >> 8) + 1) * 0x1p-24;
        const double second = static_cast<double>(random_word(params, n | 1) >> 8) * 0x1p-24;
        const double radius = std::sqrt(-2 * std::log(first)), angle = 2 * std::numbers::pi * second;
        const double value = radius * (n % 2 == 0 ? std::cos(angle) : std::sin(angle));
        out.set(out.flat(i), params.low + params.high * value);
        break;
      }
      default:
        if (out.dtype() == DType::I64) {
          const uint64_t high = random_word(params, 2 * n + 1);
          out.set(out.flat(i), static_cast<int64_t>(high << 32 | random_word(params, 2 * n)));
        } else {
          out.set(out.flat(i), static_cast<int64_t>(random_word(params, n)));
        }
    }
  }
}

}  // namespace anyaccel::cpu
