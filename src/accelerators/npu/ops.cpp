// Implements ops.h: ops by aclnn.
//
// Every operator is called in two phases: the first checks the tensors and gives an executor and the bytes of memory that it
// wants, the second enqueues it and consumes the executor. All tensors of a call have one element type here, and lie without
// gaps. Left out, for the CPU: what aclnn would round twice (sums of 16-bit products with a bias or residual, gated products of
// 16 bits), and operators whose behaviour for ids out of range is not written down (embedding).
#include "accelerators/npu/ops.h"

#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "accelerators/npu/library_search.h"
#include "anyaccel/abi/driver_class.hpp"
#include "runtime/ops/op_list.h"

namespace anyaccel::npu {
namespace {

using Handle = void*;
using Status = int;

constexpr int format_nd = 2;
constexpr int8_t keep_dtype = 0;  // cubeMathType: products are computed in the type of the operands

// The second phase of every operator.
using Launch = Status (*)(void* workspace, uint64_t bytes, Handle executor, Handle stream);

template <class... Arguments>
struct Operator {
  const char* name;
  Status (*prepare)(Arguments..., uint64_t* workspace, Handle* executor) = nullptr;
  Launch launch = nullptr;

  bool is_there() const { return prepare && launch; }
};

struct Functions {
  Handle (*create_tensor)(const int64_t* dims, uint64_t rank, int type, const int64_t* strides, int64_t offset,
                          int format, const int64_t* storage, uint64_t storage_rank, void* data) = nullptr;
  Status (*destroy_tensor)(Handle tensor) = nullptr;
  Handle (*create_scalar)(void* value, int type) = nullptr;
  Status (*destroy_scalar)(Handle scalar) = nullptr;
  Operator<Handle, Handle, Handle, int8_t> matmul{"aclnnMatmul"};             // a, b, out, cubeMathType
  Operator<Handle, Handle, Handle, Handle> add{"aclnnAdd"};                   // a, b, alpha, out
  Operator<Handle, Handle> silu{"aclnnSilu"};                                 // x, out
  Operator<Handle, int64_t, Handle> swiglu{"aclnnSwiGlu"};                    // x, dim, out
  Operator<Handle, Handle, double, Handle, Handle> rms_norm{"aclnnRmsNorm"};  // x, weight, eps, out, 1/rms
};

// -1: aclnn does not take it here.
int acl_type(int32_t dtype) {
  switch (dtype) {
    case AA_DTYPE_F32: return 0;
    case AA_DTYPE_F16: return 1;
    case AA_DTYPE_BF16: return 27;
    default: return -1;
  }
}

constexpr aa_tensor no_tensor{};  // AA_DTYPE_NONE

bool is_there(const aa_tensor& tensor) { return tensor.dtype != AA_DTYPE_NONE; }

int64_t elements(const aa_tensor& tensor) {
  int64_t count = 1;
  for (int32_t d = 0; d < tensor.ndim; ++d) count *= tensor.shape[d];
  return count;
}

// Without gaps, the last dimension innermost; not empty.
bool is_dense(const aa_tensor& tensor) {
  int64_t step = 1;
  for (int32_t d = tensor.ndim - 1; d >= 0; --d) {
    if (tensor.shape[d] == 0 || (tensor.shape[d] > 1 && tensor.strides[d] != step)) return false;
    step *= tensor.shape[d];
  }
  return tensor.ndim > 0;
}

bool same_memory(const aa_tensor& a, const aa_tensor& b) { return a.data && a.data == b.data; }

// One float type, each without gaps.
bool are_plain(std::initializer_list<const aa_tensor*> tensors) {
  const int32_t dtype = (*tensors.begin())->dtype;
  if (acl_type(dtype) < 0) return false;
  for (const aa_tensor* tensor : tensors) {
    if (tensor->dtype != dtype || !is_dense(*tensor)) return false;
  }
  return true;
}

template <class Params>
const Params& params(const aa_op_call& call) {
  return *static_cast<const Params*>(call.params);
}

// A tensor of aclnn over memory; destroyed when it was used, the memory being the caller's.
class View {
 public:
  View(const Functions& functions, void* data, int32_t dtype, std::vector<int64_t> shape, std::vector<int64_t> strides)
      : functions_(functions) {
    int64_t last = 0;
    for (size_t d = 0; d < shape.size(); ++d) last += (shape[d] - 1) * strides[d];
    const int64_t storage = last + 1;
    handle_ = functions.create_tensor(shape.data(), shape.size(), acl_type(dtype), strides.data(), 0, format_nd,
                                      &storage, 1, data);
    if (!handle_) throw abi::Failure(AA_RESOURCE_EXHAUSTED, "npu: aclCreateTensor gave no tensor");
  }
  View(const Functions& functions, const aa_tensor& tensor)
      : View(functions, tensor.data, tensor.dtype, {tensor.shape, tensor.shape + tensor.ndim},
             {tensor.strides, tensor.strides + tensor.ndim}) {}
  ~View() { functions_.destroy_tensor(handle_); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  operator Handle() const { return handle_; }  // NOLINT(google-explicit-constructor): an argument of the operators

 private:
  const Functions& functions_;
  Handle handle_;
};

class AclnnOps final : public queue_runtime::OpSet {
 public:
  explicit AclnnOps(const Functions& functions) : f_(functions) {}

