// Calls CANN's operators (aclnn): wraps memory as tensors, provides temporaries, and makes the two calls that each
// operator needs. Names and arguments are those in the documents of Huawei's open operator libraries (opbase, ops-math,
// ops-nn, ops-transformer: docs/aclnn*.md).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerators/queue_runtime/ops.h"
#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::npu {

using Handle = void*;
using Status = int;

// aclDataType
enum Type : int { type_f32 = 0, type_f16 = 1, type_i32 = 3, type_i64 = 9, type_bool = 12, type_bf16 = 27 };
size_t bytes_of(int type);

// aclFormat
enum Format : int { format_nd = 2, format_fractal_nz = 29 };

// The second phase of every operator.
using Launch = Status (*)(void* workspace, uint64_t bytes, Handle executor, Handle stream);

// Arguments of the first phase: inputs and settings, then outputs.
template <class... Arguments>
struct Operator {
  const char* name;
  Status (*prepare)(Arguments..., uint64_t* workspace, Handle* executor) = nullptr;
  Launch launch = nullptr;

  bool is_there() const { return prepare && launch; }
};

struct Functions {
  // True if a product of 16-bit matrices can return an fp32 result that was not rounded to 16 bits in between. This
  // holds on the cores of Ascend 910B and 910C: NeedEnableFp32Output in ops-nn,
  // matmul/common/op_host/op_api/matmul_util.cpp.
  bool keeps_f32 = false;

  Handle (*create_tensor)(const int64_t* dims, uint64_t rank, int type, const int64_t* strides, int64_t offset,
                          int format, const int64_t* storage, uint64_t storage_rank, void* data) = nullptr;
  Status (*destroy_tensor)(Handle tensor) = nullptr;
  Handle (*create_scalar)(void* value, int type) = nullptr;
  Status (*destroy_scalar)(Handle scalar) = nullptr;
  Handle (*create_int_array)(const int64_t* values, uint64_t count) = nullptr;  // older releases may lack it: null
  Status (*destroy_int_array)(Handle array) = nullptr;

  // Both may be missing: null.
  Status (*keep_executor)(Handle executor) = nullptr;
  Status (*destroy_executor)(Handle executor) = nullptr;

  Operator<Handle, Handle, Handle, int8_t> matmul{"aclnnMatmul"};             // a, b, out, cubeMathType
  Operator<Handle, Handle, Handle, Handle> add{"aclnnAdd"};                   // a, b, alpha, out = a + alpha * b
  Operator<Handle, Handle> silu{"aclnnSilu"};                                 // x, out
  Operator<Handle, int64_t, Handle> swiglu{"aclnnSwiGlu"};                    // x, dim, out
  Operator<Handle, Handle, double, Handle, Handle> rms_norm{"aclnnRmsNorm"};  // x, weight, eps, out, 1/rms
  Operator<Handle, Handle, Handle> embedding{"aclnnEmbedding"};               // table, ids, out
  Operator<Handle, Handle, Handle, int64_t, Handle> rotate{
      "aclnnRotaryPositionEmbedding"};                                          // x, cos, sin, mode, out; 4 dimensions
  Operator<Handle, int64_t, Handle> softmax{"aclnnSoftmax"};                    // x, dim, out
  Operator<Handle, Handle> copy{"aclnnInplaceCopy"};                            // to, from
  Operator<Handle, int, Handle> cast{"aclnnCast"};                              // x, type, out
  Operator<Handle, Handle, Handle> scale{"aclnnMuls"};                          // x, factor, out
  Operator<Handle, Handle, Handle> multiply{"aclnnMul"};                        // a, b, out
  Operator<Handle, Handle, Handle, Handle> clamp{"aclnnClamp"};                 // x, least, most, out
  Operator<Handle, Handle, Handle, Handle> range{"aclnnArange"};                // first, end, step, out
  Operator<Handle, Handle, Handle> greater{"aclnnGtTensor"};                    // a, b, out bool = a > b
  Operator<Handle, Handle, Handle> at_most{"aclnnLeTensor"};                    // a, b, out bool = a <= b
  Operator<Handle, Handle, Handle> equal{"aclnnEqTensor"};                      // a, b, out bool
  Operator<Handle, Handle, Handle> differs{"aclnnNeScalar"};                    // x, scalar, out bool
  Operator<Handle, Handle, Handle> either{"aclnnLogicalOr"};                    // a, b, out
  Operator<Handle, Handle, Handle> fill_where{"aclnnInplaceMaskedFillScalar"};  // x, mask, value
  Operator<Handle, float, float, float, Handle> replace_nan{"aclnnNanToNum"};   // x, for nan, for inf, for -inf, out
  Operator<Handle, Handle, bool, int, Handle> sum{"aclnnReduceSum"};            // x, dims, keep them, type, out
  Operator<Handle, Handle, bool, Handle> maximum{"aclnnAmax"};                  // x, dims, keep them, out
  Operator<Handle, Handle, Handle> advance{"aclnnInplaceAdds"};                 // x, amount, factor of it
  Operator<Handle, int64_t, Handle, Handle> select{"aclnnIndexSelect"};         // x, dim, indices, out
  Operator<Handle, int64_t, Handle, Handle> put{"aclnnInplaceIndexCopy"};       // to, dim, indices, from
  // q, k, v, shift, dropout's mask, padding's mask, mask (true: left out), prefixes; scale, kept part, tokens before and
  // after, heads, layout, precision, kind of mask; each row's maximum and sum [batch, heads, rows, 8], null, out
  Operator<Handle, Handle, Handle, Handle, Handle, Handle, Handle, Handle, double, double, int64_t, int64_t, int64_t,
           char*, int64_t, int64_t, Handle, Handle, Handle, Handle>
      flash_attention{"aclnnFlashAttentionScore"};
  // p, m, v, greatest v (or null), gradient, step; lr, beta1, beta2, weight decay, eps, keep the greatest v, maximize
  Operator<Handle, Handle, Handle, Handle, Handle, Handle, float, float, float, float, float, bool, bool> adam{
      "aclnnApplyAdamWV2"};
  Operator<Handle, Handle> convert{"aclnnNpuFormatCast"};                         // x, out in another format
  Operator<Handle, Handle, Handle, int8_t> matmul_blocks{"aclnnMatmulWeightNz"};  // a, b in blocks, out, cubeMathType
};

