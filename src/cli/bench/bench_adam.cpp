// Implements bench adam on the host: compares steps of the optimizers on float32 and on bfloat16 tensors with a hand-written
// loop over the same arrays, which reads and writes the same bytes and computes next to nothing.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <new>
#include <string>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/cpu_adagrad.h"
#include "anyaccel/ops/cpu_adam.h"
#include "anyaccel/ops/cpu_lion.h"
#include "anyaccel/ops/fused_lamb.h"
#include "cli/bench/bench.h"
#include "ops/host/host_accelerator.h"

namespace anyaccel::cli::bench {
namespace {

constexpr int kArrays = 4;      // of parameters, gradients and at most two states
constexpr size_t kBlock = 256;  // bytes of an unrolled block of an array

// -- the stream --

using Vector = uint32_t __attribute__((vector_size(64), aligned(4), may_alias));

// The arrays that a pass over the elements reads, and those of them that it writes, as bits. Each step has one pass, but
// LAMB, whose parameters wait for the norms, has two.
struct Pass {
  unsigned read, written;
};
constexpr Pass kAdamPass{0b1111, 0b1101}, kThreePass{0b0111, 0b0101};
constexpr Pass kMomentsPass{0b1111, 0b1100}, kApplyPass{0b1101, 0b0001};

// Prefetch distances in bytes: into the second-level cache (far) and into the first one (near). 0: none.
struct Distances {
  size_t far, near;
};
constexpr Distances kAhead[] = {{0, 0}, {0, 1024}, {0, 2048}, {0, 4096}, {4096, 1024}, {8192, 1024}};
__attribute__((always_inline)) inline void prefetch_line(const char* line, Distances ahead) {
  if (ahead.far) __builtin_prefetch(line + ahead.far, 0, 2);
  __builtin_prefetch(line + ahead.near);
}

// Bytes [begin, end) of the arrays, whole blocks. `nothing` is 0, which the compiler does not know: what is written depends on
// all that is read, and stays what it was. Loops over the arrays are written out, since this file is compiled with -O1.
template <unsigned kRead, unsigned kWritten>
__attribute__((always_inline)) inline void stream_block_loop(char* const* arrays, size_t begin, size_t end,
                                                             Distances ahead, uint32_t nothing) {
  constexpr bool kReads0 = kRead & 1, kReads1 = kRead & 2, kReads2 = kRead & 4, kReads3 = kRead & 8;
  char *const a = arrays[0], *const b = arrays[1], *const c = arrays[2], *const d = arrays[3];
  for (size_t i = begin; i < end; i += kBlock) {
    if (ahead.near) {
      for (size_t line = i; line < i + kBlock; line += 64) {
        if constexpr (kReads0) prefetch_line(a + line, ahead);
        if constexpr (kReads1) prefetch_line(b + line, ahead);
        if constexpr (kReads2) prefetch_line(c + line, ahead);
        if constexpr (kReads3) prefetch_line(d + line, ahead);
      }
    }
#pragma GCC unroll 4
    for (size_t j = i; j < i + kBlock; j += sizeof(Vector)) {
      Vector x{}, y{}, z{}, w{};
      if constexpr (kReads0) x = *reinterpret_cast<const Vector*>(a + j);
      if constexpr (kReads1) y = *reinterpret_cast<const Vector*>(b + j);
      if constexpr (kReads2) z = *reinterpret_cast<const Vector*>(c + j);
      if constexpr (kReads3) w = *reinterpret_cast<const Vector*>(d + j);
      const Vector change = (x | y | z | w) & nothing;
      if constexpr (kWritten & 1) *reinterpret_cast<Vector*>(a + j) = x ^ change;
      if constexpr (kWritten & 2) *reinterpret_cast<Vector*>(b + j) = y ^ change;
      if constexpr (kWritten & 4) *reinterpret_cast<Vector*>(c + j) = z ^ change;
      if constexpr (kWritten & 8) *reinterpret_cast<Vector*>(d + j) = w ^ change;
    }
  }
}

using StreamLoop = void (*)(char* const*, size_t, size_t, Distances, uint32_t);
template <unsigned kRead, unsigned kWritten>
struct Streams {
#if defined(__x86_64__)
  __attribute__((target("avx512f"))) static void avx512(char* const* arrays, size_t begin, size_t end, Distances ahead,
                                                        uint32_t nothing) {
    stream_block_loop<kRead, kWritten>(arrays, begin, end, ahead, nothing);
  }
  __attribute__((target("avx2"))) static void avx2(char* const* arrays, size_t begin, size_t end, Distances ahead,
                                                   uint32_t nothing) {
    stream_block_loop<kRead, kWritten>(arrays, begin, end, ahead, nothing);
  }
#endif
  static void plain(char* const* arrays, size_t begin, size_t end, Distances ahead, uint32_t nothing) {
    stream_block_loop<kRead, kWritten>(arrays, begin, end, ahead, nothing);
  }
  static StreamLoop best() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return avx512;
    if (__builtin_cpu_supports("avx2")) return avx2;
#endif
    return plain;
  }
};
StreamLoop stream_loop(const Pass& pass) {
  const auto is = [&](const Pass& other) { return pass.read == other.read && pass.written == other.written; };
  if (is(kAdamPass)) return Streams<kAdamPass.read, kAdamPass.written>::best();
  if (is(kThreePass)) return Streams<kThreePass.read, kThreePass.written>::best();
  if (is(kMomentsPass)) return Streams<kMomentsPass.read, kMomentsPass.written>::best();
  return Streams<kApplyPass.read, kApplyPass.written>::best();
}

// -- memory and threads --

// Calls body(begin, end) on every thread, with its share of the bytes of an array; all but the last are whole blocks.
template <class Body>
void on_threads(size_t bytes, const Body& body) {
  struct Region {
    const Body* body;
    size_t bytes;
  } region{&body, bytes};
  ops::op_services()->run(
      [](void* context, int32_t index, int32_t count) {
        const auto& r = *static_cast<Region*>(context);
        const auto threads = static_cast<size_t>(count), thread = static_cast<size_t>(index);
        const auto edge = [&](size_t i) { return i == threads ? r.bytes : r.bytes / threads * i / kBlock * kBlock; };
        (*r.body)(edge(thread), edge(thread + 1));
      },
      &region);
}

// Four arrays, an odd number of pages apart beyond their size: at distances of exact powers of two they would use the
// same cache sets. First accessed by the threads that use them, and filled with numbers that are neither zero nor
// denormal.
class Arrays {
 public:
  Arrays(int64_t elements, DType dtype) : elements_(elements), dtype_(dtype) {
    const size_t each = (array_bytes() + kPage - 1) / kPage * kPage;
    bytes_ = kArrays * (each + 15 * kPage);
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    madvise(memory_, bytes_, MADV_HUGEPAGE);
    for (size_t k = 0; k < kArrays; ++k) {
      array_[k] = static_cast<char*>(memory_) + k * (each + (2 * k + 9) * kPage);
    }
    on_threads(array_bytes(), [&](size_t begin, size_t end) {
      uint32_t word = 0x9e3779b9u + static_cast<uint32_t>(begin);
      const size_t item = dtype_size(dtype_);
      for (size_t i = begin; i < end; i += item) {
        for (char* array : array_) {
          word = word * 1664525u + 1013904223u;
          const float value = 0.01f + static_cast<float>(word >> 8) * 0x1p-25f;
          // bfloat16 is the upper half of a float32.
          std::memcpy(array + i, reinterpret_cast<const char*>(&value) + sizeof(value) - item, item);
        }
      }
    });
  }
  ~Arrays() { munmap(memory_, bytes_); }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  size_t array_bytes() const { return static_cast<size_t>(elements_) * dtype_size(dtype_); }
  Tensor tensor(int k) const { return Tensor::from_blob(array_[k], {elements_}, dtype_, nullptr); }