  int find(const char* name) const override;
  bool supports(const aa_op_call& call) const override;
  void run(const aa_op_call& call, Handle stream, queue_runtime::Workspace& workspace) const override;

 private:
  struct Place {
    Handle stream;
    queue_runtime::Workspace& workspace;
  };
  template <class... Arguments, class... Given>
  void call(const Operator<Arguments...>& op, const Place& place, Given&&... given) const;
  // One product of a call: out = x * transpose(w) + bias + residual, the last two optional.
  struct Part {
    const aa_tensor& out;
    const aa_tensor& x;
    const aa_tensor& w;
    const aa_tensor& bias;
    const aa_tensor& residual;
  };
  bool supports(const Part& part) const;
  void run(const Part& part, const Place& place) const;
  // `out`: [M,N] with rows `step` elements apart.
  void product(const Place& place, void* out, int64_t step, const aa_tensor& x, const aa_tensor& w) const;
  void sum(const Place& place, const View& a, const View& b, const View& out) const;

  const Functions f_;
};

template <class... Arguments, class... Given>
void AclnnOps::call(const Operator<Arguments...>& op, const Place& place, Given&&... given) const {
  uint64_t bytes = 0;
  Handle executor =
      nullptr;  // lost if the second phase fails or has no memory: one that was consumed may not be destroyed
  const auto check = [&](Status status, const char* phase) {
    if (status != 0) {
      throw abi::Failure(AA_INTERNAL, "npu: " + std::string(op.name) + phase + " gave " + std::to_string(status),
                         status);
    }
  };
  check(op.prepare(std::forward<Given>(given)..., &bytes, &executor), "GetWorkspaceSize");
  void* const memory = bytes ? place.workspace.take(bytes) : nullptr;
  check(op.launch(memory, bytes, executor, place.stream), "");
}

void AclnnOps::product(const Place& place, void* out, int64_t step, const aa_tensor& x, const aa_tensor& w) const {
  const int64_t rows = x.shape[0], inputs = x.shape[1], outputs = w.shape[0];
  const View left(f_, x);
  const View right(f_, w.data, w.dtype, {inputs, outputs}, {1, inputs});  // transposed
  const View result(f_, out, x.dtype, {rows, outputs}, {step, 1});
  call(f_.matmul, place, left, right, result, keep_dtype);
}

// `out` may be one of the two.
void AclnnOps::sum(const Place& place, const View& a, const View& b, const View& out) const {
  float one = 1;
  const std::unique_ptr<void, Status (*)(Handle)> alpha(f_.create_scalar(&one, acl_type(AA_DTYPE_F32)),
                                                        f_.destroy_scalar);
  call(f_.add, place, a, b, alpha.get(), out);
}

bool AclnnOps::supports(const Part& part) const {
  const auto& [out, x, w, bias, residual] = part;
  if (!are_plain({&out, &x, &w})) return false;
  if (!is_there(bias) && !is_there(residual)) return true;
  return f_.add.is_there() && out.dtype == AA_DTYPE_F32 && are_plain({&out, is_there(bias) ? &bias : &out}) &&
         are_plain({&out, is_there(residual) ? &residual : &out});
}

void AclnnOps::run(const Part& part, const Place& place) const {
  const auto& [out, x, w, bias, residual] = part;
  const int64_t rows = x.shape[0], outputs = w.shape[0];
  if (!is_there(bias) && !is_there(residual)) return product(place, out.data, outputs, x, w);
  void* const products = place.workspace.take(static_cast<size_t>(rows * outputs) * sizeof(float));
  product(place, products, outputs, x, w);
  const View between(f_, products, AA_DTYPE_F32, {rows, outputs}, {outputs, 1});
  if (is_there(bias)) {
    const View every_row(f_, bias.data, AA_DTYPE_F32, {rows, outputs}, {0, 1});
    if (!is_there(residual)) return sum(place, between, every_row, View(f_, out));
    sum(place, between, every_row, between);
  }
  sum(place, between, View(f_, residual), View(f_, out));
}

int AclnnOps::find(const char* name) const {
  const std::optional<Op> op = find_op_by_name(name);
  if (!op) return -1;
  bool there = false;
  switch (*op) {
    case Op::Linear:
    case Op::LinearMulti: there = f_.matmul.is_there(); break;
    case Op::GatedLinear: there = f_.matmul.is_there() && f_.swiglu.is_there(); break;
    case Op::RmsNorm: there = f_.rms_norm.is_there(); break;
    case Op::Activation: there = f_.silu.is_there(); break;
    case Op::Add: there = f_.add.is_there(); break;
    default: break;
  }
  return there ? static_cast<int>(*op) : -1;
}

bool AclnnOps::supports(const aa_op_call& call) const {
  const aa_tensor* t = call.tensors;
  switch (static_cast<Op>(call.op)) {
    case Op::Linear: return supports(Part{t[0], t[1], t[2], t[3], t[4]});
    case Op::LinearMulti:
      for (uint32_t i = 1; i < call.tensor_count; i += 3) {
        if (!supports(Part{t[i], t[0], t[i + 1], t[i + 2], no_tensor})) return false;
      }
      return true;
    case Op::GatedLinear:
      return params<aa_activation_params>(call).kind == AA_ACTIVATION_SILU && !is_there(t[4]) && !is_there(t[5]) &&
             t[0].dtype == AA_DTYPE_F32 && are_plain({&t[0], &t[1], &t[2], &t[3]});
    case Op::RmsNorm:
      if (!is_there(t[2]) || !are_plain({&t[0], &t[1], &t[2]}) || same_memory(t[0], t[1])) return false;
      return !is_there(t[3]) || (f_.add.is_there() && are_plain({&t[0], &t[3]}));
    case Op::Activation:
      return params<aa_activation_params>(call).kind == AA_ACTIVATION_SILU && are_plain({&t[0], &t[1]});
    case Op::Add: return are_plain({&t[0], &t[1], &t[2]});
    default: return false;
  }
}

void AclnnOps::run(const aa_op_call& op_call, Handle stream, queue_runtime::Workspace& workspace) const {
  const aa_tensor* t = op_call.tensors;
  const Place place{stream, workspace};
  switch (static_cast<Op>(op_call.op)) {
    case Op::Linear: return run(Part{t[0], t[1], t[2], t[3], t[4]}, place);
    case Op::LinearMulti:
      for (uint32_t i = 1; i < op_call.tensor_count; i += 3) {
        run(Part{t[i], t[0], t[i + 1], t[i + 2], no_tensor}, place);
      }
      return;
    case Op::GatedLinear: {
      // Both products side by side in each row, as the operator wants them.
      const int64_t rows = t[0].shape[0], outputs = t[0].shape[1];
      auto* const products =
          static_cast<float*>(workspace.take(static_cast<size_t>(rows * outputs) * 2 * sizeof(float)));
      product(place, products, 2 * outputs, t[1], t[2]);
      product(place, products + outputs, 2 * outputs, t[1], t[3]);
      const View both(f_, products, AA_DTYPE_F32, {rows, 2 * outputs}, {2 * outputs, 1});
      return call(f_.swiglu, place, both, int64_t{-1}, View(f_, t[0]));
    }
    case Op::RmsNorm: {
      const bool adds = is_there(t[3]);
      if (adds) sum(place, View(f_, t[3]), View(f_, t[1]), View(f_, t[3]));
      const aa_tensor& x = adds ? t[3] : t[1];
      // One number for each row, in the shape of x with a last dimension of 1.
      const int64_t rows = elements(x) / x.shape[x.ndim - 1];
      std::vector<int64_t> shape(x.shape, x.shape + x.ndim), strides(shape.size(), 1);
      shape.back() = 1;
      for (size_t d = shape.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * shape[d + 1];
      const View root(f_, workspace.take(static_cast<size_t>(rows) * sizeof(float)), AA_DTYPE_F32, shape, strides);
      const auto eps = static_cast<double>(params<aa_norm_params>(op_call).eps);
      return call(f_.rms_norm, place, View(f_, x), View(f_, t[2]), eps, View(f_, t[0]), root);
    }
    case Op::Activation: return call(f_.silu, place, View(f_, t[1]), View(f_, t[0]));
    case Op::Add: return sum(place, View(f_, t[1]), View(f_, t[2]), View(f_, t[0]));
    default: throw abi::Failure(AA_INVALID_ARGUMENT, "npu has no op with the number " + std::to_string(op_call.op));
  }
}

// The first of the libraries that has a function.
class Libraries {
 public:
  void add(void* handle) { handles_.push_back(handle); }
  template <class Function>
  void bind(Function*& function, const std::string& name) const {
    for (void* handle : handles_) {
      if (function) return;
      queue_runtime::Binder(handle).optional(function, name.c_str());
    }
  }
  template <class... Arguments>
  void bind(Operator<Arguments...>& op) const {
    bind(op.prepare, std::string(op.name) + "GetWorkspaceSize");
    bind(op.launch, op.name);
  }

 private:
  std::vector<void*> handles_;
};

std::unique_ptr<AclnnOps> open_ops(std::string& problem) {
  const queue_runtime::OpenedLibrary base = queue_runtime::open_library(library_search(), {"libnnopbase.so"});
  if (!base.handle) {
    problem = "no aclnn: " + base.tried;
    return nullptr;
  }
  Libraries libraries;
  for (const char* name : {"libopapi.so", "libopapi_math.so", "libopapi_nn.so"}) {
    const queue_runtime::OpenedLibrary opened = queue_runtime::open_library(library_search(), {name});
    if (opened.handle) {
      libraries.add(opened.handle);
    } else if (problem.empty()) {
      problem = "no aclnn operators: " + opened.tried;
    }
  }
  Functions f;
  Libraries tensors;
  tensors.add(base.handle);
  tensors.bind(f.create_tensor, "aclCreateTensor");
  tensors.bind(f.destroy_tensor, "aclDestroyTensor");
  tensors.bind(f.create_scalar, "aclCreateScalar");
  tensors.bind(f.destroy_scalar, "aclDestroyScalar");
  if (!f.create_tensor || !f.destroy_tensor || !f.create_scalar || !f.destroy_scalar) {
    problem = base.path + " lacks one of aclCreateTensor, aclDestroyTensor, aclCreateScalar, aclDestroyScalar";
    return nullptr;
  }
  libraries.bind(f.matmul);
  libraries.bind(f.add);
  libraries.bind(f.silu);
  libraries.bind(f.swiglu);
  libraries.bind(f.rms_norm);
  if (!f.matmul.is_there() && !f.add.is_there() && !f.rms_norm.is_there()) return nullptr;
  problem.clear();
  return std::make_unique<AclnnOps>(f);
}

}  // namespace

const queue_runtime::OpSet* op_set(std::string& problem) {
  struct Opened {
    Opened() : ops(open_ops(problem)) {}
    std::string problem;
    std::unique_ptr<AclnnOps> ops;
  };
  static const auto& opened = *new Opened;
  problem = opened.problem;
  return opened.ops.get();
}

}  // namespace anyaccel::npu
