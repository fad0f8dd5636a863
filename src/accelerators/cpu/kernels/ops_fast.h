// The fast versions of all ops but the products (kernels/matmul.h); see the files named after the themes.
#pragma once

#include "anyaccel/abi/ops.h"

namespace anyaccel::cpu {

// norm.cpp
void rms_norm(const aa_op_call& call);
void layer_norm(const aa_op_call& call);
void softmax(const aa_op_call& call);
// rope.cpp
void rope_table(const aa_op_call& call);
void rope(const aa_op_call& call);
// attention.cpp
void attention(const aa_op_call& call);
void attention_by_row(const aa_op_call& call);
// elementwise.cpp
void activation(const aa_op_call& call);
void gated_activation(const aa_op_call& call);
void add(const aa_op_call& call);
void repetition_penalty(const aa_op_call& call);
void frequency_penalty(const aa_op_call& call);
void increment(const aa_op_call& call);
// copy.cpp
void copy(const aa_op_call& call);
void embedding(const aa_op_call& call);
void embedding_shard(const aa_op_call& call);
void cache_write(const aa_op_call& call);
// sampling.cpp
void argmax(const aa_op_call& call);
void sample(const aa_op_call& call);
// random.cpp
void random(const aa_op_call& call);

}  // namespace anyaccel::cpu
