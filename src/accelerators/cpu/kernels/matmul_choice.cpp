// Chooses between our own products and oneDNN's by measuring both; see matmul_choice.h.
#include "accelerators/cpu/kernels/matmul_choice.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "accelerators/cpu/kernels/choice_file.h"
#include "accelerators/cpu/kernels/matmul_inner.h"
#include "accelerators/cpu/onednn.h"
#include "accelerators/cpu/topology.h"
#include "accelerators/cpu/worker_pool.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/simd/cpu_features.h"

namespace anyaccel::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// Products with at least this many multiply-adds are worth a choice: some tenths of a millisecond. A program that has
// no larger ones never opens the library.
constexpr double kLarge = 1 << 26;
// oneDNN must be faster by this factor, otherwise our own kernels are used.
constexpr double kAdvantage = 1.05;

double multiply_adds(const Matmul& args) {
  double columns = 0;
  for (int i = 0; i < args.part_count; ++i) columns += static_cast<double>(args.parts[static_cast<size_t>(i)].n);
  return static_cast<double>(args.m) * static_cast<double>(args.k) * columns * args.weights();
}

// ---- classes of products ------------------------------------------------------------------------------------------

// Products that the same choice serves. m is rounded to powers of two from 32 to 512, above which blocks repeat; k and
// n in powers of four.
struct ProductClass {
  int8_t terms, m, n, k;  // m, n, k: logarithms of the largest power that is not larger
  bool gated;
  bool few;  // gemv() is our own kernel
  int8_t isa;
  int16_t threads;
  bool operator==(const ProductClass&) const = default;
};

int8_t log2_of(int64_t value, int step, int most) {
  const int log = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(value, 1))) - 1;
  return static_cast<int8_t>(std::min(log / step * step, most));
}

ProductClass class_of(const Matmul& args) {
  int64_t columns = 0;
  for (int i = 0; i < args.part_count; ++i) columns += args.parts[static_cast<size_t>(i)].n;
  return {static_cast<int8_t>(bf16_terms(args.x.dtype)),
          log2_of(args.m, 1, 9),
          log2_of(columns, 2, 16),
          log2_of(args.k, 2, 16),
          args.gated,
          are_few_rows(args),
          static_cast<int8_t>(isa()),
          static_cast<int16_t>(WorkerPool::instance().size())};
}

// Everything the measured times depend on, as one line of text.
std::string key_of(const ProductClass& c) {
  std::string processor = processor_name();
  std::replace_if(
      processor.begin(), processor.end(), [](char ch) { return ch == '\t' || ch == '\n'; }, ' ');
  return processor + " | " + std::string(isa_name(static_cast<Isa>(c.isa))) + " | oneDNN " + onednn::library().version +
         " | " + std::to_string(c.threads) + " threads | m " + std::to_string(1 << c.m) + " n " +
         std::to_string(1 << c.n) + " k " + std::to_string(1 << c.k) + " terms " + std::to_string(c.terms) +
         (c.gated ? " gated" : "") + (c.few ? " few" : "");
}

// Choices of this process: a list that only grows (by the number of classes), read without a lock, so that a child
// after fork() finds it whole.
struct Remembered {
  ProductClass what;
  bool onednn;
  Remembered* next;
};
std::atomic<Remembered*> remembered{nullptr};

const Remembered* find(const ProductClass& what) noexcept {
  for (const Remembered* r = remembered.load(std::memory_order_acquire); r != nullptr; r = r->next) {
    if (r->what == what) return r;
  }
  return nullptr;
}

bool remember(const ProductClass& what, bool onednn) {
  auto* fresh = new Remembered{what, onednn, remembered.load(std::memory_order_relaxed)};
  while (!remembered.compare_exchange_weak(fresh->next, fresh, std::memory_order_release)) {
  }
  return onednn;
}

// ---- measuring ----------------------------------------------------------------------------------------------------

std::atomic<int64_t> own_count{0}, onednn_count{0}, measurement_count{0};

// The product itself, with fewer rows and columns if it is large, into separate memory and without a residual (which
// may be the output), so that it can be repeated without side effects.
class Trial {
 public:
  explicit Trial(const Matmul& args) : args_(args) {
    // A few milliseconds for each thread.
    constexpr double kMost = 2e8;
    constexpr int64_t kMostRows = 512, kFewestColumns = 64;
    const int threads = WorkerPool::instance().size();
    args_.m = std::min(args_.m, kMostRows);
    const double share = kMost * threads / multiply_adds(args_);
    int64_t elements = 0;
    for (int i = 0; i < args_.part_count; ++i) {
      MatmulPart& part = args_.parts[static_cast<size_t>(i)];
      if (share < 1) {
        const auto fewer = static_cast<int64_t>(static_cast<double>(part.n) * share);
        part.n = std::min(part.n, std::max(fewer, kFewestColumns * threads));
      }
      elements += args_.m * part.n;
    }
    out_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(elements));
    float* out = out_.get();
    for (int i = 0; i < args_.part_count; ++i) {
      MatmulPart& part = args_.parts[static_cast<size_t>(i)];
      part.residual = {};
      part.out = {out, DType::F32, part.n, 1};
      out += args_.m * part.n;
    }
  }

  // Milliseconds of one run.
  double run(bool onednn) const {
    const Clock::time_point start = Clock::now();
    if (onednn) {
      gemm_onednn(args_);
    } else if (are_few_rows(args_)) {
      gemv(args_);
    } else {
      gemm(args_);
    }
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  }

 private:
  Matmul args_;
  std::unique_ptr<float[]> out_;
};

