// Implements product_engine.h: matrix products by cuBLASLt on one device.
#include "accelerators/cuda/ops/product_engine.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <optional>

#include "accelerators/cuda/stream.h"
#include "anyaccel/dtype.h"
#include "anyaccel/log.h"

namespace anyaccel::cuda {
namespace {

constexpr int most_candidates = 8;
// Multiply-adds from which on it pays to measure: some microseconds of a large device.
constexpr double large_product = 1 << 24;
// Scratch memory is allocated in steps of this size, so that it seldom grows: memory handed out earlier is kept.
constexpr size_t scratch_step = size_t{32} << 20;
// More than a session with prompts of every length needs; beyond it all plans are discarded and created again.
constexpr size_t most_plans = 4096;

// The size that NVIDIA's documentation of cublasSetWorkspace recommends.
size_t most_workspace(const DeviceFacts& facts) { return size_t{facts.major >= 9 ? 64u : 32u} << 20; }

LtType type_of(int32_t dtype) { return dtype == AA_DTYPE_BF16 ? lt_bf16 : dtype == AA_DTYPE_F16 ? lt_f16 : lt_f32; }

double multiply_adds(const ProductProblem& p) {
  return static_cast<double>(p.batch) * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
}

size_t out_bytes(const ProductProblem& p) {
  const auto elements = static_cast<size_t>((p.m - 1) * p.out_step + p.n);
  return aligned(elements * dtype_size(static_cast<DType>(p.out)));
}

// Two events, and the time between them.
class Stopwatch {
 public:
  explicit Stopwatch(DeviceState& device) : device_(device), api_(device.api()) {
    device.check(api_.event_create(&start_, 0), "cuEventCreate");
    const Result result = api_.event_create(&end_, 0);
    if (result != success) api_.event_destroy(start_);
    device.check(result, "cuEventCreate");
  }
  ~Stopwatch() {
    api_.event_destroy(start_);
    api_.event_destroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  void start(StreamHandle stream) { device_.check(api_.event_record(start_, stream), "cuEventRecord"); }
  // Microseconds since start(), once all of it is complete.
  double stop(StreamHandle stream) {
    device_.check(api_.event_record(end_, stream), "cuEventRecord");
    device_.check(api_.event_synchronize(end_), "cuEventSynchronize");
    float milliseconds = 0;
    device_.check(api_.event_elapsed(&milliseconds, start_, end_), "cuEventElapsedTime");
    return 1e3 * static_cast<double>(milliseconds);
  }

 private:
  DeviceState& device_;
  const Api& api_;
  EventHandle start_ = nullptr, end_ = nullptr;
};

}  // namespace

uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer) | 16u;
  return static_cast<uint32_t>(address & (~address + 1));
}

std::optional<int64_t> batch_step(const void* low, const void* high, int64_t elements, int32_t dtype) {
  constexpr uintptr_t unit = 16, most = uintptr_t{1} << 40;
  const uintptr_t from = reinterpret_cast<uintptr_t>(low), to = reinterpret_cast<uintptr_t>(high);
  if (to <= from || to - from >= most || (to - from) % unit != 0) return {};
  const auto step = static_cast<int64_t>((to - from) / dtype_size(static_cast<DType>(dtype)));
  return step >= elements ? std::optional(step) : std::nullopt;
}

char* product_scratch(DeviceState& device, size_t library_bytes, size_t bytes, Stream& stream) {
  const size_t all = aligned(library_bytes) + bytes;
  // Memory that belongs to a graph does not grow.
  const size_t step = stream.capturing() ? 256 : scratch_step;
  return static_cast<char*>(device.scratch(DeviceState::Scratch::products, stream.handle(),
                                           std::max<size_t>((all + step - 1) / step * step, 256)));
}

