// References of the ops around attention: rope_table, rope, cache_write and attention.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "accelerators/cpu/kernels/checks.h"
#include "accelerators/cpu/ops.h"
#include "accelerators/cpu/reference/element_access.h"

namespace anyaccel::cpu {

void rope_table_reference(const aa_op_call& call) {
  const float scale = static_cast<const aa_rope_table_params*>(call.params)->scale;
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
  const bool interleaved = static_cast<const aa_rope_params*>(call.params)->interleaved != 0;
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

void attention_reference(const aa_op_call& call) {
  const auto& params = *static_cast<const aa_attention_params*>(call.params);
  const Elements out(call.tensors[0]), q(call.tensors[1]), k(call.tensors[2]), v(call.tensors[3]);
  const Elements sequence(call.tensors[4]), positions(call.tensors[5]);
  check_indices("attention", "sequence", call.tensors[4], k.dim(0), "sequences in the cache");
  check_indices("attention", "positions", call.tensors[5], k.dim(2), "slots in the cache");
  const int64_t heads = q.dim(1), head_size = q.dim(2);
  std::vector<double> scores, sum(static_cast<size_t>(head_size));
  for (int64_t t = 0; t < q.dim(0); ++t) {
    const int64_t b = sequence.get_integer(sequence.at(t)), position = positions.get_integer(positions.at(t));
    const int64_t begin = params.window > 0 ? std::max<int64_t>(0, position - params.window + 1) : 0;
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t kv_head = head / (heads / k.dim(1));
      double largest = -std::numeric_limits<double>::infinity();
      scores.clear();
      for (int64_t j = begin; j <= position; ++j) {
        double score = 0;
        for (int64_t d = 0; d < head_size; ++d) score += q.get(q.at(t, head, d)) * k.get(k.at(b, kv_head, j, d));
        score *= params.scale;
        if (params.softcap > 0) score = params.softcap * std::tanh(score / params.softcap);
        scores.push_back(score);
        largest = std::max(largest, score);
      }
      double total = 0;
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

}  // namespace anyaccel::cpu
