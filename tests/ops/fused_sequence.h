// The fused ops as the sequences that abi/ops.h says they stand for, over any way to run the parts; and the CPU driver with
// fused ops of its own that are made so, which stands for an accelerator that has them.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "accelerators/cpu/cpu_driver.h"
#include "anyaccel/abi/ops.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"

namespace anyaccel::testing {

inline bool is_fused_op(const std::string& op) { return op.starts_with("norm_") && op != "norm_backward"; }

inline aa_tensor dense_view(void* data, int32_t dtype, const std::vector<int64_t>& shape) {
  aa_tensor t{};
  t.data = data;
  t.dtype = dtype;
  t.ndim = static_cast<int32_t>(shape.size());
  for (int64_t& size : t.shape) size = 1;
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    t.shape[d] = shape[d];
    t.strides[d] = stride;
    stride *= shape[d];
  }
  return t;
}

class Sequence {
 public:
  // Runs a call of a plain op; `params` may be null.
  using Run = std::function<void(const char* op, const aa_op_call& call)>;
  // Dense F32 memory that lasts as long as the call runs.
  using Scratch = std::function<aa_tensor(const std::vector<int64_t>& shape)>;

  Sequence(Run run, Scratch scratch) : run_(std::move(run)), scratch_(std::move(scratch)) {}

  void operator()(const std::string& op, const aa_op_call& call) const {
    const aa_tensor* t = call.tensors;
    if (op == "norm_linear") {
      const auto& given = *static_cast<const aa_norm_linear_params*>(call.params);
      linear(t[0], normed(t[1], t[2], given.eps, given.normed), t[3], t[4]);
    } else if (op == "norm_gated_linear") {
      const auto& given = *static_cast<const aa_norm_activation_params*>(call.params);
      const aa_tensor rows = normed(t[1], t[2], given.eps, given.normed);
      const aa_activation_params kind{sizeof(kind), given.kind};
      run("gated_linear", {t[0], rows, t[3], t[4], t[5], t[6]}, kind);
    } else if (op == "norm_quantized_gated_linear") {
      const auto& given = *static_cast<const aa_norm_quantized_params*>(call.params);
      const aa_tensor rows = normed(t[1], t[2], given.eps, AA_DTYPE_F32);
      const aa_tensor gate = scratch_({t[0].shape[0], t[0].shape[1]}), up = scratch_({t[0].shape[0], t[0].shape[1]});
      quantized_linear(gate, rows, t[3], t[5], given);
      quantized_linear(up, rows, t[4], t[6], given);
      const aa_activation_params kind{sizeof(kind), given.kind};
      run("gated_activation", {t[0], gate, up}, kind);
    } else {
      const bool quantized = op == "norm_quantized_qkv_rope";
      const auto& blocks = *static_cast<const aa_norm_quantized_params*>(call.params);
      const auto& floats = *static_cast<const aa_norm_rope_params*>(call.params);
      const aa_tensor rows =
          quantized ? normed(t[3], t[4], blocks.eps, AA_DTYPE_F32) : normed(t[3], t[4], floats.eps, floats.normed);
      const int64_t tokens = t[0].shape[0], heads = t[0].shape[1], size = t[0].shape[2], kv_heads = t[1].shape[1];
      const aa_tensor q = scratch_({tokens, heads * size});
      const aa_tensor k = scratch_({tokens, kv_heads * size});
      const aa_tensor v = scratch_({tokens, kv_heads * size});
      const std::array<const aa_tensor*, 3> outs{&q, &k, &v};
      for (size_t i = 0; i < 3; ++i) {
        if (quantized) {
          quantized_linear(*outs[i], rows, t[5 + 2 * i], t[6 + 2 * i], blocks);
        } else {
          linear(*outs[i], rows, t[5 + 2 * i], t[6 + 2 * i]);
        }
      }
      const aa_tensor q3 = dense_view(q.data, AA_DTYPE_F32, {tokens, heads, size});
      const aa_tensor k3 = dense_view(k.data, AA_DTYPE_F32, {tokens, kv_heads, size});
      const aa_tensor v3 = dense_view(v.data, AA_DTYPE_F32, {tokens, kv_heads, size});
      const aa_rope_params pairs{sizeof(pairs), quantized ? blocks.interleaved : floats.interleaved};
      run("rope", {q3, k3, t[11], t[12]}, pairs);
      run("copy", {t[0], q3});
      run("cache_write", {t[1], t[2], k3, v3, t[13], t[14]});
    }
  }

 private:
  aa_tensor normed(const aa_tensor& x, const aa_tensor& weight, float eps, int32_t dtype) const {
    const aa_tensor rows = dense_view(scratch_({x.shape[0], x.shape[1]}).data, dtype, {x.shape[0], x.shape[1]});
    run("rms_norm", {rows, x, weight, aa_tensor{}}, aa_norm_params{sizeof(aa_norm_params), eps});
    return rows;
  }
  void linear(const aa_tensor& out, const aa_tensor& x, const aa_tensor& w, const aa_tensor& bias) const {
    run("linear", {out, x, w, bias, aa_tensor{}});
  }
  void quantized_linear(const aa_tensor& out, const aa_tensor& x, const aa_tensor& w, const aa_tensor& bias,
                        const aa_norm_quantized_params& given) const {
    run("quantized_linear", {out, x, w, bias, aa_tensor{}},
        aa_quantized_params{sizeof(aa_quantized_params), given.format, given.rounding});
  }
  template <class... Params>
  void run(const char* op, const std::vector<aa_tensor>& tensors, const Params&... params) const {
    aa_op_call call{};
    call.struct_size = sizeof(call);
    call.tensors = tensors.data();
    call.tensor_count = static_cast<uint32_t>(tensors.size());
    ((call.params = &params, call.params_size = sizeof(params)), ...);
    run_(op, call);
  }

