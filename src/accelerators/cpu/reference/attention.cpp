// References of the ops around attention: rope_table, rope, cache_write, attention, and the two with quantized caches.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "accelerators/cpu/kernels/checks.h"
#include "accelerators/cpu/ops.h"
#include "accelerators/cpu/reference/element_access.h"
#include "base/block_format.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::cpu {

void rope_table_reference(const aa_op_call& call) {
  const float scale = params_of<aa_rope_table_params>(call).scale;
  const Elements cosine(call.tensors[0]), sine(call.tensors[1]), inv_freq(call.tensors[2]), positions(call.tensors[3]);
  for (int64_t t = 0; t < cosine.dim(0); ++t) {
    for (int64_t r = 0; r < cosine.dim(1); ++r) {
      const float frequency = static_cast<float>(inv_freq.get(inv_freq.at(r)));
      const float angle = static_cast<float>(positions.get_integer(positions.at(t))) * frequency;
      cosine.set(cosine.at(t, r), std::cos(static_cast<double>(angle)) * scale);
      sine.set(sine.at(t, r), std::sin(static_cast<double>(angle)) * scale);
    }
  }
}

void rope_reference(const aa_op_call& call) {
  const bool interleaved = params_of<aa_rope_params>(call).interleaved != 0;
  const Elements cosine(call.tensors[2]), sine(call.tensors[3]);
  for (int tensor = 0; tensor < 2; ++tensor) {
    const Elements x(call.tensors[tensor]);
    if (!x.present()) continue;
    for (int64_t t = 0; t < x.dim(0); ++t) {
      for (int64_t head = 0; head < x.dim(1); ++head) {
        for (int64_t r = 0; r < cosine.dim(1); ++r) {
          void* first = x.at(t, head, interleaved ? 2 * r : r);
          void* second = x.at(t, head, interleaved ? 2 * r + 1 : r + cosine.dim(1));
          const double c = cosine.get(cosine.at(t, r)), s = sine.get(sine.at(t, r));
          const double a = x.get(first), b = x.get(second);
          x.set(first, a * c - b * s);
          x.set(second, b * c + a * s);
        }
      }
    }
  }
}

void cache_write_reference(const aa_op_call& call) {
  const Elements sequence(call.tensors[4]), positions(call.tensors[5]);
  check_indices("cache_write", "sequence", call.tensors[4], call.tensors[0].shape[0], "sequences in the cache");
  check_indices("cache_write", "positions", call.tensors[5], call.tensors[0].shape[2], "slots in the cache");
  for (int tensor = 0; tensor < 2; ++tensor) {
    const Elements cache(call.tensors[tensor]), x(call.tensors[tensor + 2]);
    for (int64_t t = 0; t < x.dim(0); ++t) {
      const int64_t b = sequence.get_integer(sequence.at(t)), slot = positions.get_integer(positions.at(t));
      for (int64_t head = 0; head < x.dim(1); ++head) {
        for (int64_t d = 0; d < x.dim(2); ++d) cache.set(cache.at(b, head, slot, d), x.get(x.at(t, head, d)));
      }
    }
  }
}

namespace {

// Writes 32 values as a block of AA_BLOCK_Q8_0.
void write_block(std::span<const float> values, uint8_t* block) {
  float largest = 0;
  bool finite = true;
  for (const float value : values) {
    finite = finite && std::isfinite(value);
    largest = std::max(largest, std::fabs(value));
  }
  uint16_t d = float_to_fp16(largest / 127.0f);
  if (!finite || !std::isfinite(fp16_to_float(d))) d = float_to_fp16(std::nanf(""));
  const float scale = fp16_to_float(d);
  std::memcpy(block, &d, sizeof d);
  for (size_t i = 0; i < values.size(); ++i) {
    const float q = scale > 0 ? std::clamp(std::nearbyint(values[i] / scale), -127.0f, 127.0f) : 0.0f;
    block[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(q));
  }
}

void write_e4m3(std::span<const float> values, uint8_t* bytes) {
  for (size_t i = 0; i < values.size(); ++i) {
    bytes[i] = std::isfinite(values[i]) ? float_to_fp8(std::clamp(values[i], -448.0f, 448.0f), kE4M3) : uint8_t{0x7f};
  }
}

}  // namespace

