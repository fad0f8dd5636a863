// The loops of the optimizers: a list of parameters cut among the threads, and arrays of any dtype given to kernels that
// know float32 only.
//
// A kernel is a function of (param, grad, state0, state1, n) over float arrays; n is a multiple of kBlock. Float32 arrays
// reach it where they lie, others through small buffers that stay in the first level cache.
#pragma once

#include "anyaccel/op_source.h"
#include "optimizers.h"
#include "vector.h"

namespace anyaccel::op {

constexpr int64_t kBlock = 64;    // elements: 4 vectors of AVX-512
constexpr int64_t kStaged = 256;  // elements that go through the buffers at once
constexpr int64_t kGrain = 8192;  // elements for which a thread is worth waking
constexpr int64_t kAlign = 1024;  // a parameter is cut at multiples of this: whole pages of a 4-byte dtype

// How far ahead (bytes, per array) loops ask for memory. 0 asks for what is read now, which costs nothing.
inline const int64_t ahead = fetches_best_alone ? 0 : 2048;

inline int64_t dtype_bytes(int32_t dtype) { return dtype == AA_DTYPE_F32 ? 4 : 2; }
inline char* at(void* p, int32_t dtype, int64_t i) { return static_cast<char*>(p) + i * dtype_bytes(dtype); }
inline const char* at(const void* p, int32_t dtype, int64_t i) {
  return static_cast<const char*>(p) + i * dtype_bytes(dtype);
}

template <class T>
void widen_as(const T* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + Vec::width <= n; i += Vec::width) {
    prefetch(reinterpret_cast<const char*>(from + i) + ahead);
    store(to + i, load(from + i));
  }
  if (i < n) store_n(to + i, load_n(from + i, n - i), n - i);
}
template <class T>
void narrow_as(const float* from, T* to, int64_t n) {
  int64_t i = 0;
  if constexpr (__is_same(T, bf16)) {
    // Results of arithmetic, which flushes denormals here.
    i = n / Vec::width * Vec::width;
    narrow_normal(from, i, to);
  }
  for (; i + Vec::width <= n; i += Vec::width) store(to + i, load(from + i));
  if (i < n) store_n(to + i, load_n(from + i, n - i), n - i);
}
// Past the caches: nobody reads it soon. `to` must lie on a cache line; n is a multiple of kBlock.
template <class T>
void narrow_past_caches(const float* from, T* to, int64_t n) {
  for (int64_t i = 0; i < n; i += Vec::width) stream(to + i, load(from + i));
}

inline __attribute__((noinline)) void widen(const void* from, int32_t dtype, float* to, int64_t n) {
  if (dtype == AA_DTYPE_BF16) {
    widen_as(static_cast<const bf16*>(from), to, n);
  } else if (dtype == AA_DTYPE_F16) {
    widen_as(static_cast<const fp16*>(from), to, n);
  } else {
    __builtin_memcpy(to, from, static_cast<size_t>(n) * 4);
  }
}
inline __attribute__((noinline)) void narrow(const float* from, void* to, int32_t dtype, int64_t n) {
  if (dtype == AA_DTYPE_BF16) {
    narrow_as(from, static_cast<bf16*>(to), n);
  } else if (dtype == AA_DTYPE_F16) {
    narrow_as(from, static_cast<fp16*>(to), n);
  } else {
    __builtin_memcpy(to, from, static_cast<size_t>(n) * 4);
  }
}
inline __attribute__((noinline)) void narrow_copy(const float* from, void* to, int32_t dtype, int64_t n) {
  const bool streams = reinterpret_cast<uintptr_t>(to) % 64 == 0 && n % kBlock == 0;
  if (streams && dtype == AA_DTYPE_BF16) {
    narrow_past_caches(from, static_cast<bf16*>(to), n);
  } else if (streams && dtype == AA_DTYPE_F16) {
    narrow_past_caches(from, static_cast<fp16*>(to), n);
  } else {
    narrow(from, to, dtype, n);
  }
}

// Elements [begin, end) of a parameter through the kernel. kStates: how many of the state arrays there are; what the
// kernel does not write back is named by kWrites.
enum Writes { kParam = 1, kState = 2 };

template <int kStates, int kWrites, class Kernel>
void run_kernel(const aa_parameter& p, int64_t begin, int64_t end, const Kernel& kernel) {
  const bool plain =
      p.param_dtype == AA_DTYPE_F32 && p.grad_dtype == AA_DTYPE_F32 && (kStates == 0 || p.state_dtype == AA_DTYPE_F32);
  const bool copies = p.copy != nullptr && (kWrites & kParam) != 0;
  int64_t i = begin;
  if (plain) {
    float* const param = static_cast<float*>(p.param);
    const float* const grad = static_cast<const float*>(p.grad);
    float* const state0 = static_cast<float*>(p.state[0]);
    float* const state1 = static_cast<float*>(p.state[1]);
    const int64_t whole = (end - begin) / kBlock * kBlock + begin;
    while (i < whole) {
      const int64_t n = copies && whole - i > 4 * kStaged ? 4 * kStaged : whole - i;
      kernel(param + i, grad + i, kStates > 0 ? state0 + i : nullptr, kStates > 1 ? state1 + i : nullptr, n);
      if (copies) narrow_copy(param + i, at(p.copy, p.copy_dtype, i), p.copy_dtype, n);
      i += n;
    }
  }
  alignas(64) float buffers[4][kStaged];
  while (i < end) {
    const int64_t n = end - i < kStaged ? end - i : kStaged;
    const int64_t padded = (n + kBlock - 1) / kBlock * kBlock;
    // An array that is float32 already, and whole, needs no buffer.
    const auto reach = [&](const void* data, int32_t dtype, float* buffer) {
      const char* const from = at(data, dtype, i);
      if (dtype == AA_DTYPE_F32 && n == padded) return reinterpret_cast<float*>(const_cast<char*>(from));
      widen(from, dtype, buffer, n);
      for (int64_t k = n; k < padded; ++k) buffer[k] = 0.0f;
      return buffer;
    };
    const auto give_back = [&](const float* from, void* data, int32_t dtype, const float* buffer) {
      if (from == buffer) narrow(buffer, at(data, dtype, i), dtype, n);
    };
    float* const param = reach(p.param, p.param_dtype, buffers[0]);
    const float* const grad = reach(p.grad, p.grad_dtype, buffers[1]);
    float* const state0 = kStates > 0 ? reach(p.state[0], p.state_dtype, buffers[2]) : nullptr;
    float* const state1 = kStates > 1 ? reach(p.state[1], p.state_dtype, buffers[3]) : nullptr;
    kernel(param, grad, state0, state1, padded);
    if (kWrites & kParam) give_back(param, p.param, p.param_dtype, buffers[0]);
    if (kWrites & kState) {
      if (kStates > 0) give_back(state0, p.state[0], p.state_dtype, buffers[2]);
      if (kStates > 1) give_back(state1, p.state[1], p.state_dtype, buffers[3]);
    }
    if (copies) narrow_copy(param, at(p.copy, p.copy_dtype, i), p.copy_dtype, n);
    i += n;
  }
}

