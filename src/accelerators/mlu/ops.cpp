// Implements ops.h: products and sums with CNNL. A result is rounded once: products of 16-bit matrices to which
// something is added would be rounded in between, so they are left to the CPU, as are calls with tensors of several
// types.
#include "accelerators/mlu/ops.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "accelerators/mlu/cnnl_api.h"
#include "accelerators/mlu/library_search.h"
#include "anyaccel/abi/driver_class.hpp"
#include "runtime/ops/op_list.h"

namespace anyaccel::mlu {
namespace {

CnnlApi cnnl;  // bound once, by op_set()

void check(CnnlStatus status, const char* call) {
  if (status == 0) return;
  const char* said = cnnl.cnnlGetErrorString ? cnnl.cnnlGetErrorString(status) : nullptr;
  throw abi::Failure(AA_INTERNAL,
                     "mlu: " + std::string(call) + " gave " + std::to_string(status) +
                         (said && *said ? std::string(" (") + said + ")" : std::string()),
                     status);
}
#define ANYACCEL_CNNL(name, ...) check(cnnl.name(__VA_ARGS__), #name)

// Owns one of CNNL's objects.
class Object {
 public:
  Object(CnnlStatus (*create)(CnnlObject*), CnnlStatus (*destroy)(CnnlObject), const char* call) : destroy_(destroy) {
    check(create(&object_), call);
  }
  ~Object() { destroy_(object_); }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  operator CnnlObject() const { return object_; }  // NOLINT(google-explicit-constructor): an argument of its functions

 private:
  CnnlStatus (*destroy_)(CnnlObject);
  CnnlObject object_ = nullptr;
};
#define ANYACCEL_CNNL_OBJECT(create, destroy) Object(cnnl.create, cnnl.destroy, #create)

// The handles of each device; any queue of the device may use them, one queue at a time.
class Handles {
 public:
  CnnlObject take(int device) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<CnnlObject>& idle = idle_[device];
      if (!idle.empty()) {
        CnnlObject handle = idle.back();
        idle.pop_back();
        return handle;
      }
    }
    CnnlObject handle = nullptr;
    ANYACCEL_CNNL(cnnlCreate, &handle);
    return handle;
  }
  void give_back(int device, CnnlObject handle) {
    const std::lock_guard lock(mutex_);
    idle_[device].push_back(handle);
  }
  void release(int device) {
    const std::lock_guard lock(mutex_);
    for (CnnlObject handle : idle_[device]) {
      cnnl.cnnlSetQueue(handle, nullptr);  // the last queue may have been destroyed, a case that CNNL does not document
      cnnl.cnnlDestroy(handle);
    }
    idle_.erase(device);
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<CnnlObject>> idle_;
};
Handles& handles() {
  static auto& all = *new Handles;
  return all;
}

// ---- calls of CNNL ---------------------------------------------------------------------------------------------------

int cnnl_type(int32_t dtype) {
  switch (dtype) {
    case AA_DTYPE_F32: return cnnl_f32;
    case AA_DTYPE_F16: return cnnl_f16;
    case AA_DTYPE_BF16: return cnnl_bf16;
    default: return 0;
  }
}

int64_t bytes_of(const aa_tensor& tensor) {
  int64_t bytes = tensor.dtype == AA_DTYPE_F32 ? 4 : 2;
  for (int32_t d = 0; d < tensor.ndim; ++d) bytes *= tensor.shape[d];
  return bytes;
}

struct Description {
  explicit Description(const aa_tensor& tensor)
      : object(ANYACCEL_CNNL_OBJECT(cnnlCreateTensorDescriptor, cnnlDestroyTensorDescriptor)) {
    const std::vector<int> sizes(tensor.shape, tensor.shape + tensor.ndim);
    ANYACCEL_CNNL(cnnlSetTensorDescriptor, object, cnnl_layout_array, cnnl_type(tensor.dtype), tensor.ndim,
                  sizes.data());
  }
  Object object;
};

// Runs the operators of one call on its queue.
class Work {
 public:
  Work(const Api& api, void* queue, queue_runtime::Workspace& workspace)
      : api_(api), queue_(queue), workspace_(workspace) {
    if (const CnrtResult result = api.cnrtGetDevice(&device_); result != 0) {
      throw abi::Failure(AA_INTERNAL, "mlu: cnrtGetDevice gave " + std::to_string(result), result);
    }
    handle_ = handles().take(device_);
    if (const CnnlStatus status = cnnl.cnnlSetQueue(handle_, queue); status != 0) {
      handles().give_back(device_, handle_);
      check(status, "cnnlSetQueue");
    }
  }
  ~Work() { handles().give_back(device_, handle_); }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // Allocates a tensor of the same shape and type in the call's workspace.
  aa_tensor temporary(const aa_tensor& like) {
    aa_tensor tensor = like;
    tensor.data = workspace_.take(static_cast<size_t>(bytes_of(like)));
    return tensor;
  }

