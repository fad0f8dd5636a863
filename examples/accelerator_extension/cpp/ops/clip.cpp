// The op source of the builder "AcmeClipBuilder" (acme.cpp); it is compiled when a program first requests it, for the
// processor of that machine.
#include "anyaccel/op_source.h"

// Computes x = min(x, most) for count elements.
AA_OP void acme_clip(float* x, int64_t count, float most) {
  anyaccel::op::parallel_for(count, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] = x[i] < most ? x[i] : most;
  });
}
