// The ops that move elements and convert them on the way: copy, embedding and cache_write.
#include <algorithm>
#include <cstddef>
#include <span>

#include "accelerators/cpu/kernels/checks.h"
#include "accelerators/cpu/kernels/elementwise_plan.h"
#include "accelerators/cpu/kernels/parallel.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/ops.h"
#include "base/block_format.h"
#include "base/copy_bytes.h"
#include "base/scalar_convert.h"
#include "base/simd/dispatch.h"
#include "runtime/ops/op_params.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/copy.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// Converts n elements of a row from one of F32, BF16 and F16 to another.
void convert_floats(const Row& out, const Row& x, int64_t n) {
  constexpr int64_t kChunk = 1024;
  float buffer[kChunk];
  for (int64_t i = 0; i < n; i += kChunk) {
    const int64_t part = std::min(kChunk, n - i);
    // With AVX2 straight into a row of F32: heads are short rows, for which copying the buffer takes longer than converting.
    write_row(out, i, part, row_floats(x, i, part, HWY_TARGET == HWY_AVX2 ? row_target(out, i, buffer) : buffer));
  }
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(convert_floats);

namespace {

// Worker threads flush denormals to zero; a copy must not.
class KeepDenormals {
 public:
  KeepDenormals() noexcept : before_(flush_denormals()) { restore_denormals(before_ & ~kFlushBits); }
  ~KeepDenormals() { restore_denormals(before_); }
  KeepDenormals(const KeepDenormals&) = delete;
  KeepDenormals& operator=(const KeepDenormals&) = delete;

 private:
  static constexpr uint32_t kFlushBits = 0x8040;  // flush to zero and denormals are zero, in MXCSR
  uint32_t before_;
};

template <class T>
void copy_elements(const Row& out, const Row& x, int64_t n) {
  if (out.stride == 1 && x.stride == 1) {
    copy_bytes(out.data, x.data, static_cast<size_t>(n) * sizeof(T));
    return;
  }
  T* to = reinterpret_cast<T*>(out.data);
  const T* from = reinterpret_cast<const T*>(x.data);
  for (int64_t i = 0; i < n; ++i) to[i * out.stride] = from[i * x.stride];
}

void copy_row(const Row& out, const Row& x, int64_t n) {
  const size_t item = dtype_size(x.dtype);
  if (out.dtype == x.dtype) {
    switch (item) {
      case 1: return copy_elements<uint8_t>(out, x, n);
      case 2: return copy_elements<uint16_t>(out, x, n);
      case 4: return copy_elements<uint32_t>(out, x, n);
      default: return copy_elements<uint64_t>(out, x, n);
    }
  }
  if (is_op_float(out.dtype) && is_op_float(x.dtype)) return AA_CPU_DISPATCH(convert_floats)(out, x, n);
  const KeepDenormals keep;
  const int64_t from_step = x.stride * static_cast<int64_t>(item);
  const int64_t to_step = out.stride * static_cast<int64_t>(dtype_size(out.dtype));
  for (int64_t i = 0; i < n; ++i) {
    const char* from = x.data + i * from_step;
    if (is_floating(x.dtype)) {
      store_number(out.data + i * to_step, out.dtype, load_floating(from, x.dtype));
    } else {
      store_number(out.data + i * to_step, out.dtype, load_integer(from, x.dtype));
    }
  }
}

// Decodes the rows of a table of blocks, whose first row has the id `first`; ids of other rows give zeros.
void embed_blocks(const aa_op_call& call, int32_t format_number, int64_t first) {
  const aa_tensor &table = call.tensors[1], &ids = call.tensors[2];
  const BlockFormat& format = *find_block_format(static_cast<uint32_t>(format_number));
  const Rows out(call.tensors[0]);
  if (out.length() == 0) return;
  parallel_for(out.count(), out.length(), [&](int64_t begin, int64_t end) {
    const KeepDenormals keep;
    const std::span values(scratch<float>(Scratch::Row0, static_cast<size_t>(out.length())),
                           static_cast<size_t>(out.length()));
    for (int64_t t = begin; t < end; ++t) {
      const int64_t id = index_at(ids, t);
      if (id >= first && id - first < table.shape[0]) {
        const auto* blocks = static_cast<const std::byte*>(table.data) + (id - first) * table.strides[0];
        decode_blocks(format, std::span(blocks, static_cast<size_t>(table.shape[1])), values);
      } else {
        std::ranges::fill(values, 0.0F);
      }
      copy_row(out.row(t), {reinterpret_cast<char*>(values.data()), DType::F32, 1, out.length()}, out.length());
    }
  });
}

}  // namespace

void copy(const aa_op_call& call) {
  ElementwisePlan<2>(call.tensors).run(1, [](const auto& p, int64_t n) { copy_row(p[0], p[1], n); });
}

void embedding(const aa_op_call& call) {
  const aa_tensor& ids = call.tensors[2];
  check_indices("embedding", "ids", ids, call.tensors[1].shape[0], "rows of the table");
  const Rows out(call.tensors[0]), table(call.tensors[1]);
  if (out.length() == 0) return;
  parallel_for(out.count(), out.length(), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) copy_row(out.row(t), table.row(index_at(ids, t)), out.length());
  });
}

void quantized_embedding(const aa_op_call& call) {
  check_indices("quantized_embedding", "ids", call.tensors[2], call.tensors[1].shape[0], "rows of the table");
  embed_blocks(call, params_of<aa_quantized_params>(call).format, 0);
}

void quantized_embedding_shard(const aa_op_call& call) {
  const auto& params = params_of<aa_quantized_shard_params>(call);
  embed_blocks(call, params.format, params.first);
}

void embedding_shard(const aa_op_call& call) {
  const aa_tensor& ids = call.tensors[2];
  const int64_t first = params_of<aa_embedding_shard_params>(call).first;
  const int64_t held = call.tensors[1].shape[0];
  const Rows out(call.tensors[0]), table(call.tensors[1]);
  float zero = 0;
  const Row zeros{reinterpret_cast<char*>(&zero), DType::F32, 0, out.length()};
  if (out.length() == 0) return;
  parallel_for(out.count(), out.length(), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t id = index_at(ids, t);
      const bool here = id >= first && id - first < held;
      copy_row(out.row(t), here ? table.row(id - first) : zeros, out.length());
    }
  });
}

void cache_write(const aa_op_call& call) {
  const aa_tensor* tensors = call.tensors;
  const aa_tensor &sequence = tensors[4], &positions = tensors[5];
  const int64_t slots = tensors[0].shape[2];
  check_indices("cache_write", "sequence", sequence, tensors[0].shape[0], "sequences in the cache");
  check_indices("cache_write", "positions", positions, slots, "slots in the cache");
  const Rows k_cache(tensors[0]), v_cache(tensors[1]), k(tensors[2]), v(tensors[3]);
  const int64_t tokens = tensors[2].shape[0], heads = tensors[2].shape[1], head_size = tensors[2].shape[2];
  if (head_size == 0) return;
  const auto write_head = [&](int64_t t, int64_t head) {
    const int64_t to = (index_at(sequence, t) * heads + head) * slots + index_at(positions, t);
    copy_row(k_cache.row(to), k.row(t * heads + head), head_size);
    copy_row(v_cache.row(to), v.row(t * heads + head), head_size);
  };
  // Split over heads: two tokens that name the same slot are then written by the same thread, in their order.
  parallel_for(heads, 2 * tokens * head_size, [&](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t head = begin; head < end; ++head) write_head(t, head);
    }
  });
}

}  // namespace anyaccel::cpu
#endif