  void stream(StreamLoop loop, Distances ahead) const {
    static volatile uint32_t nothing = 0;
    on_threads(array_bytes() / kBlock * kBlock,
               [&](size_t begin, size_t end) { loop(array_, begin, end, ahead, nothing); });
  }

 private:
  static constexpr size_t kPage = 4096;
  int64_t elements_;
  DType dtype_;
  size_t bytes_ = 0;
  void* memory_ = nullptr;
  char* array_[kArrays] = {};
};

// Returns the requested number, or as many as fit in half of the free memory.
int64_t affordable(int64_t elements) {
  const int64_t most = ops::host_accelerator().available_memory() / 2 / (kArrays * static_cast<int64_t>(sizeof(float)));
  if (elements <= most) return elements;
  std::fprintf(stderr, "adam: %lld elements instead of %lld, for want of memory\n", static_cast<long long>(most),
               static_cast<long long>(elements));
  return std::max<int64_t>(most, 64);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Runs stream and step in turn, so that both meet the same state of the machine, and measures the rate of each: stores the step's
// runs in `rates`, and returns those of the stream, of which there is one more, in the variant with the best median.
template <class Stream, class Step>
std::vector<double> measure(int runs, double work, const Stream& stream, const Step& step, std::vector<double>& rates) {
  std::vector<double> streams[std::size(kAhead)];
  const auto read = [&] {
    for (size_t way = 0; way < std::size(kAhead); ++way) {
      const auto start = Clock::now();
      stream(kAhead[way]);
      streams[way].push_back(work / seconds_since(start));
    }
  };
  stream(kAhead[0]);  // the first of each are not measured
  step();
  read();
  for (int run = 0; run < runs; ++run) {
    const auto start = Clock::now();
    step();
    rates.push_back(work / seconds_since(start));
    read();
  }
  return *std::max_element(std::begin(streams), std::end(streams),
                           [](const auto& a, const auto& b) { return median(a) < median(b); });
}

// An optimizer on the arrays' tensors: parameters, gradients, states.
struct Optimizer {
  const char* name;  // of the figure on float32 tensors
  std::vector<Pass> passes;
  std::function<void(const Arrays&, int64_t step)> step;
};

std::vector<Optimizer> optimizers() {
  Accelerator& accelerator = *get_accelerator();
  const auto adam = accelerator.create_op_builder("CPUAdamBuilder")->load_as<ops::CPUAdam>();
  const auto lion = accelerator.create_op_builder("CPULionBuilder")->load_as<ops::CPULion>();
  const auto adagrad = accelerator.create_op_builder("CPUAdagradBuilder")->load_as<ops::CPUAdagrad>();
  const auto lamb = accelerator.create_op_builder("FusedLambBuilder")->load_as<ops::FusedLamb>();
  adam->create_adam(0);
  lion->create_lion(0);
  adagrad->create_adagrad(0);
  constexpr double kRate = 1e-6;  // so small that the numbers stay ordinary over many steps
  return {{"adam.bandwidth",
           {kAdamPass},
           [=](const Arrays& a, int64_t step) {
             const ops::AdamTensors tensors{a.tensor(0), a.tensor(1), a.tensor(2), a.tensor(3), {}};
             adam->adam_update_multi(0, step, {.lr = kRate}, {&tensors, 1});
           }},
          {"adam.lion",
           {kThreePass},
           [=](const Arrays& a, int64_t step) {
             const ops::LionTensors tensors{a.tensor(0), a.tensor(1), a.tensor(2), {}};
             lion->lion_update_multi(0, step, {.lr = kRate}, {&tensors, 1});
           }},
          {"adam.adagrad",
           {kThreePass},
           [=](const Arrays& a, int64_t step) {
             const ops::AdagradTensors tensors{a.tensor(0), a.tensor(1), a.tensor(2), {}};
             adagrad->adagrad_update_multi(0, step, {.lr = kRate}, {&tensors, 1});
           }},
          {"adam.lamb", {kMomentsPass, kApplyPass}, [=](const Arrays& a, int64_t step) {
             const ops::LambTensors tensors{a.tensor(0), a.tensor(1), a.tensor(2), a.tensor(3), {}};
             lamb->lamb_multi(step, {.lr = kRate}, {&tensors, 1});
           }}};
}

// Measures the optimizers on one large tensor of the dtype.
void measure_large(const Options& options, const std::vector<Optimizer>& optimizers, int64_t elements, DType dtype,
                   std::vector<Result>& results) {
  const Arrays arrays(elements, dtype);
  for (const Optimizer& optimizer : optimizers) {
    size_t bytes = 0;
    std::vector<StreamLoop> loops;
    for (const Pass& pass : optimizer.passes) {
      const int touched = __builtin_popcount(pass.read) + __builtin_popcount(pass.written);
      bytes += static_cast<size_t>(touched) * arrays.array_bytes();
      loops.push_back(stream_loop(pass));
    }
    Result result{.name = std::string(optimizer.name) + (dtype == DType::BF16 ? "_bf16" : ""),
                  .unit = "GB/s",
                  .ceiling_name = "stream of the same bytes"};
    int64_t step = 0;
    std::vector<double> rates;
    const std::vector<double> streams = measure(
        options.runs, 1e-9 * static_cast<double>(bytes),
        [&](Distances ahead) {
          for (const StreamLoop loop : loops) arrays.stream(loop, ahead);
        },
        [&] { optimizer.step(arrays, ++step); }, rates);
    summarize_turns(result, rates, streams, false);
    results.push_back(result);
  }
}

}  // namespace

void run_adam(const Options& options, std::vector<Result>& results) {
  if (!on_host()) return run_fused_adam(options, results);
  const int64_t elements = affordable(options.elements);
  const std::vector<Optimizer> list = optimizers();
  measure_large(options, list, elements, DType::F32, results);
  measure_large(options, list, elements, DType::BF16, results);

  const auto adam = get_accelerator()->create_op_builder("CPUAdamBuilder")->load_as<ops::CPUAdam>();
  adam->create_adam(0);
  constexpr int64_t kTensors = 1000, kSize = 4096;
  constexpr int kSteps = 20;  // in one measurement
  const Arrays arrays(kTensors * kSize, DType::F32);
  std::vector<ops::AdamTensors> tensors;
  for (int64_t i = 0; i < kTensors; ++i) {
    // Each one is a separate tensor, as in a program.
    const auto part = [&](int k) { return arrays.tensor(k).slice(0, i * kSize, (i + 1) * kSize).clone(); };
    tensors.push_back({part(0), part(1), part(2), part(3), {}});
  }
  int64_t step = 0;
  std::vector<double> rates;
  Result result{.name = "adam.small", .unit = "elem/s", .ceiling_name = "stream of as many in one array"};
  const std::vector<double> streams = measure(
      options.runs, static_cast<double>(kSteps * kTensors * kSize),
      [&](Distances ahead) {
        for (int i = 0; i < kSteps; ++i) arrays.stream(stream_loop(kAdamPass), ahead);
      },
      [&] {
        for (int i = 0; i < kSteps; ++i) adam->adam_update_multi(0, ++step, {.lr = 1e-6}, tensors);
      },
      rates);
  summarize_turns(result, rates, streams, false);
  results.push_back(result);
}

}  // namespace anyaccel::cli::bench
