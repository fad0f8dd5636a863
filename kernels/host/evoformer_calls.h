// Arguments of the ops of evoformer_attn.cpp. Every array is dense and accessible to the host.
// include/anyaccel/ops/evoformer_attn.h defines the results.
#pragma once

#include <stdint.h>

struct aa_evoformer_call {
  int64_t batch;
  int64_t group;   // sequences that share a pair bias
  int64_t length;  // positions of a sequence
  int64_t heads;
  int64_t size;     // of a head
  int64_t lse_row;  // floats from matrix to matrix of lse
  int32_t dtype;    // F32, F16 or BF16: of all but lse and the gradients of the biases
  int32_t threads;  // the most that may work on the call: what `scratch` has room for
  const void* q;    // [batch, group, length, heads, size], as are k, v, o and their gradients
  const void* k;
  const void* v;
  const void* keys;   // [batch, group, length], or null
  const void* pairs;  // [batch, heads, length, length], or null
  float* lse;         // [batch, group, heads, lse_row]: written forward, read backward
  void* o;            // the same
  // Backward only. What is null in the last two is not computed; they are added to, the others are written.
  const void* go;
  void* gq;
  void* gk;
  void* gv;
  float* gkeys;
  float* gpairs;
  float* scratch;  // as many floats as evoformer_forward_scratch() or evoformer_backward_scratch() says
};