  Run run_;
  Scratch scratch_;
};

// The CPU's driver with fused ops. One at a time.
class FusedDriver {
 public:
  FusedDriver() {
    State& s = state();
    s.good =
        complete_table(anyaccel_cpu_driver_query(AA_ABI_VERSION(2, 0), AA_ABI_CURRENT, host_services()), "built in");
    s.instance = nullptr;
    s.calls = 0;
    s.refuse = false;
    s.change = nullptr;
    driver_ = *s.good;
    driver_.aa_driver::query_extension = query_extension;
  }
  const abi::DriverCalls& table() const noexcept { return driver_; }

  static int calls() { return state().calls; }            // of fused ops that were enqueued
  static int other_calls() { return state().others; }     // of other ops but "copy"
  static void refuse(bool all) { state().refuse = all; }  // what supports() says of fused ops
  // Changes a copy of every fused call before it runs, which makes the driver a wrong one.
  static void change(std::function<void(const std::string& op, std::vector<aa_tensor>& tensors)> change) {
    state().change = std::move(change);
  }

 private:
  static constexpr int32_t first_number = 1000;
  static constexpr const char* names[] = {"norm_linear", "norm_gated_linear", "norm_qkv_rope",
                                          "norm_quantized_gated_linear", "norm_quantized_qkv_rope"};

  struct State {
    const abi::DriverCalls* good = nullptr;
    abi::Calls<aa_ops_table> good_ops;
    aa_ops_table ops;
    aa_instance* instance = nullptr;
    std::atomic<int> calls{0}, others{0};
    std::atomic<bool> refuse{false};
    std::function<void(const std::string&, std::vector<aa_tensor>&)> change;
    std::mutex mutex;
    std::deque<std::vector<float>> memory;  // kept, because captured graphs hold it
  };
  static State& state() {
    static State state;
    return state;
  }

  static aa_status* query_extension(void*, aa_instance* instance, const char* name, uint32_t version,
                                    const void** table) {
    State& s = state();
    aa_status* status = s.good->query_extension(instance, name, version, table);
    if (status || std::strcmp(name, AA_OPS_EXTENSION) != 0) return status;
    s.instance = instance;
    s.ops = *static_cast<const aa_ops_table*>(*table);
    s.good_ops = abi::calls(s.ops);
    s.ops.find = find;
    s.ops.supports = supports;
    s.ops.enqueue = enqueue;
    *table = &s.ops;
    return nullptr;
  }
  static aa_status* find(void*, aa_instance* instance, const char* name, int32_t* out_op) {
    for (int32_t i = 0; i < static_cast<int32_t>(std::size(names)); ++i) {
      if (std::strcmp(name, names[i]) != 0) continue;
      *out_op = first_number + i;
      return nullptr;
    }
    return state().good_ops.find(instance, name, out_op);
  }
  static bool is_own(const aa_op_call& call) {
    return call.op >= first_number && call.op < first_number + static_cast<int32_t>(std::size(names));
  }
  static aa_status* supports(void*, aa_device* device, const aa_op_call* call, int32_t* out_supported) {
    if (!is_own(*call)) return state().good_ops.supports(device, call, out_supported);
    *out_supported = state().refuse ? 0 : 1;
    return nullptr;
  }
  static aa_status* enqueue(void*, aa_stream* stream, const aa_op_call* call, int32_t* out_taken) {
    State& s = state();
    if (!is_own(*call)) {
      int32_t copy = -1;
      release_status(s.good_ops.find(s.instance, "copy", &copy));
      s.others += call->op != copy;
      return s.good_ops.enqueue(stream, call, out_taken);
    }
    *out_taken = s.refuse ? 0 : 1;
    if (s.refuse) return nullptr;
    ++s.calls;
    const std::string op = names[call->op - first_number];
    std::vector<aa_tensor> tensors(call->tensors, call->tensors + call->tensor_count);
    if (s.change) s.change(op, tensors);
    aa_op_call changed = *call;
    changed.tensors = tensors.data();
    aa_status* failed = nullptr;
    const Sequence sequence(
        [&](const char* part, const aa_op_call& plain) {
          if (failed) return;
          aa_op_call numbered = plain;
          release_status(s.good_ops.find(s.instance, part, &numbered.op));
          int32_t taken = 0;
          failed = s.good_ops.enqueue(stream, &numbered, &taken);
        },
        [&](const std::vector<int64_t>& shape) {
          size_t count = 1;
          for (const int64_t size : shape) count *= static_cast<size_t>(size);
          const std::lock_guard lock(s.mutex);
          s.memory.emplace_back(count);
          return dense_view(s.memory.back().data(), AA_DTYPE_F32, shape);
        });
    sequence(op, changed);
    return failed;
  }

  abi::DriverCalls driver_;
};

}  // namespace anyaccel::testing
