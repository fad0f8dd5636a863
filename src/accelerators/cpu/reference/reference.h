// The plain reference of every op of include/anyaccel/abi/ops.h but the products (kernels/matmul.h): simple loops on
// one thread, in double, over any strides. They are the executable definition that every other implementation is tested
// against, so they are written to be read.
#pragma once

#include "anyaccel/abi/ops.h"

namespace anyaccel::cpu {

void embedding_reference(const aa_op_call& call);
void embedding_shard_reference(const aa_op_call& call);
void rms_norm_reference(const aa_op_call& call);
void layer_norm_reference(const aa_op_call& call);
void rope_table_reference(const aa_op_call& call);
void rope_reference(const aa_op_call& call);
void cache_write_reference(const aa_op_call& call);
void attention_reference(const aa_op_call& call);
void activation_reference(const aa_op_call& call);
void gated_activation_reference(const aa_op_call& call);
void softmax_reference(const aa_op_call& call);
void add_reference(const aa_op_call& call);
void copy_reference(const aa_op_call& call);
void increment_reference(const aa_op_call& call);
void argmax_reference(const aa_op_call& call);
void repetition_penalty_reference(const aa_op_call& call);
void frequency_penalty_reference(const aa_op_call& call);
void sample_reference(const aa_op_call& call);
void random_reference(const aa_op_call& call);

}  // namespace anyaccel::cpu
