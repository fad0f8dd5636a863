// Simulates Cambricon's library of operators (libcnnl.so) for products of matrices and sums of tensors. CNNL's header is not public:
// names, numbers, orders of arguments and rules are those of mlu-ops, Cambricon's open library, which wrapped these functions and
// documented them as its own (commit 896c1be7: bangc-ops/mlu_op.h, bangc-ops/kernels/matmul/matmul.cpp). Sums are in fp32, and a
// result is rounded once, to its type.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "simulators/libraries/library.h"
#include "simulators/libraries/product.h"

namespace sim_library {

enum cnnlStatus_t : int {
  CNNL_STATUS_SUCCESS = 0,
  CNNL_STATUS_NOT_INITIALIZED = 1,
  CNNL_STATUS_ALLOC_FAILED = 2,
  CNNL_STATUS_BAD_PARAM = 3,
  CNNL_STATUS_INTERNAL_ERROR = 4,
  CNNL_STATUS_ARCH_MISMATCH = 5,
  CNNL_STATUS_EXECUTION_FAILED = 6,
  CNNL_STATUS_NOT_SUPPORTED = 7,
  CNNL_STATUS_NUMERICAL_OVERFLOW = 8,
};
using cnrtQueue_t = void*;

namespace {

enum Type : int { kTypeHalf = 1, kTypeFloat = 2, kTypeBfloat16 = 17 };
enum Attribute : int {
  kComputeType = 0,
  kTransposeA = 3,
  kTransposeB = 4,
  kAllowTf32 = 10,
  kUseBeta = 11,
  kAttributes
};
constexpr int kArray = 4;           // the layout
constexpr int kMostDimensions = 8;  // MLUOP_DIM_MAX
constexpr std::size_t kSomeBytes = 512;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 31;

int data_type(int type) { return type == kTypeFloat ? kF32 : type == kTypeHalf ? kF16 : kBf16; }

struct Context {
  int device = 0;
  cnrtQueue_t queue = nullptr;
};
struct TensorDescription {
  int type = 0;  // 0: not set
  std::vector<std::int64_t> sizes;
  std::int64_t elements() const {
    std::int64_t count = 1;
    for (const std::int64_t size : sizes) count *= size;
    return count;
  }
  std::int64_t bytes() const { return elements() * static_cast<std::int64_t>(size_of_type(data_type(type))); }
  bool operator==(const TensorDescription&) const = default;
};
struct MatMul {
  // TensorFloat-32 is allowed unless it is forbidden.
  std::int32_t values[kAttributes] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0};
};
// The product that a way to multiply was chosen for.
struct Problem {
  bool known = false;
  MatMul matmul;
  TensorDescription a, b, d;
  bool fits(const Problem& other) const {
    return known && other.known && std::memcmp(&matmul, &other.matmul, sizeof matmul) == 0 && a == other.a &&
           b == other.b && d == other.d;
  }
};
struct Algorithm {
  Problem problem;
};
struct Heuristic {
  Problem problem;
};

#define SIM_CNNL_HANDLES(type, name, text)      \
  Handles<type>& name() {                       \
    static auto* all = new Handles<type>(text); \
    return *all;                                \
  }
SIM_CNNL_HANDLES(Context, contexts, "CNNL handle")
SIM_CNNL_HANDLES(TensorDescription, tensors, "CNNL tensor descriptor")
SIM_CNNL_HANDLES(MatMul, matmuls, "CNNL descriptor of a product")
SIM_CNNL_HANDLES(Algorithm, algorithms, "CNNL algorithm of a product")
SIM_CNNL_HANDLES(Heuristic, heuristics, "CNNL result of a heuristic")

// A failure, which was reported.
struct Refused {
  cnnlStatus_t status;
};

[[noreturn]] void refuse(const char* function, cnnlStatus_t status, const std::string& what) {
  violation("bad-argument", std::string(function) + ": " + what);
  throw Refused{status};
}
void require(const char* function, bool condition, const std::string& what,
             cnnlStatus_t status = CNNL_STATUS_BAD_PARAM) {
  if (!condition) refuse(function, status, what);
}
template <typename T>
std::shared_ptr<T> object(Handles<T>& all, const void* handle, const char* function) {
  require(function, handle != nullptr, "an argument is null");
  auto found = all.get(handle, function);
  if (found == nullptr) throw Refused{CNNL_STATUS_BAD_PARAM};
  return found;
}

template <typename Run>
cnnlStatus_t guarded(const Run& run) {
  try {
    run();
    return CNNL_STATUS_SUCCESS;
  } catch (const Refused& refused) {
    return refused.status;
  }
}
template <typename T>
cnnlStatus_t create(Handles<T>& all, void** out, const char* function, T made = {}) {
  return guarded([&] {
    require(function, out != nullptr, "there is no place for the result");
    *out = all.add(std::make_shared<T>(std::move(made)));
  });
}
template <typename T>
cnnlStatus_t destroy(Handles<T>& all, void* handle, const char* function) {
  return guarded([&] {
    object(all, handle, function);
    all.remove(handle);
  });
}

TensorDescription described(const void* handle, const char* function) {
  const auto tensor = object(tensors(), handle, function);
  require(function, tensor->type != 0, "a tensor descriptor was not set", CNNL_STATUS_NOT_INITIALIZED);
  return *tensor;
}

sim_hooks::Range range(const void* pointer, std::int64_t bytes, bool write) {
  return {reinterpret_cast<std::uint64_t>(pointer), static_cast<std::size_t>(bytes), write};
}

void enqueue(const Context& context, const char* function, std::vector<sim_hooks::Range> ranges, void* workspace,
             std::size_t workspace_bytes, const sim_hooks::Body& body) {
  // Written over, so that one that is too small, or used by something else at the same time, is found.
  if (workspace_bytes > 0) ranges.push_back(range(workspace, static_cast<std::int64_t>(workspace_bytes), true));
  const std::size_t last = ranges.size() - 1;
  static const char what[] = "an operator of CNNL";
  const int result = driver()->enqueue(context.queue, what, ranges, [body, last, workspace_bytes](char* const* bytes) {
    body(bytes);
    if (workspace_bytes > 0) std::memset(bytes[last], 0xEE, workspace_bytes);
  });
  if (result != 0) throw Refused{CNNL_STATUS_EXECUTION_FAILED};  // the runtime has reported it
  (void)function;
}

// The tensors of a product: matrices whose sizes fit, of one of the documented combinations of types.
Problem product_problem(const void* matmul, const void* a, const void* b, const void* c, const void* d,
                        const char* function) {
  Problem problem{true, *object(matmuls(), matmul, function), described(a, function), described(b, function),
                  described(d, function)};
  require(function, described(c, function) == problem.d, "c and d are described differently");
  const std::int32_t* values = problem.matmul.values;
  for (const TensorDescription* tensor : {&problem.a, &problem.b, &problem.d}) {
    require(function, tensor->sizes.size() == 2, "a tensor is no matrix");
    require(function, tensor->bytes() < kMostBytes, "a matrix of 2 GiB or more");
    require(function, tensor->type == problem.a.type, "the simulator multiplies matrices of one type");
  }
  const bool ta = values[kTransposeA] != 0, tb = values[kTransposeB] != 0;
  require(function,
          problem.a.sizes[ta ? 0 : 1] == problem.b.sizes[tb ? 1 : 0] &&
              problem.d.sizes[0] == problem.a.sizes[ta ? 1 : 0] && problem.d.sizes[1] == problem.b.sizes[tb ? 0 : 1],
          "the sizes do not fit");
  require(function, values[kComputeType] == kTypeFloat, "the simulator adds up in fp32, which has to be chosen");
  require(function, values[kUseBeta] == 0, "the simulator adds no third matrix");
  return problem;
}

}  // namespace

