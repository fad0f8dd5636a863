// Matrix products by cuBLASLt on one device: which of its algorithms runs a problem, found out once and remembered.
//
// The library proposes algorithms for a problem (cublasLtMatmulAlgoGetHeuristic). The first large product of a kind tries up to
// eight of them, once each, on the very operands, and the fastest is kept in memory and on disk (product_choices.h). A kind
// is: library, device, types, N, K, batch, bias and residual, alignments, and M rounded up to a power of two, so that prompts of
// every length do not measure again. While a stream captures nothing is measured: the first proposal runs.
#pragma once

#include <algorithm>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "accelerators/cuda/libraries/cublaslt.h"
#include "accelerators/cuda/ops/product_choices.h"

namespace anyaccel::cuda {

class Stream;

// out [M,N] = x [M,K] * transpose(w [N,K]) + bias [N] + residual [M,N], all with elements of a row next to each other. x and w
// have one dtype, out, bias and residual another or the same.
struct ProductProblem {
  int32_t in = AA_DTYPE_NONE, out = AA_DTYPE_NONE;  // aa_dtype
  int64_t m = 0, n = 0, k = 0;
  int64_t x_step = 0, w_step = 0, out_step = 0;  // elements between rows; residual has out's
  bool bias = false, residual = false;
  // So many products of one x, whose w and out lie so many elements apart; then without bias and residual. The distances are
  // multiples of 16 bytes.
  int32_t batch = 1;
  int64_t w_batch_step = 0, out_batch_step = 0;
  // The alignment of the pointers in bytes: powers of two up to 16. Absent tensors have 16.
  uint32_t x_align = 16, w_align = 16, out_align = 16, residual_align = 16, bias_align = 16;

  auto operator<=>(const ProductProblem&) const = default;
};

struct ProductOperands {
  const void* x = nullptr;
  const void* w = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;  // may be out
  void* out = nullptr;
};

// Bytes rounded up to the alignment of parts of scratch memory.
constexpr size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

// 16, 8, 4, 2 or 1. Null, as in queries for support, counts as aligned.
uint32_t alignment_of(const void* pointer);

// From so many rows on, which are those of a prompt, products of bf16 that are only read by the op they belong to are rounded to
// bf16, as PyTorch rounds them: they are written and read in half of the time. Gate and up, and queries, keys and values.
constexpr int64_t fewest_rounded_rows = 256;

// A matrix whose rows lie one after the other, each without gaps.
inline bool is_by_rows(const aa_tensor& t) {
  return (t.shape[1] <= 1 || t.strides[1] == 1) && (t.shape[0] <= 1 || t.strides[0] >= t.shape[1]);
}
inline int64_t row_step(const aa_tensor& t) {
  return t.shape[0] <= 1 ? std::max<int64_t>(t.shape[1], 1) : t.strides[0];
}

// The distance, in elements of `dtype`, between two matrices of `elements` each that a batch of two may have; nothing if they overlap
// or `high` is the lower one, if it is no multiple of 16 bytes, or if it is a TiB or more: Hopper's bulk copies have strides of 40
// bits (cuTensorMapEncodeTiled), and the library does not refuse a longer one but reads from elsewhere. Device memory of large and of
// small allocations is that far apart.
std::optional<int64_t> batch_step(const void* low, const void* high, int64_t elements, int32_t dtype);

// Scratch memory of a stream for the library, and behind it, at a multiple of 256, `bytes` for intermediate results. It is the same
// memory for all calls, and moves when it grows.
char* product_scratch(DeviceState& device, size_t library_bytes, size_t bytes, Stream& stream);

class ProductEngine {
 public:
  explicit ProductEngine(DeviceState& device);
  ~ProductEngine();
  ProductEngine(const ProductEngine&) = delete;
  ProductEngine& operator=(const ProductEngine&) = delete;

  // Returns true if the library is there and has an algorithm. Creates the problem's state; the context is current.
  bool supports(const ProductProblem& problem);
  // While it is held, the result of scratch_bytes() is valid for run(); otherwise another thread may measure and choose
  // another algorithm.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> lock() { return std::unique_lock(mutex_); }
  // Bytes that run() needs of scratch memory now, for a call whose residual is out or is not.
  size_t scratch_bytes(const ProductProblem& problem, bool in_place, Stream& stream);
  // Enqueues a product that supports() accepts. `scratch` is memory of this stream, aligned to 256, of that many bytes.
  void run(const ProductProblem& problem, const ProductOperands& operands, void* scratch, Stream& stream);

  // Returns whether two products that `together` runs as a batch of two should run so, rather than as `alone` twice: as a batch until
  // that was measured, then alone until that was, then as what took less time.
  bool pays_together(const ProductProblem& together, const ProductProblem& alone, Stream& stream);

  // Returns the number of kinds that this object has measured.
  int measurements() const noexcept { return measurements_; }

 private:
  struct Plan;
  using Plans = std::map<ProductProblem, std::unique_ptr<Plan>>;

  bool open();  // with mutex_ held, as all that follows
  Plan& plan(const ProductProblem& problem);
  std::unique_ptr<Plan> make_plan(const ProductProblem& problem);
  std::string key_of(const ProductProblem& problem) const;
  bool will_measure(const Plan& plan, Stream& stream) const;
  void measure(Plan& plan, const ProductOperands& operands, void* scratch, Stream& stream);
  LtStatus multiply(const Plan& plan, const LtHeuristic& how, const ProductOperands& operands, void* workspace,
                    Stream& stream);
  void check(LtStatus status, const char* call, Stream* stream = nullptr) const;

  DeviceState& device_;
  std::recursive_mutex mutex_;
  bool opened_ = false;
  const CublasLt* library_ = nullptr;
  LtHandle handle_ = nullptr;
  ProductChoices choices_;       // of the file, and of this process
  std::set<std::string> kinds_;  // that were measured or met with a remembered choice, by this process
  Plans plans_;
  int measurements_ = 0;
};

}  // namespace anyaccel::cuda