  // Computes out = x * transpose(w). Products are summed in fp32, and the factors are not rounded to fewer bits first.
  void product(const aa_tensor& out, const aa_tensor& x, const aa_tensor& w) {
    const Object matmul = ANYACCEL_CNNL_OBJECT(cnnlMatMulDescCreate, cnnlMatMulDescDestroy);
    const auto set = [&](int attribute, int32_t value) {
      ANYACCEL_CNNL(cnnlSetMatMulDescAttr, matmul, attribute, &value, sizeof(value));
    };
    set(cnnl_compute_type, cnnl_f32);
    set(cnnl_transpose_b, 1);
    set(cnnl_allow_tf32, 0);
    const Description a(x), b(w), d(out);
    const Object result = ANYACCEL_CNNL_OBJECT(cnnlCreateMatMulHeuristicResult, cnnlDestroyMatMulHeuristicResult);
    const Object algorithm = ANYACCEL_CNNL_OBJECT(cnnlMatMulAlgoCreate, cnnlMatMulAlgoDestroy);
    CnnlObject results[] = {result};
    int found = 0;
    ANYACCEL_CNNL(cnnlGetMatMulAlgoHeuristic, handle_, matmul, a.object, b.object, d.object, d.object, nullptr, 1,
                  results, &found);
    if (found < 1) throw abi::Failure(AA_INTERNAL, "mlu: cnnlGetMatMulAlgoHeuristic knows no way to multiply");
    size_t bytes = 0;
    ANYACCEL_CNNL(cnnlGetMatMulHeuristicResult, result, algorithm, &bytes);
    const float alpha = 1, beta = 0;
    ANYACCEL_CNNL(cnnlMatMul_v2, handle_, matmul, algorithm, &alpha, a.object, x.data, b.object, w.data, &beta,
                  d.object, out.data, bytes ? workspace_.take(bytes) : nullptr, bytes, d.object, out.data);
  }

  // Computes the sum of all terms; those with fewer elements are repeated.
  void sum(const aa_tensor& out, const std::vector<const aa_tensor*>& terms) {
    // It is not documented whether the result may be one of the terms.
    bool in_place = false;
    for (const aa_tensor* term : terms) in_place |= term->data == out.data;
    const aa_tensor target = in_place ? temporary(out) : out;
    std::vector<std::unique_ptr<Description>> descriptions;
    std::vector<CnnlObject> objects;
    std::vector<const void*> inputs;
    for (const aa_tensor* term : terms) {
      objects.push_back(descriptions.emplace_back(std::make_unique<Description>(*term))->object);
      inputs.push_back(term->data);
    }
    const Description described(out);
    const auto count = static_cast<uint32_t>(terms.size());
    size_t bytes = 0;
    ANYACCEL_CNNL(cnnlGetAddNWorkspaceSize, handle_, objects.data(), count, described.object, &bytes);
    ANYACCEL_CNNL(cnnlAddN_v2, handle_, objects.data(), inputs.data(), count, described.object, target.data,
                  bytes ? workspace_.take(bytes) : nullptr, bytes);
    if (in_place) copy(out, target);
  }

 private:
  void copy(const aa_tensor& to, const aa_tensor& from) const {
    const auto function = api_.cnrtMemcpyAsync_V2 ? api_.cnrtMemcpyAsync_V2 : api_.cnrtMemcpyAsync;
    const CnrtResult result = function(to.data, from.data, static_cast<size_t>(bytes_of(to)), queue_,
                                       copy_directions[AA_COPY_DEVICE_TO_DEVICE]);
    if (result != 0) {
      throw abi::Failure(AA_INTERNAL, "mlu: a copy within the device gave " + std::to_string(result), result);
    }
  }

  const Api& api_;
  void* const queue_;
  queue_runtime::Workspace& workspace_;
  int device_ = 0;
  CnnlObject handle_ = nullptr;
};

// ---- ops -------------------------------------------------------------------------------------------------------------

constexpr aa_tensor no_tensor{};  // AA_DTYPE_NONE

bool is_there(const aa_tensor& tensor) { return tensor.dtype != AA_DTYPE_NONE; }

// One product of a call: out = x * transpose(w) + bias + residual, the last two optional.
struct Part {
  const aa_tensor& out;
  const aa_tensor& x;
  const aa_tensor& w;
  const aa_tensor& bias;
  const aa_tensor& residual;
};

void run_part(const Part& part, Work& work) {
  const auto& [out, x, w, bias, residual] = part;
  if (!is_there(bias) && !is_there(residual)) return work.product(out, x, w);
  const aa_tensor products = work.temporary(out);
  work.product(products, x, w);
  std::vector<const aa_tensor*> terms{&products};
  for (const aa_tensor* term : {&bias, &residual}) {
    if (is_there(*term)) terms.push_back(term);
  }
  work.sum(out, terms);
}

class CnnlOps final : public queue_runtime::OpSet {
 public:
  CnnlOps(const Api& api, bool has_bf16) : api_(api), has_bf16_(has_bf16) {}