MeasuredChoice measure(const Matmul& args) {
  constexpr double kMostTime = 100;  // milliseconds
  constexpr int kRounds = 5;
  const Trial trial(args);
  const Clock::time_point start = Clock::now();
  // The first runs generate code, touch memory and wake threads.
  trial.run(true);
  trial.run(false);
  MeasuredChoice found{false, 1e30, 1e30};
  for (int round = 0; round < kRounds; ++round) {
    found.own_time = std::min(found.own_time, trial.run(false));
    found.onednn_time = std::min(found.onednn_time, trial.run(true));
    if (std::chrono::duration<double, std::milli>(Clock::now() - start).count() > kMostTime) break;
  }
  found.onednn = found.onednn_time * kAdvantage <= found.own_time;
  ++measurement_count;
  return found;
}

// Finds the choice for a class that is new to this process: in the file or by measuring.
bool find_out(const Matmul& args, const ProductClass& what) {
  if (!onednn::library().usable) return remember(what, false);
  const std::string key = key_of(what);
  if (const auto stored = load_choice(key)) {
    log_debug("large products (" + key + "): " + (stored->onednn ? "oneDNN" : "own kernels") + ", measured earlier");
    return remember(what, stored->onednn);
  }
  try {
    const MeasuredChoice found = measure(args);
    char times[64];
    std::snprintf(times, sizeof(times), "own %.2f ms, oneDNN %.2f ms", found.own_time, found.onednn_time);
    log_debug("large products (" + key + "): " + (found.onednn ? "oneDNN" : "own kernels") + "; " + times);
    store_choice(key, found);
    return remember(what, found.onednn);
  } catch (const Error& error) {
    log_debug(std::string("large products (") + key + "): own kernels, since oneDNN cannot do them: " + error.what());
  } catch (const std::bad_alloc&) {
    log_debug("large products (" + key + "): own kernels, since there is no memory to measure with");
  }
  return remember(what, false);
}

bool choose_by_measurement(const Matmul& args) {
  // Products of bf16 with 32 to 512 rows, in the shapes of a Llama of 1.1 billion parameters, took longer in oneDNN 2.6 than in our
  // kernel for the matrix unit; others were not compared.
  if (multiply_adds(args) < kLarge || isa() == Isa::Amx) return false;
  const ProductClass what = class_of(args);
  if (const Remembered* known = find(what)) return known->onednn;
  // While another thread measures, measuring here would disturb it; our own kernels are always correct.
  static std::atomic<bool> measuring{false};
  if (measuring.exchange(true, std::memory_order_acquire)) return false;
  struct Done {
    ~Done() { measuring.store(false, std::memory_order_release); }
  } done;
  return find_out(args, what);
}

// ---- the mode -----------------------------------------------------------------------------------------------------

constexpr std::array<std::pair<MatmulMode, const char*>, 3> kModes = {
    {{MatmulMode::Auto, "auto"}, {MatmulMode::Own, "own"}, {MatmulMode::OneDnn, "onednn"}}};

std::atomic<int> set_mode{-1};

}  // namespace

MatmulMode parse_matmul_mode(const std::string& text) {
  for (const auto& [mode, name] : kModes) {
    if (text == name) return mode;
  }
  throw InvalidArgument("ANYACCEL_CPU_MATMUL=" + text + " is not known; expected auto, own or onednn");
}

MatmulMode matmul_mode() {
  const int set = set_mode.load(std::memory_order_relaxed);
  if (set >= 0) return static_cast<MatmulMode>(set);
  static const MatmulMode asked = [] {
    const char* text = std::getenv("ANYACCEL_CPU_MATMUL");
    return text == nullptr || *text == '\0' ? MatmulMode::Auto : parse_matmul_mode(text);
  }();
  return asked;
}

void set_matmul_mode(MatmulMode mode) { set_mode = static_cast<int>(mode); }

bool choose_onednn(const Matmul& args) {
  const MatmulMode mode = matmul_mode();
  bool onednn = false;
  if (mode != MatmulMode::Own && onednn_takes(args)) {
    if (mode == MatmulMode::Auto) {
      onednn = choose_by_measurement(args);
    } else if (!onednn::library().usable) {
      throw UnavailableError("ANYACCEL_CPU_MATMUL=onednn was asked for, but it is not there: " +
                             onednn::library().reason + ", or unset the variable");
    } else {
      onednn = true;
    }
  }
  if (onednn) {
    onednn_count.fetch_add(1, std::memory_order_relaxed);
  } else if (multiply_adds(args) >= kLarge) {
    own_count.fetch_add(1, std::memory_order_relaxed);
  }
  return onednn;
}

MatmulCounts matmul_counts() noexcept { return {own_count.load(), onednn_count.load(), measurement_count.load()}; }

void forget_matmul_choices() noexcept {
  Remembered* next = remembered.exchange(nullptr);
  while (next != nullptr) delete std::exchange(next, next->next);
}

}  // namespace anyaccel::cpu