// Returns the functions of the libraries, which the first call opens, once per process, for processors of this name
// (aclrtGetSocName). Null if the libraries or the functions for tensors are missing; `problem` then says what was
// looked for and where. For operators that a release lacks, is_there() is false.
const Functions* functions(const std::string& processor, std::string& problem);

// Returns -1 for a dtype that is not passed to aclnn here.
int acl_type(int32_t dtype);

// A tensor in device memory, as an operator sees it. Strides are in elements.
struct Shaped {
  char* data = nullptr;
  int type = type_f32;
  std::vector<int64_t> shape, strides;

  Shaped() = default;
  Shaped(void* memory, int its_type, std::vector<int64_t> its_shape, std::vector<int64_t> its_strides)
      : data(static_cast<char*>(memory)),
        type(its_type),
        shape(std::move(its_shape)),
        strides(std::move(its_strides)) {}
  // Creates a tensor without gaps, the last dimension innermost.
  Shaped(void* memory, int its_type, std::vector<int64_t> its_shape);
  explicit Shaped(const aa_tensor& tensor)
      : Shaped(tensor.data, acl_type(tensor.dtype), {tensor.shape, tensor.shape + tensor.ndim},
               {tensor.strides, tensor.strides + tensor.ndim}) {}

  // Returns the same memory in another shape, beginning at the element `from`.
  Shaped seen_as(std::vector<int64_t> its_shape, std::vector<int64_t> its_strides, int64_t from = 0) const {
    return {data + from * static_cast<int64_t>(bytes_of(type)), type, std::move(its_shape), std::move(its_strides)};
  }
  // Returns `count` rows of the first dimension.
  Shaped rows(int64_t from, int64_t count) const {
    std::vector<int64_t> fewer = shape;
    fewer[0] = count;
    return seen_as(std::move(fewer), strides, from * strides[0]);
  }
  // Only valid for a tensor without gaps.
  Shaped seen_as(std::vector<int64_t> its_shape, int64_t from = 0) const {
    return {data + from * static_cast<int64_t>(bytes_of(type)), type, std::move(its_shape)};
  }
};

// A weight [outputs, inputs] of fp16 or bf16 in the layout in which the matrix units read it (FRACTAL_NZ): blocks of 16
// rows by 16 columns, one column of blocks after the other, filled up with zeros. aclnnMatmulWeightNz takes it transposed.
struct WeightInBlocks final : abi::Packed {
  WeightInBlocks(void* memory, int its_type, int64_t its_outputs, int64_t its_inputs)
      : data(memory), type(its_type), outputs(its_outputs), inputs(its_inputs) {}
  void* const data;
  const int type;
  const int64_t outputs, inputs;

  static constexpr int64_t side = 16;
  static size_t bytes(int64_t outputs, int64_t inputs);
};

// Returns null if tensor `index` of the call is not packed.
inline const WeightInBlocks* packed(const aa_op_call& call, size_t index) {
  const auto* object = call.packed ? reinterpret_cast<const abi::Packed*>(call.packed[index]) : nullptr;
  return static_cast<const WeightInBlocks*>(object);
}

// The operators of one call, on its stream. They are prepared one after the other, each with the memory that it needs, and run by
// launch(): a call that gets no memory has done nothing, and the host makes it again after it has given back its cache. Without
// that, an operator that works in place would have its effect twice.
class Work {
 public:
  Work(const Functions& functions, Handle stream, queue_runtime::Workspace& workspace)
      : f(functions), stream_(stream), workspace_(workspace) {}
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  const Functions& f;