const char* cnnlGetErrorString(cnnlStatus_t status) {
  static constexpr const char* texts[] = {
      "CNNL_STATUS_SUCCESS",          "CNNL_STATUS_NOT_INITIALIZED", "CNNL_STATUS_ALLOC_FAILED",
      "CNNL_STATUS_BAD_PARAM",        "CNNL_STATUS_INTERNAL_ERROR",  "CNNL_STATUS_ARCH_MISMATCH",
      "CNNL_STATUS_EXECUTION_FAILED", "CNNL_STATUS_NOT_SUPPORTED",   "CNNL_STATUS_NUMERICAL_OVERFLOW"};
  return status >= 0 && static_cast<std::size_t>(status) < std::size(texts) ? texts[status] : "unknown status";
}

cnnlStatus_t cnnlCreate(void** out) {
  int device = -1;
  if (driver() == nullptr || driver()->current_device(&device) != 0) return CNNL_STATUS_NOT_INITIALIZED;
  return create(contexts(), out, __func__, Context{device, nullptr});
}
cnnlStatus_t cnnlDestroy(void* handle) { return destroy(contexts(), handle, __func__); }

// A queue of the handle's device; none is the device's default queue.
cnnlStatus_t cnnlSetQueue(void* handle, cnrtQueue_t queue) {
  return guarded([&] {
    const auto context = object(contexts(), handle, __func__);
    int device = context->device;
    if (queue != nullptr && driver()->stream_device(queue, &device) != 0) throw Refused{CNNL_STATUS_BAD_PARAM};
    require(__func__, device == context->device, "the queue is on another device than the handle");
    context->queue = queue;
  });
}