  int find(const char* name) const override {
    const std::optional<Op> op = find_op_by_name(name);
    if (!op || (*op != Op::Linear && *op != Op::LinearMulti && *op != Op::Add)) return -1;
    return static_cast<int>(*op);
  }

  bool supports(const aa_op_call& call) const override {
    const aa_tensor* t = call.tensors;
    switch (static_cast<Op>(call.op)) {
      case Op::Linear: return supports_part({t[0], t[1], t[2], t[3], t[4]});
      case Op::LinearMulti:
        for (uint32_t i = 1; i < call.tensor_count; i += 3) {
          if (!supports_part({t[i], t[0], t[i + 1], t[i + 2], no_tensor})) return false;
        }
        return true;
      // The documentation of sums does not name bfloat16.
      case Op::Add: return t[0].dtype != AA_DTYPE_BF16 && are_plain({&t[0], &t[1], &t[2]});
      default: return false;
    }
  }

  void run(const aa_op_call& call, void* queue, queue_runtime::Workspace& workspace) const override {
    const aa_tensor* t = call.tensors;
    Work work(api_, queue, workspace);
    switch (static_cast<Op>(call.op)) {
      case Op::Linear: return run_part({t[0], t[1], t[2], t[3], t[4]}, work);
      case Op::LinearMulti:
        for (uint32_t i = 1; i < call.tensor_count; i += 3) {
          run_part({t[i], t[0], t[i + 1], t[i + 2], no_tensor}, work);
        }
        return;
      case Op::Add: return work.sum(t[0], {&t[1], &t[2]});
      default: throw abi::Failure(AA_INVALID_ARGUMENT, "mlu has no op with the number " + std::to_string(call.op));
    }
  }

 private:
  // Returns whether all have one type that the devices compute with, have no gaps, are not empty, and are not too large
  // for a product.
  bool are_plain(std::initializer_list<const aa_tensor*> tensors) const {
    for (const aa_tensor* tensor : tensors) {
      if (tensor->dtype != (*tensors.begin())->dtype || cnnl_type(tensor->dtype) == 0) return false;
      if (tensor->ndim < 1 || tensor->ndim > 8) return false;
      int64_t step = 1;
      for (int32_t d = tensor->ndim - 1; d >= 0; --d) {
        if (tensor->shape[d] == 0 || (tensor->shape[d] > 1 && tensor->strides[d] != step)) return false;
        step *= tensor->shape[d];
      }
      if (bytes_of(*tensor) >= cnnl_most_bytes) return false;
    }
    return (*tensors.begin())->dtype != AA_DTYPE_BF16 || has_bf16_;
  }

  bool supports_part(const Part& part) const {
    const auto& [out, x, w, bias, residual] = part;
    if (!are_plain({&out, &x, &w})) return false;
    for (const aa_tensor* term : {&bias, &residual}) {
      if (is_there(*term) && (out.dtype != AA_DTYPE_F32 || !are_plain({&out, term}))) return false;
    }
    return true;
  }

  const Api& api_;
  const bool has_bf16_;
};

bool open() {
  const queue_runtime::OpenedLibrary opened = queue_runtime::open_library(library_search(), {"libcnnl.so"});
  if (!opened.handle) return false;
  queue_runtime::Binder binder(opened.handle);
#define ANYACCEL_BIND(name, parameters) binder.required(cnnl.name, #name);
  ANYACCEL_CNNL_FUNCTIONS(ANYACCEL_BIND)
#undef ANYACCEL_BIND
  binder.optional(cnnl.cnnlGetErrorString, "cnnlGetErrorString");
  return binder.missing().empty();
}

}  // namespace

const queue_runtime::OpSet* op_set(const Api& api, bool has_bf16) {
  static const auto& ops = *new std::unique_ptr<CnnlOps>(open() ? std::make_unique<CnnlOps>(api, has_bf16) : nullptr);
  return ops.get();
}

void release_ops(int ordinal) { handles().release(ordinal); }

}  // namespace anyaccel::mlu