  // Runs what was prepared, in order.
  void launch();

  // Allocates a tensor that lives until the call's work has ended.
  Shaped temporary(int type, std::vector<int64_t> shape);

  // Multiplies matrices, or batches of them, of one type; `out` is of that type, or of fp32 if keeps_f32 is true.
  void product(const Shaped& a, const Shaped& b, const Shaped& out);
  // Computes out = x * transpose(w) for matrices; x is of w's type, `out` of that type or of fp32.
  void product(const Shaped& x, const WeightInBlocks& w, const Shaped& out);
  void to_blocks(const Shaped& weight, const WeightInBlocks& out);
  void from_blocks(const WeightInBlocks& weight, const Shaped& out);
  void add(const Shaped& a, const Shaped& b, const Shaped& out);  // `out` may be one of the two
  void copy(const Shaped& to, const Shaped& from);                // both of one type; `from` is broadcast to `to`
  void cast(const Shaped& to, const Shaped& from);                // both of one shape
  void scale(const Shaped& x, float factor, const Shaped& out);
  void range(int64_t first, int64_t step, const Shaped& out);
  void fill_where(const Shaped& x, const Shaped& mask, float value);
  void sum_last(const Shaped& x, const Shaped& out);      // over the last dimension
  void maximum_last(const Shaped& x, const Shaped& out);  // over the last dimension
  // Returns x if it is in fp32, else a temporary copy in fp32.
  Shaped in_f32(const Shaped& x);
  // Returns `out` if it is in fp32, else a temporary in fp32 that finish() converts to `out`.
  Shaped f32_for(const Shaped& out);
  void finish(const Shaped& out, const Shaped& in_its_place) {
    if (out.type != type_f32) cast(out, in_its_place);
  }

  // Tensors, scalars and lists of operators, which live as long as this object: an operator needs them until its second
  // phase has been called.
  Handle tensor(const Shaped& what);
  // The weight, or its transpose.
  Handle tensor(const WeightInBlocks& what, bool transposed);
  Handle scalar(float value);
  Handle integer(int64_t value);
  Handle integers(std::initializer_list<int64_t> values);

  template <class... Arguments, class... Given>
  void call(const Operator<Arguments...>& op, Given&&... given) {
    prepare(op, true, std::forward<Given>(given)...);
  }
  // Returns false, with nothing prepared, if the library does not take such arguments, or lacks a kernel for them or for
  // this processor.
  template <class... Arguments, class... Given>
  bool offer(const Operator<Arguments...>& op, Given&&... given) {
    return prepare(op, false, std::forward<Given>(given)...);
  }

 private:
  struct Object {
    Handle handle;  // null: it could not be made
    Status (*destroy)(Handle);
  };
  struct Prepared {
    const char* name;
    Launch launch;
    void* workspace;
    uint64_t bytes;
    Handle executor;
  };

  static void check(Status status, const char* name, const char* phase);
  static bool is_refusal(Status status);
  // `create` makes an object.
  template <class Create>
  Handle keep(const Create& create, Status (*destroy)(Handle), const char* made_by);
  template <class... Arguments, class... Given>
  bool prepare(const Operator<Arguments...>& op, bool must_take, Given&&... given) {
    uint64_t bytes = 0;
    Handle executor = nullptr;
    const Status prepared = op.prepare(std::forward<Given>(given)..., &bytes, &executor);
    if (!must_take && is_refusal(prepared)) return false;
    check(prepared, op.name, "GetWorkspaceSize");
    prepared_.push_back({op.name, op.launch, nullptr, bytes, executor});
    if (bytes) prepared_.back().workspace = workspace_.take(bytes);
    return true;
  }

  Handle stream_;
  queue_runtime::Workspace& workspace_;
  std::vector<Object> objects_;
  std::vector<Prepared> prepared_;
  size_t launched_ = 0;  // of those; the last of them may have failed
};

// ---- what ops require of their tensors ------------------------------------------------------------------------------

inline bool is_there(const aa_tensor& tensor) { return tensor.dtype != AA_DTYPE_NONE; }
int64_t elements(const aa_tensor& tensor);
// True for a tensor that is not empty and has no gaps, the last dimension innermost.
bool is_dense(const aa_tensor& tensor);
// True for a tensor that is not empty and has strides that aclnn takes: none is negative, and no element occurs twice.
bool is_viewable(const aa_tensor& tensor);
// True if is_viewable() is true and the type is a float type.
bool is_float(const aa_tensor& tensor);
// True if it is dense and of a float type.
bool is_plain(const aa_tensor& tensor);
// True if all of them are plain and of the same type.
bool are_plain(std::initializer_list<const aa_tensor*> tensors);

}  // namespace anyaccel::npu
