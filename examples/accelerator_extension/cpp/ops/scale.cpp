// A prebuilt library of host ops, for the builder "AcmeScaleBuilder" (acme.cpp).
#include "anyaccel/op_source.h"

// Computes x *= factor for count elements.
AA_OP void acme_scale(float* x, int64_t count, float factor) {
  anyaccel::op::parallel_for(count, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] *= factor;
  });
}