cnnlStatus_t cnnlCreateTensorDescriptor(void** out) { return create(tensors(), out, __func__); }
cnnlStatus_t cnnlDestroyTensorDescriptor(void* tensor) { return destroy(tensors(), tensor, __func__); }
cnnlStatus_t cnnlSetTensorDescriptor(void* handle, int layout, int type, int dimensions, const int* sizes) {
  return guarded([&] {
    const auto tensor = object(tensors(), handle, __func__);
    require(__func__, layout == kArray, "the simulator has the array layout alone");
    require(__func__, type == kTypeHalf || type == kTypeFloat || type == kTypeBfloat16,
            "the simulator has tensors of half, float and bfloat16");
    require(__func__, dimensions > 0 && dimensions <= kMostDimensions && sizes != nullptr,
            "no dimensions, or too many");
    require(__func__, std::all_of(sizes, sizes + dimensions, [](int size) { return size > 0; }),
            "the tensor is empty, which is not simulated");
    tensor->type = type;
    tensor->sizes.assign(sizes, sizes + dimensions);
  });
}

cnnlStatus_t cnnlMatMulDescCreate(void** out) { return create(matmuls(), out, __func__); }
cnnlStatus_t cnnlMatMulDescDestroy(void* matmul) { return destroy(matmuls(), matmul, __func__); }
cnnlStatus_t cnnlSetMatMulDescAttr(void* handle, int attribute, const void* value, std::size_t bytes) {
  return guarded([&] {
    const auto matmul = object(matmuls(), handle, __func__);
    require(__func__,
            attribute == kComputeType || attribute == kTransposeA || attribute == kTransposeB ||
                attribute == kAllowTf32 || attribute == kUseBeta,
            "attribute " + std::to_string(attribute) + " is not simulated");
    require(__func__, value != nullptr && bytes == sizeof(std::int32_t), "the value is not an int32");
    std::memcpy(&matmul->values[attribute], value, sizeof(std::int32_t));
  });
}

cnnlStatus_t cnnlMatMulAlgoCreate(void** out) { return create(algorithms(), out, __func__); }
cnnlStatus_t cnnlMatMulAlgoDestroy(void* algorithm) { return destroy(algorithms(), algorithm, __func__); }
cnnlStatus_t cnnlCreateMatMulHeuristicResult(void** out) { return create(heuristics(), out, __func__); }
cnnlStatus_t cnnlDestroyMatMulHeuristicResult(void* result) { return destroy(heuristics(), result, __func__); }

