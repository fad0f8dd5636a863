/* A prebuilt library of host ops, for the builder "AcmeScaleBuilder" (acme.c). It exports plain C functions, and the
 * function through which it gets the services of the process: threads, status objects, log lines. */
#include "anyaccel/abi/op_library.h"

#define EXPORTED __attribute__((visibility("default")))

static const aa_op_services* services;

EXPORTED uint32_t anyaccel_op_library_open(const aa_op_services* given);
EXPORTED void acme_scale(float* x, int64_t count, float factor);

uint32_t anyaccel_op_library_open(const aa_op_services* given) {
  services = given;
  return AA_OP_LIBRARY_VERSION;
}

struct scale {
  float* x;
  int64_t count;
  float factor;
};

/* Does the part of one thread. */
static void scale_part(void* context, int32_t index, int32_t threads) {
  const struct scale* scale = context;
  const int64_t begin = scale->count * index / threads;
  const int64_t end = scale->count * (index + 1) / threads;
  for (int64_t i = begin; i < end; ++i) scale->x[i] *= scale->factor;
}

/* Computes x *= factor for count elements. */
void acme_scale(float* x, int64_t count, float factor) {
  struct scale scale = {x, count, factor};
  services->run(scale_part, &scale);
}