// The state kept for a problem: the library's descriptions of it, and the algorithm that runs it.
struct ProductEngine::Plan {
  Plan(const CublasLt& lt, const ProductProblem& of) : library(lt), problem(of) {}
  ~Plan() {
    for (LtLayout layout : {x, w, out}) {
      if (layout) library.layout_destroy(layout);
    }
    if (operation) library.operation_destroy(operation);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const CublasLt& library;
  const ProductProblem problem;
  LtOperation operation = nullptr;
  LtLayout x = nullptr, w = nullptr, out = nullptr;
  std::vector<LtHeuristic> candidates;  // the first runs until one is chosen; empty: the library has none
  bool settled = false;                 // candidates[0] was chosen
  double microseconds = 0;              // that it took when it was; 0: not measured
};

ProductEngine::ProductEngine(DeviceState& device) : device_(device) {}

ProductEngine::~ProductEngine() {
  if (!library_ || !handle_) return;
  try {
    device_.bind();
    plans_.clear();
    library_->destroy(handle_);
  } catch (const std::exception&) {
    // For a lost device, the library's host memory is leaked.
  }
}

void ProductEngine::check(LtStatus status, const char* call, Stream* stream) const {
  if (status == lt_success) [[likely]]
    return;
  // The library reports only that it failed; the driver knows why, but must not be queried while the stream captures.
  if (stream && !stream->capturing()) {
    const Result result = device_.api().stream_query(stream->handle());
    if (result != error_not_ready) device_.check(result, call);
  }
  const aa_code code = status == lt_alloc_failed    ? AA_RESOURCE_EXHAUSTED
                       : status == lt_not_supported ? AA_UNIMPLEMENTED
                                                    : AA_INTERNAL;
  throw abi::Failure(
      code, device_.label() + ": " + call + " gave " + library_->status_text(status) + " (" + library_->path + ")",
      status);
}

// ---- the library -----------------------------------------------------------------------------------------------------

bool ProductEngine::open() {
  if (opened_) return handle_ != nullptr;
  opened_ = true;
  if (device_.api().runtime != Runtime::cuda) return false;
  std::string problem;
  library_ = cublaslt(device_.platform().driver_version, problem);
  if (!library_) {
    log_warning(device_.label() + ": large products run on the portable kernels, which are slower: " + problem);
    return false;
  }
  const RelaxedCaptureMode relaxed(device_.api());
  const LtStatus status = library_->create(&handle_);
  if (status != lt_success) {
    handle_ = nullptr;
    log_warning(device_.label() +
                ": large products run on the portable kernels, which are slower: cublasLtCreate gave " +
                library_->status_text(status) + "; " + library_->description() + ", driver for CUDA " +
                std::to_string(device_.platform().driver_version / 1000) + "." +
                std::to_string(device_.platform().driver_version % 1000 / 10));
    return false;
  }
  choices_ = load_product_choices();
  return true;
}

// ---- plans -----------------------------------------------------------------------------------------------------------

std::string ProductEngine::key_of(const ProductProblem& p) const {
  std::string device = device_.facts().name;
  std::replace_if(
      device.begin(), device.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
  char text[256];
  const std::string batch = p.batch > 1 ? " batch " + std::to_string(p.batch) : "";
  std::snprintf(text, sizeof(text), " | %s | %s to %s%s%s%s | m %llu n %lld k %lld | align %u %u %u %u %u",
                device_.facts().arch.c_str(), std::string(dtype_name(static_cast<DType>(p.in))).c_str(),
                std::string(dtype_name(static_cast<DType>(p.out))).c_str(), p.bias ? " bias" : "",
                p.residual ? " residual" : "", batch.c_str(),
                static_cast<unsigned long long>(std::bit_ceil(static_cast<uint64_t>(p.m))), static_cast<long long>(p.n),
                static_cast<long long>(p.k), p.x_align, p.w_align, p.out_align, p.residual_align, p.bias_align);
  return "cublasLt " + std::to_string(library_->version) + " | " + device + text;
}

ProductEngine::Plan& ProductEngine::plan(const ProductProblem& problem) {
  const auto found = plans_.find(problem);
  if (found != plans_.end()) [[likely]]
    return *found->second;
  if (plans_.size() >= most_plans) plans_.clear();
  return *plans_.emplace(problem, make_plan(problem)).first->second;
}

// The library thinks in columns: what we call out [M,N] by rows is its D [N,M] by columns, so D = w * transpose(x) with w
// given as a transposed [K,N]. Its bias goes along D's columns, which is what we want.
std::unique_ptr<ProductEngine::Plan> ProductEngine::make_plan(const ProductProblem& p) {
  auto plan = std::make_unique<Plan>(*library_, p);
  const RelaxedCaptureMode relaxed(device_.api());
  const CublasLt& lt = *library_;
  check(lt.operation_create(&plan->operation, lt_compute_32f, lt_f32), "cublasLtMatmulDescCreate");
  const auto set = [&](int attribute, auto value) {
    check(lt.operation_set(plan->operation, attribute, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
  };
  set(lt_transpose_a, int32_t{1});
  if (p.bias) {
    set(lt_epilogue, lt_epilogue_bias);
    set(lt_bias_type, int32_t{type_of(p.out)});
    // The library derives the bias's alignment from its address when it proposes algorithms.
    set(lt_bias_pointer, reinterpret_cast<const void*>(static_cast<uintptr_t>(p.bias_align)));
  }
  const auto layout = [&](LtLayout& made, int32_t dtype, int64_t rows, int64_t columns, int64_t step,
                          int64_t batch_step) {
    check(lt.layout_create(&made, type_of(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), step),
          "cublasLtMatrixLayoutCreate");
    if (p.batch == 1) return;
    check(lt.layout_set(made, lt_batch_count, &p.batch, sizeof(p.batch)), "cublasLtMatrixLayoutSetAttribute");
    check(lt.layout_set(made, lt_batch_step, &batch_step, sizeof(batch_step)), "cublasLtMatrixLayoutSetAttribute");
  };
  layout(plan->w, p.in, p.k, p.n, p.w_step, p.w_batch_step);
  layout(plan->x, p.in, p.k, p.m, p.x_step, 0);
  layout(plan->out, p.out, p.n, p.m, p.out_step, p.out_batch_step);

  struct Preference {
    const CublasLt& lt;
    LtPreference handle = nullptr;
    ~Preference() {
      if (handle) lt.preference_destroy(handle);
    }
  } preference{lt};
  check(lt.preference_create(&preference.handle), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](int attribute, auto value) {
    check(lt.preference_set(preference.handle, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(lt_max_workspace, uint64_t{most_workspace(device_.facts())});
  prefer(lt_reduction_mask, lt_reduce_in_compute_type);
  prefer(lt_min_alignment_a, p.w_align);
  prefer(lt_min_alignment_a + 1, p.x_align);
  prefer(lt_min_alignment_a + 2, p.residual ? p.residual_align : p.out_align);
  prefer(lt_min_alignment_a + 3, p.out_align);

  plan->candidates.resize(most_candidates);
  int found = 0;
  const LtStatus status = lt.heuristics(handle_, plan->operation, plan->w, plan->x, plan->out, plan->out,
                                        preference.handle, most_candidates, plan->candidates.data(), &found);
  if (status != lt_success) found = 0;
  plan->candidates.resize(static_cast<size_t>(std::max(found, 0)));
  std::erase_if(plan->candidates, [](const LtHeuristic& candidate) { return candidate.state != lt_success; });
  if (plan->candidates.empty()) {
    log_debug(device_.label() + ": the library has no algorithm for " + key_of(p) + ": " + lt.status_text(status));
    return plan;
  }

  const std::string key = key_of(p);
  const auto remembered = choices_.find(key);
  if (remembered == choices_.end()) {
    plan->settled = kinds_.count(key) != 0;
    return plan;
  }
  // An algorithm chosen for another M of the same kind may not support this one; the first proposal does.
  plan->settled = true;
  plan->microseconds = remembered->second.microseconds;
  const LtAlgorithm& algorithm = remembered->second.algorithm;
  const auto same = std::find_if(plan->candidates.begin(), plan->candidates.end(), [&](const LtHeuristic& candidate) {
    return std::memcmp(&candidate.algorithm, &algorithm, sizeof(algorithm)) == 0;
  });
  if (same != plan->candidates.end()) {
    std::swap(*same, plan->candidates.front());
  } else if (lt.check_algorithm) {
    LtHeuristic result{};
    if (lt.check_algorithm(handle_, plan->operation, plan->w, plan->x, plan->out, plan->out, &algorithm, &result) ==
            lt_success &&
        result.workspace <= most_workspace(device_.facts())) {
      result.algorithm = algorithm;
      plan->candidates.insert(plan->candidates.begin(), result);
    }
  }
  return plan;
}

bool ProductEngine::supports(const ProductProblem& problem) {
  const std::lock_guard lock(mutex_);
  return open() && !plan(problem).candidates.empty();
}

// ---- running ---------------------------------------------------------------------------------------------------------

bool ProductEngine::will_measure(const Plan& plan, Stream& stream) const {
  return !plan.settled && plan.candidates.size() > 1 && multiply_adds(plan.problem) >= large_product &&
         !stream.capturing();
}

bool ProductEngine::pays_together(const ProductProblem& together, const ProductProblem& alone, Stream& stream) {
  const std::lock_guard lock(mutex_);
  const double as_batch = plan(together).microseconds;
  const Plan& single = plan(alone);
  if (as_batch == 0) return true;
  if (single.microseconds == 0) return !will_measure(single, stream);
  return as_batch <= 2 * single.microseconds;
}

size_t ProductEngine::scratch_bytes(const ProductProblem& problem, bool in_place, Stream& stream) {
  const std::lock_guard lock(mutex_);
  const Plan& plan = this->plan(problem);
  if (!will_measure(plan, stream)) return aligned(plan.candidates.front().workspace);
  size_t workspace = 0;
  for (const LtHeuristic& candidate : plan.candidates) workspace = std::max(workspace, candidate.workspace);
  return aligned(workspace) + (in_place ? out_bytes(problem) : 0);
}

LtStatus ProductEngine::multiply(const Plan& plan, const LtHeuristic& how, const ProductOperands& operands,
                                 void* workspace, Stream& stream) {
  const float one = 1, beta = plan.problem.residual ? 1 : 0;
  if (plan.problem.bias) {
    check(library_->operation_set(plan.operation, lt_bias_pointer, &operands.bias, sizeof(operands.bias)),
          "cublasLtMatmulDescSetAttribute");
  }
  const void* c = plan.problem.residual ? operands.residual : operands.out;
  return library_->multiply(handle_, plan.operation, &one, operands.w, plan.w, operands.x, plan.x, &beta, c, plan.out,
                            operands.out, plan.out, &how.algorithm, how.workspace ? workspace : nullptr, how.workspace,
                            stream.handle());
}

void ProductEngine::measure(Plan& plan, const ProductOperands& operands, void* scratch, Stream& stream) {
  ProductOperands trial = operands;
  size_t workspace = 0;
  for (const LtHeuristic& candidate : plan.candidates) workspace = std::max(workspace, candidate.workspace);
  // A residual that is the output must be intact for the final run.
  if (plan.problem.residual && operands.residual == operands.out) {
    trial.out = static_cast<char*>(scratch) + aligned(workspace);
  }
  Stopwatch watch(device_);
  const LtHeuristic* best = nullptr;
  double best_time = 0;
  for (const LtHeuristic& candidate : plan.candidates) {
    // The first run loads the kernel.
    if (multiply(plan, candidate, trial, scratch, stream) != lt_success) continue;
    watch.start(stream.handle());
    if (multiply(plan, candidate, trial, scratch, stream) != lt_success) continue;
    const double time = watch.stop(stream.handle());
    if (best && time >= best_time) continue;
    best = &candidate;
    best_time = time;
  }
  const std::string key = key_of(plan.problem);
  kinds_.insert(key);
  plan.settled = true;
  ++measurements_;
  if (!best) return;  // the error of the first proposal is reported by the final run
  const ProductChoice choice{best->algorithm, best->workspace, best_time};
  log_debug(device_.label() + ": " + key + ": proposal " + std::to_string(best - plan.candidates.data() + 1) + " of " +
            std::to_string(plan.candidates.size()) + " takes " + std::to_string(best_time) + " us");
  plan.microseconds = best_time;
  std::swap(plan.candidates[static_cast<size_t>(best - plan.candidates.data())], plan.candidates.front());
  choices_[key] = choice;
  store_product_choice(key, choice);
}

void ProductEngine::run(const ProductProblem& problem, const ProductOperands& operands, void* scratch, Stream& stream) {
  const std::lock_guard lock(mutex_);
  Plan& plan = this->plan(problem);
  if (plan.candidates.empty()) {
    throw abi::Failure(AA_UNIMPLEMENTED, device_.label() + ": the library has no algorithm for " + key_of(problem));
  }
  if (will_measure(plan, stream)) measure(plan, operands, scratch, stream);
  // A kernel of the library is loaded when it first runs, which a capture would forbid.
  std::optional<RelaxedCaptureMode> relaxed;
  if (stream.capturing()) relaxed.emplace(device_.api());
  check(multiply(plan, plan.candidates.front(), operands, scratch, stream), "cublasLtMatmul", &stream);
}

}  // namespace anyaccel::cuda
