// The table of the CPU's ops.
#include "accelerators/cpu/ops.h"

#include "accelerators/cpu/kernels/matmul.h"
#include "accelerators/cpu/kernels/ops_fast.h"
#include "accelerators/cpu/reference/reference.h"

namespace anyaccel::cpu {

std::span<const OpEntry> op_entries() {
  static constexpr OpEntry kEntries[] = {
      {"embedding", embedding, embedding_reference},
      {"rms_norm", rms_norm, rms_norm_reference},
      {"layer_norm", layer_norm, layer_norm_reference},
      {"linear", linear, linear_reference},
      {"linear_multi", linear_multi, linear_multi_reference},
      {"gated_linear", gated_linear, gated_linear_reference},
      {"rope_table", rope_table, rope_table_reference},
      {"rope", rope, rope_reference},
      {"cache_write", cache_write, cache_write_reference},
      {"attention", attention, attention_reference},
      {"activation", activation, activation_reference},
      {"gated_activation", gated_activation, gated_activation_reference},
      {"softmax", softmax, softmax_reference},
      {"add", add, add_reference},
      {"copy", copy, copy_reference},
      {"increment", increment, increment_reference},
      {"argmax", argmax, argmax_reference},
      {"repetition_penalty", repetition_penalty, repetition_penalty_reference},
      {"sample", sample, sample_reference},
      {"random", random, random_reference},
      {"embedding_shard", embedding_shard, embedding_shard_reference},
      {"linear_by_row", linear_by_row, linear_reference},
      {"linear_multi_by_row", linear_multi_by_row, linear_multi_reference},
      {"gated_linear_by_row", gated_linear_by_row, gated_linear_reference},
      {"attention_by_row", attention_by_row, attention_reference},
      {"frequency_penalty", frequency_penalty, frequency_penalty_reference},
  };
  return kEntries;
}

}  // namespace anyaccel::cpu