// Calls body(index, begin, end) so that every element of every parameter is covered once, on all threads in one region:
// the list counts as one long array of which every thread gets one part. A parameter is cut at multiples of `align` only.
template <class Body>
void for_each_part(const aa_parameter* parameters, int64_t count, int64_t align, const Body& body) {
  int64_t total = 0;
  for (int64_t k = 0; k < count; ++k) total += parameters[k].count;
  if (total == 0) return;
  int64_t parts = total / kGrain;
  if (parts > threads()) parts = threads();
  const auto part = [&](int64_t index, int64_t used) {
    // As 128-bit: the product may not fit in 64.
    const int64_t first = static_cast<int64_t>(static_cast<__int128>(total) * index / used);
    const int64_t last = static_cast<int64_t>(static_cast<__int128>(total) * (index + 1) / used);
    int64_t offset = 0;  // of parameter k in the long array
    for (int64_t k = 0; k < count && offset < last; ++k) {
      const int64_t n = parameters[k].count;
      const auto cut = [&](int64_t place) {
        return place <= offset ? 0 : place >= offset + n ? n : (place - offset) / align * align;
      };
      const int64_t begin = cut(first), end = cut(last);
      if (begin < end) body(k, begin, end);
      offset += n;
    }
    stream_fence();
  };
  if (parts <= 1) {
    const FlushDenormals flush;
    part(0, 1);
    return;
  }
  run([&](int index, int size) {
    const int64_t used = parts < size ? parts : size;
    if (index < used) part(index, used);
  });
}

template <int kStates, int kWrites, class Kernel>
void for_each_element(const aa_parameter* parameters, int64_t count, const Kernel& kernel) {
  for_each_part(parameters, count, kAlign, [&](int64_t k, int64_t begin, int64_t end) {
    run_kernel<kStates, kWrites>(parameters[k], begin, end, kernel);
  });
}

// Sums of squares in 32 lanes of double: element i goes to lane i % 32, whatever the width of a vector.
class SquareSum {
 public:
  // n is a multiple of 32.
  __attribute__((noinline)) void add(const float* x, int64_t n) {
    double lanes[kLanes];
    for (int j = 0; j < kLanes; ++j) lanes[j] = lanes_[j];
    for (int64_t i = 0; i < n; i += kLanes) {
      prefetch(reinterpret_cast<const char*>(x + i) + ahead);
      prefetch(reinterpret_cast<const char*>(x + i) + ahead + 64);
#pragma GCC unroll 32
      for (int j = 0; j < kLanes; ++j) lanes[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
    }
    for (int j = 0; j < kLanes; ++j) lanes_[j] = lanes[j];
  }
  double total() {
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) lanes_[j] += lanes_[j + half];
    }
    return lanes_[0];
  }

 private:
  static constexpr int kLanes = 32;
  double lanes_[kLanes] = {};
};

// Calls body(k, begin, end, number of the segment) for every segment.
template <class Body>
void for_each_segment(const aa_parameter* parameters, int64_t count, const Body& body) {
  for_each_part(parameters, count, AA_NORM_SEGMENT, [&](int64_t k, int64_t begin, int64_t end) {
    int64_t segment = parameters[k].first_segment + begin / AA_NORM_SEGMENT;
    for (int64_t i = begin; i < end; i += AA_NORM_SEGMENT) {
      body(k, i, end - i < AA_NORM_SEGMENT ? end : i + AA_NORM_SEGMENT, segment++);
    }
  });
}

}  // namespace anyaccel::op

// In every optimizer's library, for clipping by the norm of all gradients.
AA_OP void grad_square_sums(const aa_parameter* parameters, int64_t count, double* sums) {
  using namespace anyaccel::op;
  for_each_segment(parameters, count, [&](int64_t k, int64_t begin, int64_t end, int64_t segment) {
    // Seen as a parameter without states: the kernel looks at the gradient only.
    aa_parameter grads = parameters[k];
    grads.param = const_cast<void*>(grads.grad);
    grads.param_dtype = grads.grad_dtype;
    SquareSum sum;
    run_kernel<0, 0>(grads, begin, end, [&](float*, const float* g, float*, float*, int64_t n) { sum.add(g, n); });
    sums[segment] = sum.total();
  });
}