cnnlStatus_t cnnlGetMatMulAlgoHeuristic(void* handle, void* matmul, void* a, void* b, void* c, void* d, void*,
                                        int asked, void** results, int* found) {
  return guarded([&] {
    object(contexts(), handle, __func__);
    require(__func__, asked > 0 && results != nullptr && found != nullptr, "there is no place for a result");
    object(heuristics(), results[0], __func__)->problem = product_problem(matmul, a, b, c, d, __func__);
    *found = 1;
  });
}
cnnlStatus_t cnnlGetMatMulHeuristicResult(void* result, void* algorithm, std::size_t* workspace) {
  return guarded([&] {
    const auto heuristic = object(heuristics(), result, __func__);
    require(__func__, heuristic->problem.known && workspace != nullptr, "the heuristic was not asked");
    object(algorithms(), algorithm, __func__)->problem = heuristic->problem;
    *workspace = kSomeBytes;
  });
}

cnnlStatus_t cnnlMatMul_v2(void* handle, void* matmul, void* algorithm, const void* alpha, const void* a_tensor,
                           const void* a, const void* b_tensor, const void* b, const void* beta, const void* c_tensor,
                           void* c, void* workspace, std::size_t workspace_bytes, const void* d_tensor, void* d) {
  return guarded([&] {
    const auto context = object(contexts(), handle, __func__);
    const Problem problem = product_problem(matmul, a_tensor, b_tensor, c_tensor, d_tensor, __func__);
    require(__func__,
            alpha != nullptr && beta != nullptr && a != nullptr && b != nullptr && c != nullptr && d != nullptr,
            "an argument is null");
    require(__func__, object(algorithms(), algorithm, __func__)->problem.fits(problem),
            "the algorithm was chosen for another product");
    require(__func__, workspace != nullptr && workspace_bytes >= kSomeBytes, "the workspace is too small");
    Product product;
    std::memcpy(&product.alpha, alpha, sizeof(float));
    float factor = 0;
    std::memcpy(&factor, beta, sizeof(float));
    require(__func__, factor == 0, "beta is not 0, and was not to be used");
    const std::int32_t* values = problem.matmul.values;
    const int type = data_type(problem.a.type);
    const auto strided = [&](const TensorDescription& tensor, bool transposed) {
      const std::int64_t columns = tensor.sizes[1];
      return transposed ? Strided{type, 1, columns, 0} : Strided{type, columns, 1, 0};
    };
    product.m = problem.d.sizes[0];
    product.n = problem.d.sizes[1];
    product.k = problem.a.sizes[values[kTransposeA] != 0 ? 0 : 1];
    product.a = strided(problem.a, values[kTransposeA] != 0);
    product.b = strided(problem.b, values[kTransposeB] != 0);
    product.c = product.d = strided(problem.d, false);
    if (type == kF32 && values[kAllowTf32] != 0) product.rounding = InputRounding::tf32;
    enqueue(*context, __func__,
            {range(a, problem.a.bytes(), false), range(b, problem.b.bytes(), false), range(d, problem.d.bytes(), true)},
            workspace, kSomeBytes,
            [product](char* const* bytes) { compute(product, bytes[0], bytes[1], nullptr, nullptr, bytes[2]); });
  });
}

namespace {

// The terms of a sum, which are spread over the result from their last dimension on.
struct Sum {
  TensorDescription out;
  std::vector<TensorDescription> terms;

  // The place in a term of the element `number` of the result.
  std::int64_t place(std::size_t term, std::int64_t number) const {
    const std::vector<std::int64_t>& sizes = terms[term].sizes;
    std::int64_t place = 0, step = 1;
    for (std::size_t i = 0; i < out.sizes.size(); ++i) {
      const std::int64_t size = out.sizes[out.sizes.size() - 1 - i], at = number % size;
      number /= size;
      if (i >= sizes.size()) continue;
      const std::int64_t own = sizes[sizes.size() - 1 - i];
      if (own != 1) place += at * step;
      step *= own;
    }
    return place;
  }
};

Sum sum_of(const void* const* terms, std::uint32_t count, const void* out, const char* function) {
  require(function, terms != nullptr && count > 0, "there are no terms");
  Sum sum{described(out, function), {}};
  require(function, sum.out.type != kTypeBfloat16, "sums of bfloat16 are not documented", CNNL_STATUS_NOT_SUPPORTED);
  for (std::uint32_t i = 0; i < count; ++i) {
    const TensorDescription& term = sum.terms.emplace_back(described(terms[i], function));
    require(function, term.type == sum.out.type, "a term is of another type than the sum");
    bool fits = term.sizes.size() <= sum.out.sizes.size();
    for (std::size_t k = 0; fits && k < term.sizes.size(); ++k) {
      const std::int64_t own = term.sizes[term.sizes.size() - 1 - k];
      fits = own == 1 || own == sum.out.sizes[sum.out.sizes.size() - 1 - k];
    }
    require(function, fits, "a term does not fit the sum");
  }
  return sum;
}

}  // namespace

