/* The op source of the builder "AcmeClipBuilder" (acme.c); it is compiled when a program first requests it, for the
 * processor of that machine. The compiler is a C++ compiler, so this is C that C++ accepts as well. A library that uses
 * none of the services of op_library.h need not include it. */
#include <stdint.h>

#ifdef __cplusplus
extern "C"
#endif
    __attribute__((visibility("default"))) void
    acme_clip(float* x, int64_t count, float most);

/* Computes x = min(x, most) for count elements. */
void acme_clip(float* x, int64_t count, float most) {
  for (int64_t i = 0; i < count; ++i) x[i] = x[i] < most ? x[i] : most;
}