void quantized_cache_write_reference(const aa_op_call& call) {
  const bool is_e4m3 = params_of<aa_cache_params>(call).format == AA_CACHE_F8_E4M3;
  const Elements sequence(call.tensors[4]), positions(call.tensors[5]);
  check_indices("quantized_cache_write", "sequence", call.tensors[4], call.tensors[0].shape[0],
                "sequences in the cache");
  check_indices("quantized_cache_write", "positions", call.tensors[5], call.tensors[0].shape[2], "slots in the cache");
  for (int tensor = 0; tensor < 2; ++tensor) {
    const Elements cache(call.tensors[tensor]), x(call.tensors[tensor + 2]);
    for (int64_t t = 0; t < x.dim(0); ++t) {
      const int64_t b = sequence.get_integer(sequence.at(t)), slot = positions.get_integer(positions.at(t));
      for (int64_t head = 0; head < x.dim(1); ++head) {
        for (int64_t first = 0; first < x.dim(2); first += 32) {
          std::array<float, 32> values{};
          for (int64_t i = 0; i < 32; ++i) {
            values[static_cast<size_t>(i)] = static_cast<float>(x.get(x.at(t, head, first + i)));
          }
          if (is_e4m3) {
            write_e4m3(values, static_cast<uint8_t*>(cache.at(b, head, slot, first)));
          } else {
            write_block(values, static_cast<uint8_t*>(cache.at(b, head, slot, first / 32 * 34)));
          }
        }
      }
    }
  }
}

void attention_reference(const aa_op_call& call) {
  const auto& params = params_of<aa_attention_params>(call);
  const Elements out(call.tensors[0]), q(call.tensors[1]), k(call.tensors[2]), v(call.tensors[3]);
  const Elements sequence(call.tensors[4]), positions(call.tensors[5]);
  const Elements slopes(call.tensors[6]), sinks(call.tensors[7]);
  check_indices("attention", "sequence", call.tensors[4], k.dim(0), "sequences in the cache");
  check_indices("attention", "positions", call.tensors[5], k.dim(2), "slots in the cache");
  const int64_t heads = q.dim(1), head_size = q.dim(2);
  std::vector<double> scores, sum(static_cast<size_t>(head_size));
  for (int64_t t = 0; t < q.dim(0); ++t) {
    const int64_t b = sequence.get_integer(sequence.at(t)), position = positions.get_integer(positions.at(t));
    const int64_t begin = params.window > 0 ? std::max<int64_t>(0, position - params.window + 1) : 0;
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t kv_head = head / (heads / k.dim(1));
      const double sink = sinks.present() ? sinks.get(sinks.at(head)) : -std::numeric_limits<double>::infinity();
      double largest = sink;
      scores.clear();
      for (int64_t j = begin; j <= position; ++j) {
        double score = 0;
        for (int64_t d = 0; d < head_size; ++d) score += q.get(q.at(t, head, d)) * k.get(k.at(b, kv_head, j, d));
        score *= params.scale;
        if (params.softcap > 0) score = params.softcap * std::tanh(score / params.softcap);
        if (slopes.present()) score += slopes.get(slopes.at(head)) * static_cast<double>(j - position);
        scores.push_back(score);
        largest = std::max(largest, score);
      }
      double total = sinks.present() ? std::exp(sink - largest) : 0;
      std::fill(sum.begin(), sum.end(), 0.0);
      for (int64_t j = begin; j <= position; ++j) {
        const double weight = std::exp(scores[static_cast<size_t>(j - begin)] - largest);
        total += weight;
        for (int64_t d = 0; d < head_size; ++d) sum[static_cast<size_t>(d)] += weight * v.get(v.at(b, kv_head, j, d));
      }
      for (int64_t d = 0; d < head_size; ++d) out.set(out.at(t, head, d), sum[static_cast<size_t>(d)] / total);
    }
  }
}

void quantized_attention_reference(const aa_op_call& call) {
  const auto& params = params_of<aa_quantized_attention_params>(call);
  const int64_t head_size = call.tensors[1].shape[2];
  // Both caches, decoded to F32 [B,Hk,S,D].
  std::vector<float> decoded[2];
  aa_tensor tensors[8];
  std::copy_n(call.tensors, 8, tensors);
  for (int i = 0; i < 2; ++i) {
    if (params.format == AA_CACHE_F8_E4M3) {
      tensors[2 + i].dtype = AA_DTYPE_F8_E4M3;
      continue;
    }
    const BlockFormat& format = *find_block_format(AA_BLOCK_Q8_0);
    const Elements cache(call.tensors[2 + i]);
    decoded[i].resize(static_cast<size_t>(cache.rows() * head_size));
    for (int64_t row = 0; row < cache.rows() && head_size > 0; ++row) {
      const auto* bytes = static_cast<const std::byte*>(cache.flat(row * cache.row_length()));
      decode_blocks(
          format, std::span(bytes, static_cast<size_t>(cache.row_length())),
          std::span(decoded[i]).subspan(static_cast<size_t>(row * head_size), static_cast<size_t>(head_size)));
    }
    aa_tensor& t = tensors[2 + i];
    t.data = decoded[i].data();
    t.dtype = AA_DTYPE_F32;
    t.shape[3] = head_size;
    t.strides[3] = 1;
    for (int d = 2; d >= 0; --d) t.strides[d] = t.strides[d + 1] * t.shape[d + 1];
  }
  aa_attention_params plain{sizeof plain, params.scale, params.window, params.softcap};
  aa_op_call attention = call;
  attention.tensors = tensors;
  attention.params = &plain;
  attention.params_size = sizeof plain;
  attention_reference(attention);
}

}  // namespace anyaccel::cpu
