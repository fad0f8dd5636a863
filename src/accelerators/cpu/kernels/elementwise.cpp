// The elementwise ops in floating point: activation, gated_activation, add, repetition_penalty, frequency_penalty; and
// increment.
#include <cmath>
#include <cstring>

#include "accelerators/cpu/kernels/checks.h"
#include "accelerators/cpu/kernels/elementwise_plan.h"
#include "accelerators/cpu/kernels/parallel.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/ops.h"
#include "base/scalar_convert.h"
#include "base/simd/dispatch.h"
#include "runtime/ops/op_params.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/elementwise.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/activation-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// to = function(a) or function(a, b) over n elements; `to` may be one of the inputs.
template <class Function>
HWY_INLINE void map(const float* a, float* to, int64_t n, Function function) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(function(hn::LoadU(kFloats, a + i)), kFloats, to + i);
  if (i < n) store_part(function(load_part(a + i, n - i)), to + i, n - i);
}
template <class Function>
HWY_INLINE void map(const float* a, const float* b, float* to, int64_t n, Function function) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(function(hn::LoadU(kFloats, a + i), hn::LoadU(kFloats, b + i)), kFloats, to + i);
  }
  if (i < n) store_part(function(load_part(a + i, n - i), load_part(b + i, n - i)), to + i, n - i);
}

struct AddFunction {
  HWY_INLINE FloatVec operator()(FloatVec a, FloatVec b) const { return hn::Add(a, b); }
};

template <class Activation>
struct Gate {
  HWY_INLINE FloatVec operator()(FloatVec gate, FloatVec up) const { return hn::Mul(Activation()(gate), up); }
};

void activate_piece(const Row& out, const Row& x, int kind, int64_t n) {
  float* buffer = scratch<float>(Scratch::Row0, kElementwiseChunk + kLanes);
  const float* from = row_floats(x, 0, n, buffer);
  float* to = row_target(out, 0, buffer);
  with_activation(kind, [&](auto activation) HWY_ATTR { map(from, to, n, activation); });
  write_row(out, 0, n, to);
}

void gate_piece(const Row& out, const Row& gate, const Row& up, int kind, int64_t n) {
  float* buffer = scratch<float>(Scratch::Row0, kElementwiseChunk + kLanes);
  float* other = scratch<float>(Scratch::Row1, kElementwiseChunk + kLanes);
  const float* a = row_floats(gate, 0, n, buffer);
  const float* b = row_floats(up, 0, n, other);
  float* to = row_target(out, 0, buffer);
  with_activation(kind, [&](auto activation) HWY_ATTR { map(a, b, to, n, Gate<decltype(activation)>()); });
  write_row(out, 0, n, to);
}

void add_piece(const Row& out, const Row& left, const Row& right, int64_t n) {
  float* buffer = scratch<float>(Scratch::Row0, kElementwiseChunk + kLanes);
  float* other = scratch<float>(Scratch::Row1, kElementwiseChunk + kLanes);
  const float* a = row_floats(left, 0, n, buffer);
  const float* b = row_floats(right, 0, n, other);
  float* to = row_target(out, 0, buffer);
  map(a, b, to, n, AddFunction());
  write_row(out, 0, n, to);
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(activate_piece);
AA_CPU_EXPORT(gate_piece);
AA_CPU_EXPORT(add_piece);

namespace {

// The cost of an activation relative to that of copying an element.
constexpr int64_t kActivationWork = 3;

int activation_kind(const aa_op_call& call) { return params_of<aa_activation_params>(call).kind; }

}  // namespace

void activation(const aa_op_call& call) {
  const auto piece = AA_CPU_DISPATCH(activate_piece);
  const int kind = activation_kind(call);
  ElementwisePlan<2>(call.tensors).run(kActivationWork, [&](const auto& p, int64_t n) { piece(p[0], p[1], kind, n); });
}

void gated_activation(const aa_op_call& call) {
  const auto piece = AA_CPU_DISPATCH(gate_piece);
  const int kind = activation_kind(call);
  ElementwisePlan<3>(call.tensors).run(kActivationWork, [&](const auto& p, int64_t n) {
    piece(p[0], p[1], p[2], kind, n);
  });
}

void add(const aa_op_call& call) {
  const auto piece = AA_CPU_DISPATCH(add_piece);
  ElementwisePlan<3>(call.tensors).run(1, [&](const auto& p, int64_t n) { piece(p[0], p[1], p[2], n); });
}

void repetition_penalty(const aa_op_call& call) {
  const double penalty = params_of<aa_repetition_params>(call).penalty;
  // Few elements are seen: find them eight at a time, and change each on its own.
  ElementwisePlan<2>(call.tensors).run(1, [&](const auto& p, int64_t n) {
    const Row &logits = p[0], &seen = p[1];
    const int64_t item = static_cast<int64_t>(dtype_size(logits.dtype));
    int64_t i = 0;
    while (i < n) {
      if (seen.stride == 1 && i + 8 <= n && load_bits<uint64_t>(seen.data + i) == 0) {
        i += 8;
        continue;
      }
      if (seen.data[i * seen.stride] != 0) {
        char* at = logits.data + i * logits.stride * item;
        const double logit = load_floating(at, logits.dtype);
        store_number(at, logits.dtype, logit > 0 ? logit / penalty : logit * penalty);
      }
      ++i;
    }
  });
}

void frequency_penalty(const aa_op_call& call) {
  const auto& params = params_of<aa_frequency_params>(call);
  const aa_tensor& ids = call.tensors[2];
  const Rows logits(call.tensors[0]), counts(call.tensors[1]);
  if (ids.dtype != AA_DTYPE_NONE) {
    for (int64_t r = 0; r < counts.count(); ++r) {
      const int64_t id = index_at(ids, r);
      if (id < 0 || id >= counts.length()) continue;
      reinterpret_cast<int32_t*>(counts.row(r).data)[id * counts.stride()] += 1;
    }
  }
  parallel_for(logits.count(), logits.length(), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const Row logit_row = logits.row(r), count_row = counts.row(r);
      const auto* const count = reinterpret_cast<const int32_t*>(count_row.data);
      const int64_t item = static_cast<int64_t>(dtype_size(logit_row.dtype));
      for (int64_t i = 0; i < logit_row.length; ++i) {
        // Few tokens have been counted.
        const int32_t n = count[i * count_row.stride];
        if (n == 0) continue;
        const double penalty =
            static_cast<double>(params.frequency) * static_cast<double>(n) + static_cast<double>(params.presence);
        char* const at = logit_row.data + i * logit_row.stride * item;
        store_number(at, logit_row.dtype, load_floating(at, logit_row.dtype) - penalty);
      }
    }
  });
}

void increment(const aa_op_call& call) {
  const uint64_t amount = static_cast<uint64_t>(params_of<aa_increment_params>(call).amount);
  ElementwisePlan<1>(call.tensors).run(1, [&](const auto& p, int64_t n) {
    const Row& x = p[0];
    for (int64_t i = 0; i < n; ++i) {
      if (x.dtype == DType::I32) {
        uint32_t& element = reinterpret_cast<uint32_t*>(x.data)[i * x.stride];
        element += static_cast<uint32_t>(amount);
      } else {
        reinterpret_cast<uint64_t*>(x.data)[i * x.stride] += amount;
      }
    }
  });
}

}  // namespace anyaccel::cpu
#endif