cnnlStatus_t cnnlGetAddNWorkspaceSize(void* handle, const void* const* terms, std::uint32_t count, const void* out,
                                      std::size_t* workspace) {
  return guarded([&] {
    object(contexts(), handle, __func__);
    require(__func__, workspace != nullptr, "there is no place for the result");
    sum_of(terms, count, out, __func__);
    *workspace = kSomeBytes;
  });
}

cnnlStatus_t cnnlAddN_v2(void* handle, const void* const* terms, const void* const* inputs, std::uint32_t count,
                         const void* out_tensor, void* out, void* workspace, std::size_t workspace_bytes) {
  return guarded([&] {
    const auto context = object(contexts(), handle, __func__);
    const Sum sum = sum_of(terms, count, out_tensor, __func__);
    require(__func__, inputs != nullptr && out != nullptr, "an argument is null");
    require(__func__, workspace != nullptr && workspace_bytes >= kSomeBytes, "the workspace is too small");
    std::vector<sim_hooks::Range> ranges;
    for (std::uint32_t i = 0; i < count; ++i) {
      require(__func__, inputs[i] != nullptr, "a term is null");
      // Not documented, so that nobody takes it for granted.
      require(__func__, inputs[i] != out, "the sum is one of its terms");
      ranges.push_back(range(inputs[i], sum.terms[i].bytes(), false));
    }
    ranges.push_back(range(out, sum.out.bytes(), true));
    enqueue(*context, __func__, std::move(ranges), workspace, kSomeBytes, [sum](char* const* bytes) {
      const int type = data_type(sum.out.type);
      const auto size = static_cast<std::int64_t>(size_of_type(type));
      for (std::int64_t i = 0, all = sum.out.elements(); i < all; ++i) {
        float value = 0;
        for (std::size_t term = 0; term < sum.terms.size(); ++term) {
          value += load_number(bytes[term] + sum.place(term, i) * size, type);
        }
        store_number(bytes[sum.terms.size()] + i * size, type, value);
      }
    });
  });
}

}  // namespace sim_library

SIM_EXPORT(cnnlGetErrorString, nullptr)
SIM_EXPORT(cnnlCreate, sim_library::CNNL_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cnnlDestroy, sim_library::CNNL_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cnnlSetQueue, sim_library::CNNL_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cnnlCreateTensorDescriptor, sim_library::CNNL_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cnnlDestroyTensorDescriptor, sim_library::CNNL_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cnnlSetTensorDescriptor, sim_library::CNNL_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cnnlMatMulDescCreate, sim_library::CNNL_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cnnlMatMulDescDestroy, sim_library::CNNL_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cnnlSetMatMulDescAttr, sim_library::CNNL_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cnnlMatMulAlgoCreate, sim_library::CNNL_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cnnlMatMulAlgoDestroy, sim_library::CNNL_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cnnlCreateMatMulHeuristicResult, sim_library::CNNL_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cnnlDestroyMatMulHeuristicResult, sim_library::CNNL_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cnnlGetMatMulAlgoHeuristic, sim_library::CNNL_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cnnlGetMatMulHeuristicResult, sim_library::CNNL_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cnnlMatMul_v2, sim_library::CNNL_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cnnlGetAddNWorkspaceSize, sim_library::CNNL_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cnnlAddN_v2, sim_library::CNNL_STATUS_INTERNAL_ERROR)
