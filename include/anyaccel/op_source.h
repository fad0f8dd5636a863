// Included by the source of a host op: C++ that an op builder compiles on the machine where it runs.
//
//   #include "anyaccel/op_source.h"
//
//   AA_OP void scale(float* x, int64_t count, float factor) {
//     anyaccel::op::parallel_for(count, [=](int64_t begin, int64_t end) {
//       for (int64_t i = begin; i < end; ++i) x[i] *= factor;
//     });
//   }
//
// This header includes next to nothing, because it is compiled at run time: keep it, and the sources, that way. Nothing
// may be thrown out of an op or of a parallel loop; an op that can fail returns aa_status* (null is success), which
// anyaccel::throw_if_failed() turns into an exception on the other side.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "anyaccel/abi/op_library.h"

// Marks an op: a function with C linkage that the loaded library exports by its name.
#define AA_OP extern "C" __attribute__((visibility("default")))

namespace anyaccel::op {

// The services of the process that loaded this library; null until it is opened.
inline const aa_op_services* services = nullptr;

// Returns the number of threads that a parallel loop may run on, including the calling one.
inline int threads() { return services->threads(); }

// Flushes denormals to zero on the calling thread for its lifetime, as parallel regions do on theirs: arithmetic on
// denormals is a hundred times slower, and a result must not depend on whether a loop was worth several threads.
class FlushDenormals {
 public:
#if defined(__SSE2__)
  FlushDenormals() : before_(__builtin_ia32_stmxcsr()) { __builtin_ia32_ldmxcsr(before_ | 0x8040u); }
  ~FlushDenormals() { __builtin_ia32_ldmxcsr(before_); }
#else
  FlushDenormals() : before_(0) {}
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  uint32_t before_;
};

// Calls body(index, count) once for every index in [0, count), each time on a different thread.
template <class Body>
void run(const Body& body) {
  services->run(
      [](void* context, int32_t index, int32_t count) { (*static_cast<const Body*>(context))(int(index), int(count)); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

// Calls body(begin, end) so that [0, count) is covered once: on several threads if each of them gets at least `grain`
// items, in one contiguous range per thread, whose ends (except the last) are multiples of `align`.
template <class Body>
void parallel_for(int64_t count, int64_t grain, int64_t align, const Body& body) {
  if (count <= 0) return;
  int64_t parts = count / (grain > 0 ? grain : 1);
  if (parts > threads()) parts = threads();
  if (parts <= 1) {
    const FlushDenormals flush;
    body(int64_t{0}, count);
    return;
  }
  run([&](int index, int size) {
    const int64_t used = parts < size ? parts : size;
    if (index >= used) return;
    const auto edge = [&](int64_t i) { return i >= used ? count : count / align * i / used * align; };
    const int64_t begin = edge(index);
    const int64_t end = edge(index + 1);
    if (begin < end) body(begin, end);
  });
}

template <class Body>
void parallel_for(int64_t count, const Body& body) {
  parallel_for(count, 16384, 64, body);
}

// Creates a status for an op to return. Its message should say what was asked, what was found, and what to do.
inline aa_status* failure(aa_code code, const char* message) {
  size_t length = 0;
  while (message[length]) ++length;
  return services->host->status_create(services->host, code, 0, message, length);
}

}  // namespace anyaccel::op

// Emitted in every source of a library; the linker merges the copies.
extern "C" inline __attribute__((visibility("default"), used)) uint32_t anyaccel_op_library_open(
    const aa_op_services* services) {
  anyaccel::op::services = services;
  return AA_OP_LIBRARY_VERSION;
}
