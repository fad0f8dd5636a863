// Simulates NVIDIA's library of matrix products (libcublasLt.so.13). Products run in stream order on the simulated
// driver, so capture, races and bounds hold for them as for kernels; the workspace counts as written. Results follow
// cublasLt 13.1: attribute sizes, what is checked when descriptors are made (nearly nothing) and what when they are
// used.
#include "simulators/cuda_libraries/cublaslt.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "simulators/cuda/facts.h"
#include "simulators/libraries/library.h"

#ifndef SIM_CUBLASLT_VERSION
#define SIM_CUBLASLT_VERSION 130100
#endif

namespace sim_library {

using cublasLtHandle_t = void*;
using cublasLtMatmulDesc_t = void*;
using cublasLtMatrixLayout_t = void*;
using cublasLtMatmulPreference_t = void*;
using cudaStream_t = void*;

namespace {

constexpr std::uint32_t kMagic = 0x4c740000U + SIM_CUBLASLT_VERSION % 0x10000U;
constexpr std::uint64_t kWorkspaceAlignment = 16;

Handles<Context>& contexts() {
  static auto* handles = new Handles<Context>("cublasLt handle");
  return *handles;
}
Handles<MatmulDesc>& descs() {
  static auto* handles = new Handles<MatmulDesc>("cublasLt product descriptor");
  return *handles;
}
Handles<Layout>& layouts() {
  static auto* handles = new Handles<Layout>("cublasLt matrix layout");
  return *handles;
}
Handles<Preference>& preferences() {
  static auto* handles = new Handles<Preference>("cublasLt preference");
  return *handles;
}

cublasStatus_t refuse(const char* function, cublasStatus_t status, const char* kind, const std::string& what) {
  violation(kind, std::string(function) + ": " + what);
  return status;
}

// Copies an attribute of exactly the member's size.
template <typename T>
cublasStatus_t assign(T* member, const void* value, std::size_t size) {
  if (value == nullptr || size != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(member, value, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t checked(const char* function, cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS)
    violation("bad-argument", std::string(function) + ": unknown attribute or wrong size");
  return status;
}

template <typename T, typename Table>
cublasStatus_t create(void** handle, Table& table, T object, const char* function) {
  if (handle == nullptr) return refuse(function, CUBLAS_STATUS_INVALID_VALUE, "bad-argument", "a pointer is null");
  *handle = table.add(std::make_shared<T>(std::move(object)));
  return CUBLAS_STATUS_SUCCESS;
}
// Null is nothing to destroy.
template <typename Table>
cublasStatus_t destroy(const void* handle, Table& table, const char* function) {
  if (handle == nullptr) return CUBLAS_STATUS_SUCCESS;
  if (table.get(handle, function) == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  table.remove(handle);
  return CUBLAS_STATUS_SUCCESS;
}

// The library works on the device it was made for.
cublasStatus_t check_context(cublasLtHandle_t handle, const char* function) {
  const auto context = contexts().get(handle, function);
  if (context == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  int device = -1;
  if (driver() == nullptr || driver()->current_device(&device) != 0) {
    return refuse(function, CUBLAS_STATUS_NOT_INITIALIZED, "no-context", "the calling thread has no current context");
  }
  if (device != context->device) {
    return refuse(function, CUBLAS_STATUS_INVALID_VALUE, "wrong-owner",
                  "the handle was made on device " + std::to_string(context->device) + " and device " +
                      std::to_string(device) + " is current");
  }
  return CUBLAS_STATUS_SUCCESS;
}

struct Matrices {
  std::shared_ptr<MatmulDesc> desc;
  std::shared_ptr<Layout> a, b, c, d;
};
bool find(Matrices* out, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
          cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, const char* function) {
  out->desc = descs().get(desc, function);
  out->a = layouts().get(a, function);
  out->b = layouts().get(b, function);
  out->c = layouts().get(c, function);
  out->d = layouts().get(d, function);
  return out->desc != nullptr && out->a != nullptr && out->b != nullptr && out->c != nullptr && out->d != nullptr;
}

// Kernels load up to 16 bytes at once: the largest power of two up to that which divides all of these.
std::uint8_t alignment(std::uint64_t promised, const Layout& layout) {
  const std::uint64_t size = size_of_type(layout.type);
  std::uint64_t all = promised | (static_cast<std::uint64_t>(layout.leading) * size) | 16;
  if (layout.batch > 1) all |= static_cast<std::uint64_t>(layout.batch_step) * size;
  return static_cast<std::uint8_t>(all & (~all + 1));
}

// The algorithms for a problem, the supposedly fastest first. They differ in the memory they need: sums split in four
// over k, a fixed buffer, nothing.
std::vector<Algo> algorithms(const Problem& problem, const Matrices& of, const Preference& preference) {
  Algo algo{};
  algo.magic = kMagic;
  algo.arch = static_cast<std::uint16_t>(sim::cuda::architecture());
  algo.problem = problem.hash;
  algo.align_a = alignment(preference.align_a, *of.a);
  algo.align_b = alignment(preference.align_b, *of.b);
  algo.align_c = alignment(preference.align_c, *of.c);
  algo.align_d = alignment(preference.align_d, *of.d);
  const std::uint64_t bias = of.desc->bias | 16;
  algo.align_bias = problem.product.bias ? static_cast<std::uint8_t>(bias & (~bias + 1)) : 1;
  const Product& p = problem.product;
  const std::uint64_t workspaces[] = {static_cast<std::uint64_t>(4 * p.m * p.n * p.batch * 4), 32768, 0};
  std::vector<Algo> all;
  for (std::uint16_t variant = 0; variant < 3; ++variant) {
    algo.variant = variant;
    algo.workspace = workspaces[variant];
    if (algo.workspace <= preference.max_workspace) all.push_back(algo);
  }
  return all;
}

bool aligned(const void* pointer, std::uint64_t bytes) { return reinterpret_cast<std::uint64_t>(pointer) % bytes == 0; }

}  // namespace

std::size_t cublasLtGetVersion() { return SIM_CUBLASLT_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unrecognized status";
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "the function requires an architectural feature absent from the device";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "an internal operation failed";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the requested functionality is not supported";
  }
  return "unrecognized status";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  // Without a driver or a device the real library says the same; that is no mistake of the caller.
  if (driver() == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  int device = -1;
  if (driver()->current_device(&device) != 0) {
    return refuse(__func__, CUBLAS_STATUS_NOT_INITIALIZED, "no-context", "the calling thread has no current context");
  }
  return create(handle, contexts(), Context{device}, __func__);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return destroy(handle, contexts(), __func__);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* handle, int compute, int scale) {
  MatmulDesc desc;
  desc.compute = compute;
  desc.scale = scale;
  return create(handle, descs(), desc, __func__);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) { return destroy(handle, descs(), __func__); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle, int attribute, const void* value,
                                              std::size_t size) {
  const auto desc = descs().get(handle, __func__);
  if (desc == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case 0: return checked(__func__, assign(&desc->compute, value, size));
    case 1: return checked(__func__, assign(&desc->scale, value, size));
    case 2: return checked(__func__, assign(&desc->pointer_mode, value, size));
    case 3: return checked(__func__, assign(&desc->transpose_a, value, size));
    case 4: return checked(__func__, assign(&desc->transpose_b, value, size));
    case 5: return checked(__func__, assign(&desc->transpose_c, value, size));
    case 7: return checked(__func__, assign(&desc->epilogue, value, size));
    case 8: return checked(__func__, assign(&desc->bias, value, size));
    case 10: return checked(__func__, assign(&desc->bias_batch_step, value, size));
    case 15: return checked(__func__, assign(&desc->sm_target, value, size));
    case 25: return checked(__func__, assign(&desc->fast_accumulation, value, size));
    case 26: return checked(__func__, assign(&desc->bias_type, value, size));
    default: return checked(__func__, CUBLAS_STATUS_INVALID_VALUE);
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* handle, int type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading) {
  return create(handle, layouts(), Layout{type, 0, rows, columns, leading, 1, 0}, __func__);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
  return destroy(handle, layouts(), __func__);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle, int attribute, const void* value,
                                                std::size_t size) {
  const auto layout = layouts().get(handle, __func__);
  if (layout == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case 0: return checked(__func__, assign(&layout->type, value, size));
    case 1: return checked(__func__, assign(&layout->order, value, size));
    case 2: return checked(__func__, assign(&layout->rows, value, size));
    case 3: return checked(__func__, assign(&layout->columns, value, size));
    case 4: return checked(__func__, assign(&layout->leading, value, size));
    case 5: return checked(__func__, assign(&layout->batch, value, size));
    case 6: return checked(__func__, assign(&layout->batch_step, value, size));
    default: return checked(__func__, CUBLAS_STATUS_INVALID_VALUE);
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* handle) {
  return create(handle, preferences(), Preference{}, __func__);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
  return destroy(handle, preferences(), __func__);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle, int attribute, const void* value,
                                                    std::size_t size) {
  const auto preference = preferences().get(handle, __func__);
  if (preference == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case 0: return checked(__func__, assign(&preference->search_mode, value, size));
    case 1: return checked(__func__, assign(&preference->max_workspace, value, size));
    case 3: return checked(__func__, assign(&preference->reduction_mask, value, size));
    case 5: return checked(__func__, assign(&preference->align_a, value, size));
    case 6: return checked(__func__, assign(&preference->align_b, value, size));
    case 7: return checked(__func__, assign(&preference->align_c, value, size));
    case 8: return checked(__func__, assign(&preference->align_d, value, size));
    case 9: return checked(__func__, assign(&preference->max_waves, value, size));
    case 12: return checked(__func__, assign(&preference->implementation_mask, value, size));
    default: return checked(__func__, CUBLAS_STATUS_INVALID_VALUE);
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              HeuristicResult* results, int* count) {
  if (const cublasStatus_t bad = check_context(handle, __func__)) return bad;
  Matrices of;
  const auto wishes = preferences().get(preference, __func__);
  if (!find(&of, desc, a, b, c, d, __func__) || wishes == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (wanted <= 0 || results == nullptr || count == nullptr) {
    return refuse(__func__, CUBLAS_STATUS_INVALID_VALUE, "bad-argument", "there is no place for a result");
  }
  *count = 0;
  Problem problem;
  const char* why = "";
  const cublasStatus_t status = check_problem(*of.desc, *of.a, *of.b, *of.c, *of.d, &problem, &why);
  // Asking whether something is supported breaks no rule.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return status;
  if (status != CUBLAS_STATUS_SUCCESS) return refuse(__func__, status, "bad-argument", why);
  for (const std::uint32_t bytes : {wishes->align_a, wishes->align_b, wishes->align_c, wishes->align_d}) {
    if (bytes == 0 || (bytes & (bytes - 1)) != 0) {
      return refuse(__func__, CUBLAS_STATUS_INVALID_VALUE, "bad-argument", "an alignment is not a power of two");
    }
  }
  for (const Algo& algo : algorithms(problem, of, *wishes)) {
    if (*count == wanted) break;
    results[(*count)++] = {algo, algo.workspace, CUBLAS_STATUS_SUCCESS, 1.0F, {}};
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const Algo* chosen, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  if (const cublasStatus_t bad = check_context(handle, __func__)) return bad;
  Matrices of;
  if (!find(&of, desc, a_layout, b_layout, c_layout, d_layout, __func__)) return CUBLAS_STATUS_INVALID_VALUE;
  const auto wrong = [](const char* what) {
    return refuse("cublasLtMatmul", CUBLAS_STATUS_INVALID_VALUE, "bad-argument", what);
  };
  Problem problem;
  const char* why = "";
  const cublasStatus_t status = check_problem(*of.desc, *of.a, *of.b, *of.c, *of.d, &problem, &why);
  if (status != CUBLAS_STATUS_SUCCESS) return refuse(__func__, status, "bad-argument", why);
  if (alpha == nullptr || beta == nullptr) return wrong("alpha or beta is null");
  Product& product = problem.product;
  product.alpha = load_number(static_cast<const char*>(alpha), of.desc->scale);
  product.beta = load_number(static_cast<const char*>(beta), of.desc->scale);
  if (a == nullptr || b == nullptr || d == nullptr) return wrong("a matrix is null");
  if (c == nullptr && product.beta != 0) return wrong("C is null and beta is not 0");
  if (c == d && product.beta != 0 && of.c->leading != of.d->leading)
    return wrong("C is D with another leading dimension");
  const void* bias = reinterpret_cast<const void*>(of.desc->bias);
  if (product.bias && bias == nullptr) return wrong("the epilogue has a bias and the bias is null");

  Algo algo{};
  if (chosen != nullptr) {
    algo = *chosen;
    if (algo.magic != kMagic) return wrong("the algorithm does not come from this version of the library");
    if (algo.arch != sim::cuda::architecture()) return wrong("the algorithm was chosen for another architecture");
    if (algo.problem != problem.hash) return wrong("the algorithm was chosen for another problem");
  } else {
    Preference preference;
    preference.max_workspace = workspace_bytes;
    preference.align_a = preference.align_b = preference.align_c = preference.align_d = 1;
    algo = algorithms(problem, of, preference).front();
  }
  if (algo.workspace > workspace_bytes) return wrong("the workspace is smaller than the algorithm's");
  if (algo.workspace > 0 && workspace == nullptr) return wrong("the workspace is null");
  if (!aligned(workspace, kWorkspaceAlignment)) return wrong("the workspace is not aligned to 16 bytes");
  if (!aligned(a, algo.align_a) || !aligned(b, algo.align_b) || !aligned(d, algo.align_d) ||
      (c != nullptr && product.beta != 0 && !aligned(c, algo.align_c)) ||
      (product.bias && !aligned(bias, algo.align_bias))) {
    return wrong("a pointer is aligned less than was promised when the algorithm was chosen");
  }

  const auto range = [](const void* pointer, std::size_t bytes, bool write) {
    return sim_hooks::Range{reinterpret_cast<std::uint64_t>(pointer), bytes, write};
  };
  std::vector<sim_hooks::Range> ranges = {range(a, problem.a_bytes, false), range(b, problem.b_bytes, false),
                                          range(d, problem.d_bytes, true)};
  std::size_t c_at = 0, bias_at = 0, workspace_at = 0;
  if (product.beta != 0) {
    c_at = ranges.size();
    ranges.push_back(range(c, problem.c_bytes, false));
  }
  if (product.bias) {
    bias_at = ranges.size();
    ranges.push_back(range(bias, problem.bias_bytes, false));
  }
  if (algo.workspace > 0) {
    workspace_at = ranges.size();
    ranges.push_back(range(workspace, algo.workspace, true));
  }
  const std::size_t scratch = algo.workspace;
  // Matrices of a batch that do not touch may lie in different allocations, with what is somebody else's in between.
  std::size_t apart_at = 0;
  if (problem.apart && product.beta == 0 && !product.bias) {
    const auto step = [](const Strided& matrix) {
      return static_cast<std::size_t>(matrix.batch_step) * size_of_type(matrix.type);
    };
    ranges[0].bytes = problem.a_one_bytes;
    ranges[2].bytes = problem.d_one_bytes;
    apart_at = ranges.size();
    for (std::size_t i = 1; i < static_cast<std::size_t>(product.batch); ++i) {
      ranges.push_back(range(static_cast<const char*>(a) + i * step(product.a), problem.a_one_bytes, false));
      ranges.push_back(range(static_cast<const char*>(d) + i * step(product.d), problem.d_one_bytes, true));
    }
  }
  const auto body = [product, c_at, bias_at, workspace_at, scratch, apart_at](char* const* bytes) {
    if (workspace_at != 0) std::memset(bytes[workspace_at], 0x5c, scratch);
    if (apart_at != 0) {
      Product one = product;
      one.batch = 1;
      for (std::size_t i = 0; i < static_cast<std::size_t>(product.batch); ++i) {
        const std::size_t at = apart_at + 2 * (i - 1);
        const std::size_t b_at = i * static_cast<std::size_t>(product.b.batch_step) * size_of_type(product.b.type);
        compute(one, bytes[i == 0 ? 0 : at], bytes[1] + b_at, nullptr, nullptr, bytes[i == 0 ? 2 : at + 1]);
      }
      return;
    }
    compute(product, bytes[0], bytes[1], c_at != 0 ? bytes[c_at] : nullptr, bias_at != 0 ? bytes[bias_at] : nullptr,
            bytes[2]);
  };
  const int result = driver()->enqueue(stream, "cublasLtMatmul", ranges, body);
  return result == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace sim_library

SIM_EXPORT(cublasLtGetVersion, 0)
SIM_EXPORT(cublasLtGetStatusName, nullptr)
SIM_EXPORT(cublasLtGetStatusString, nullptr)
SIM_EXPORT(cublasLtCreate, sim_library::CUBLAS_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cublasLtDestroy, sim_library::CUBLAS_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cublasLtMatmulDescCreate, sim_library::CUBLAS_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cublasLtMatmulDescDestroy, sim_library::CUBLAS_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cublasLtMatmulDescSetAttribute, sim_library::CUBLAS_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cublasLtMatrixLayoutCreate, sim_library::CUBLAS_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cublasLtMatrixLayoutDestroy, sim_library::CUBLAS_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cublasLtMatrixLayoutSetAttribute, sim_library::CUBLAS_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cublasLtMatmulPreferenceCreate, sim_library::CUBLAS_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cublasLtMatmulPreferenceDestroy, sim_library::CUBLAS_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cublasLtMatmulPreferenceSetAttribute, sim_library::CUBLAS_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cublasLtMatmulAlgoGetHeuristic, sim_library::CUBLAS_STATUS_INTERNAL_ERROR)
SIM_EXPORT(cublasLtMatmul, sim_library::CUBLAS_STATUS_INTERNAL_ERROR)
