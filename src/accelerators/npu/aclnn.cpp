// Implements aclnn.h: calls CANN's operators.
#include "accelerators/npu/aclnn.h"

#include <algorithm>

#include "accelerators/npu/library_search.h"

namespace anyaccel::npu {
namespace {

constexpr int8_t keep_dtype = 0;  // cubeMathType: products are computed in the type of the operands

// Binds each function from the first library that has it.
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

bool open(Functions& f, std::string& problem) {
  const queue_runtime::OpenedLibrary base = queue_runtime::open_library(library_search(), {"libnnopbase.so"});
  if (!base.handle) {
    problem = "no aclnn: " + base.tried;
    return false;
  }
  Libraries libraries;
  for (const char* name :
       {"libopapi.so", "libopapi_math.so", "libopapi_nn.so", "libopapi_transformer.so", "libopapi_cv.so"}) {
    const queue_runtime::OpenedLibrary opened = queue_runtime::open_library(library_search(), {name});
    if (opened.handle) {
      libraries.add(opened.handle);
    } else if (problem.empty()) {
      problem = "no aclnn operators: " + opened.tried;
    }
  }
  Libraries tensors;
  tensors.add(base.handle);
  tensors.bind(f.create_tensor, "aclCreateTensor");
  tensors.bind(f.destroy_tensor, "aclDestroyTensor");
  tensors.bind(f.create_scalar, "aclCreateScalar");
  tensors.bind(f.destroy_scalar, "aclDestroyScalar");
  tensors.bind(f.create_int_array, "aclCreateIntArray");
  tensors.bind(f.destroy_int_array, "aclDestroyIntArray");
  tensors.bind(f.keep_executor, "aclSetAclOpExecutorRepeatable");
  tensors.bind(f.destroy_executor, "aclDestroyAclOpExecutor");
  if (!f.create_tensor || !f.destroy_tensor || !f.create_scalar || !f.destroy_scalar) {
    problem = base.path + " lacks one of aclCreateTensor, aclDestroyTensor, aclCreateScalar, aclDestroyScalar";
    return false;
  }
  const auto bind_all = [&](auto&... operators) { (libraries.bind(operators), ...); };
  bind_all(f.matmul, f.add, f.silu, f.swiglu, f.rms_norm, f.embedding, f.rotate, f.softmax, f.copy, f.cast, f.scale,
           f.multiply, f.clamp, f.range, f.greater, f.at_most, f.equal, f.differs, f.either, f.fill_where,
           f.replace_nan, f.sum, f.maximum, f.advance, f.select, f.put, f.flash_attention, f.adam, f.convert,
           f.matmul_blocks);
  if (!f.create_int_array || !f.destroy_int_array) f.sum.launch = f.maximum.launch = nullptr;
  if (!f.matmul.is_there() && !f.add.is_there() && !f.rms_norm.is_there()) return false;
  problem.clear();
  return true;
}

std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

}  // namespace

const Functions* functions(const std::string& processor, std::string& problem) {
  struct Opened {
    explicit Opened(const std::string& processor) : is_open(open(functions, problem)) {
      for (const char* known : {"Ascend910B", "Ascend910_93"}) functions.keeps_f32 |= processor.starts_with(known);
    }
    std::string problem;
    Functions functions;
    bool is_open;
  };
  static const auto& opened = *new Opened(processor);
  problem = opened.problem;
  return opened.is_open ? &opened.functions : nullptr;
}

size_t WeightInBlocks::bytes(int64_t outputs, int64_t inputs) {
  const auto blocks = ((outputs + side - 1) / side) * ((inputs + side - 1) / side);
  return static_cast<size_t>(blocks * side * side) * bytes_of(type_bf16);
}

size_t bytes_of(int type) {
  switch (type) {
    case type_f16:
    case type_bf16: return 2;
    case type_i64: return 8;
    case type_bool: return 1;
    default: return 4;
  }
}

int acl_type(int32_t dtype) {
  switch (dtype) {
    case AA_DTYPE_F32: return type_f32;
    case AA_DTYPE_F16: return type_f16;
    case AA_DTYPE_BF16: return type_bf16;
    case AA_DTYPE_I32: return type_i32;
    case AA_DTYPE_I64: return type_i64;
    default: return -1;
  }
}

Shaped::Shaped(void* memory, int its_type, std::vector<int64_t> its_shape)
    : Shaped(memory, its_type, its_shape, dense_strides(its_shape)) {}

// ---- operators -------------------------------------------------------------------------------------------------------

void Work::check(Status status, const char* name, const char* phase) {
  if (status != 0) {
    throw abi::Failure(AA_INTERNAL, "npu: " + std::string(name) + phase + " gave " + std::to_string(status), status);
  }
}

// ACLNN_ERR_PARAM_INVALID, ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_INNER_FIND_KERNEL_ERROR.
bool Work::is_refusal(Status status) { return status == 161002 || status == 561002 || status == 561003; }

// The second phase of an operator destroys its executor. That of one that did not run can be destroyed by the caller once it is
// declared to be the caller's, for repeated use; where a release lacks these functions it is left over.
Work::~Work() {
  for (; launched_ < prepared_.size(); ++launched_) {
    const Handle executor = prepared_[launched_].executor;
    if (f.keep_executor && f.destroy_executor && f.keep_executor(executor) == 0) f.destroy_executor(executor);
  }
  for (const Object& object : objects_) {
    if (object.handle) object.destroy(object.handle);
  }
}

void Work::launch() {
  while (launched_ < prepared_.size()) {
    const Prepared& one = prepared_[launched_++];
    check(one.launch(one.workspace, one.bytes, one.executor, stream_), one.name, "");
  }
}

template <class Create>
Handle Work::keep(const Create& create, Status (*destroy)(Handle), const char* made_by) {
  objects_.push_back({nullptr, destroy});  // first, because what is made could be lost otherwise
  Handle& handle = objects_.back().handle;
  handle = create();
  if (!handle) throw abi::Failure(AA_RESOURCE_EXHAUSTED, "npu: " + std::string(made_by) + " gave nothing");
  return handle;
}

Handle Work::tensor(const Shaped& what) {
  int64_t storage = 1;
  for (size_t d = 0; d < what.shape.size(); ++d) storage += (what.shape[d] - 1) * what.strides[d];
  const auto create = [&] {
    return f.create_tensor(what.shape.data(), what.shape.size(), what.type, what.strides.data(), 0, format_nd, &storage,
                           1, what.data);
  };
  return keep(create, f.destroy_tensor, "aclCreateTensor");
}

Handle Work::tensor(const WeightInBlocks& what, bool transposed) {
  constexpr int64_t side = WeightInBlocks::side;
  const int64_t storage[] = {(what.inputs + side - 1) / side, (what.outputs + side - 1) / side, side, side};
  const int64_t shape[] = {what.outputs, what.inputs}, strides[] = {what.inputs, 1};
  const int64_t shape_across[] = {what.inputs, what.outputs}, strides_across[] = {1, what.inputs};
  const auto create = [&] {
    return f.create_tensor(transposed ? shape_across : shape, 2, what.type, transposed ? strides_across : strides, 0,
                           format_fractal_nz, storage, 4, what.data);
  };
  return keep(create, f.destroy_tensor, "aclCreateTensor");
}

Handle Work::scalar(float value) {
  return keep([&] { return f.create_scalar(&value, type_f32); }, f.destroy_scalar, "aclCreateScalar");
}

Handle Work::integer(int64_t value) {
  return keep([&] { return f.create_scalar(&value, type_i64); }, f.destroy_scalar, "aclCreateScalar");
}

Handle Work::integers(std::initializer_list<int64_t> values) {
  return keep([&] { return f.create_int_array(values.begin(), values.size()); }, f.destroy_int_array,
              "aclCreateIntArray");
}

Shaped Work::temporary(int type, std::vector<int64_t> shape) {
  size_t bytes = bytes_of(type);
  for (const int64_t size : shape) bytes *= static_cast<size_t>(size);
  return {workspace_.take(bytes), type, std::move(shape)};
}

void Work::product(const Shaped& a, const Shaped& b, const Shaped& out) {
  call(f.matmul, tensor(a), tensor(b), tensor(out), keep_dtype);
}

void Work::product(const Shaped& x, const WeightInBlocks& w, const Shaped& out) {
  // The operator writes no rows with gaps between them.
  const bool gaps = out.shape[0] > 1 && out.strides[0] != out.shape[1];
  const Shaped result = gaps ? temporary(out.type, out.shape) : out.seen_as(out.shape);
  call(f.matmul_blocks, tensor(x), tensor(w, true), tensor(result), keep_dtype);
  if (gaps) copy(out, result);
}

void Work::to_blocks(const Shaped& weight, const WeightInBlocks& out) {
  call(f.convert, tensor(weight), tensor(out, false));
}

void Work::from_blocks(const WeightInBlocks& weight, const Shaped& out) {
  call(f.convert, tensor(weight, false), tensor(out));
}

void Work::add(const Shaped& a, const Shaped& b, const Shaped& out) {
  call(f.add, tensor(a), tensor(b), scalar(1), tensor(out));
}

void Work::copy(const Shaped& to, const Shaped& from) { call(f.copy, tensor(to), tensor(from)); }

void Work::cast(const Shaped& to, const Shaped& from) { call(f.cast, tensor(from), to.type, tensor(to)); }

void Work::scale(const Shaped& x, float factor, const Shaped& out) {
  call(f.scale, tensor(x), scalar(factor), tensor(out));
}

void Work::range(int64_t first, int64_t step, const Shaped& out) {
  int64_t count = 1;
  for (const int64_t size : out.shape) count *= size;
  call(f.range, integer(first), integer(first + count * step), integer(step), tensor(out));
}

void Work::fill_where(const Shaped& x, const Shaped& mask, float value) {
  call(f.fill_where, tensor(x), tensor(mask), scalar(value));
}

void Work::sum_last(const Shaped& x, const Shaped& out) {
  call(f.sum, tensor(x), integers({-1}), false, out.type, tensor(out));
}

void Work::maximum_last(const Shaped& x, const Shaped& out) {
  call(f.maximum, tensor(x), integers({-1}), false, tensor(out));
}

Shaped Work::in_f32(const Shaped& x) {
  if (x.type == type_f32) return x;
  Shaped wide = temporary(type_f32, x.shape);
  cast(wide, x);
  return wide;
}

Shaped Work::f32_for(const Shaped& out) { return out.type == type_f32 ? out : temporary(type_f32, out.shape); }

// ---- what ops require of their tensors ------------------------------------------------------------------------------

int64_t elements(const aa_tensor& tensor) {
  int64_t count = 1;
  for (int32_t d = 0; d < tensor.ndim; ++d) count *= tensor.shape[d];
  return count;
}

bool is_dense(const aa_tensor& tensor) {
  int64_t step = 1;
  for (int32_t d = tensor.ndim - 1; d >= 0; --d) {
    if (tensor.shape[d] == 0 || (tensor.shape[d] > 1 && tensor.strides[d] != step)) return false;
    step *= tensor.shape[d];
  }
  return tensor.ndim > 0;
}

bool is_viewable(const aa_tensor& tensor) {
  for (int32_t d = 0; d < tensor.ndim; ++d) {
    if (tensor.shape[d] == 0 || (tensor.shape[d] > 1 && tensor.strides[d] <= 0)) return false;
  }
  return tensor.ndim > 0;
}

bool is_float(const aa_tensor& tensor) {
  const int type = acl_type(tensor.dtype);
  return (type == type_f32 || type == type_f16 || type == type_bf16) && is_viewable(tensor);
}

bool is_plain(const aa_tensor& tensor) { return is_float(tensor) && is_dense(tensor); }

bool are_plain(std::initializer_list<const aa_tensor*> tensors) {
  const int32_t dtype = (*tensors.begin())->dtype;
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const aa_tensor* tensor) { return tensor->dtype == dtype && is_plain(*tensor); });
}

}  // namespace anyaccel::npu
