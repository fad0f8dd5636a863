// Implements bench adam on the host: compares steps of CPUAdam on float32 tensors with a hand-written loop over the
// same arrays, which reads and writes the same bytes and computes next to nothing.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <string>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/cpu_adam.h"
#include "cli/bench/bench.h"
#include "ops/host/host_accelerator.h"

namespace anyaccel::cli::bench {
namespace {

constexpr int kArrays = 4;               // p, g, m, v
constexpr double kBytesPerElement = 28;  // four read, three written
constexpr int64_t kBlock = 64;           // elements of an unrolled block

// -- the stream --

using Vector = float __attribute__((vector_size(64), aligned(4), may_alias));

// n is a multiple of kBlock; `ahead` is the prefetch distance in bytes, or 0.
__attribute__((always_inline)) inline void stream_block_loop(float* p, const float* g, float* m, float* v, int64_t n,
                                                             int64_t ahead) {
  const float factor = 0.999f;
  for (int64_t i = 0; i < n; i += kBlock) {
    if (ahead) {
      for (int64_t line = i; line < i + kBlock; line += 16) {
        __builtin_prefetch(reinterpret_cast<const char*>(p + line) + ahead);
        __builtin_prefetch(reinterpret_cast<const char*>(g + line) + ahead);
        __builtin_prefetch(reinterpret_cast<const char*>(m + line) + ahead);
        __builtin_prefetch(reinterpret_cast<const char*>(v + line) + ahead);
      }
    }
#pragma GCC unroll 4
    for (int64_t j = i; j < i + kBlock; j += 16) {
      const Vector grad = *reinterpret_cast<const Vector*>(g + j);
      *reinterpret_cast<Vector*>(p + j) *= factor;
      *reinterpret_cast<Vector*>(m + j) = *reinterpret_cast<Vector*>(m + j) * factor + grad;
      *reinterpret_cast<Vector*>(v + j) *= factor;
    }
  }
}

using StreamLoop = void (*)(float*, const float*, float*, float*, int64_t, int64_t);
#if defined(__x86_64__)
__attribute__((target("avx512f"))) void stream_avx512(float* p, const float* g, float* m, float* v, int64_t n,
                                                      int64_t ahead) {
  stream_block_loop(p, g, m, v, n, ahead);
}
__attribute__((target("avx2"))) void stream_avx2(float* p, const float* g, float* m, float* v, int64_t n,
                                                 int64_t ahead) {
  stream_block_loop(p, g, m, v, n, ahead);
}
#endif
void stream_plain(float* p, const float* g, float* m, float* v, int64_t n, int64_t ahead) {
  stream_block_loop(p, g, m, v, n, ahead);
}
StreamLoop best_stream_loop() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return stream_avx512;
  if (__builtin_cpu_supports("avx2")) return stream_avx2;
#endif
  return stream_plain;
}
constexpr int64_t kAhead[] = {0, 1024, 2048, 4096};

// -- memory and threads --

// Calls body(begin, end) on every thread, with its share of the elements.
template <class Body>
void on_threads(int64_t elements, const Body& body) {
  struct Region {
    const Body* body;
    int64_t elements;
  } region{&body, elements};
  ops::op_services()->run(
      [](void* context, int32_t index, int32_t count) {
        const auto& r = *static_cast<Region*>(context);
        const auto edge = [&](int64_t i) { return i == count ? r.elements : r.elements / count * i / kBlock * kBlock; };
        (*r.body)(edge(index), edge(index + 1));
      },
      &region);
}

// Four arrays, an odd number of pages apart beyond their size: at distances of exact powers of two they would use the
// same cache sets. First accessed by the threads that use them, and filled with numbers that are neither zero nor
// denormal.
class Arrays {
 public:
  explicit Arrays(int64_t elements) : elements_(elements) {
    const size_t each = (static_cast<size_t>(elements) * sizeof(float) + kPage - 1) / kPage * kPage;
    bytes_ = kArrays * (each + 15 * kPage);
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    madvise(memory_, bytes_, MADV_HUGEPAGE);
    for (size_t k = 0; k < kArrays; ++k) {
      array_[k] = reinterpret_cast<float*>(static_cast<char*>(memory_) + k * (each + (2 * k + 9) * kPage));
    }
    on_threads(elements, [&](int64_t begin, int64_t end) {
      uint32_t word = 0x9e3779b9u + static_cast<uint32_t>(begin);
      for (int64_t i = begin; i < end; ++i) {
        for (float* array : array_) {
          word = word * 1664525u + 1013904223u;
          array[i] = 0.01f + static_cast<float>(word >> 8) * 0x1p-25f;
        }
      }
    });
  }
  ~Arrays() { munmap(memory_, bytes_); }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  Tensor tensor(int k) const { return Tensor::from_blob(array_[k], {elements_}, DType::F32, nullptr); }

  void stream(StreamLoop loop, int64_t ahead) const {
    on_threads(elements_ / kBlock * kBlock, [&](int64_t begin, int64_t end) {
      loop(array_[0] + begin, array_[1] + begin, array_[2] + begin, array_[3] + begin, end - begin, ahead);
    });
  }

 private:
  static constexpr size_t kPage = 4096;
  int64_t elements_;
  size_t bytes_ = 0;
  void* memory_ = nullptr;
  float* array_[kArrays] = {};
};

// Returns the requested number, or as many as fit in half of the free memory.
int64_t affordable(int64_t elements) {
  const int64_t most = ops::host_accelerator().available_memory() / 2 / (kArrays * static_cast<int64_t>(sizeof(float)));
  if (elements <= most) return elements;
  std::fprintf(stderr, "adam: %lld elements instead of %lld, for want of memory\n", static_cast<long long>(most),
               static_cast<long long>(elements));
  return std::max(most, kBlock);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Runs stream and step in turn, so that both meet the same state of the machine, and measures the rate of each in
// elements per second: stores the step's runs in `rates`, and returns the median of the stream's best variant.
template <class Stream, class Step>
double measure(int runs, double elements, const Stream& stream, const Step& step, std::vector<double>& rates) {
  std::vector<double> streams[std::size(kAhead)];
  for (int run = 0; run <= runs; ++run) {
    for (size_t way = 0; way < std::size(kAhead); ++way) {
      const auto start = Clock::now();
      stream(kAhead[way]);
      if (run) streams[way].push_back(elements / seconds_since(start));
    }
    const auto start = Clock::now();
    step();
    if (run) rates.push_back(elements / seconds_since(start));
  }
  double best = 0;
  for (const auto& way : streams) best = std::max(best, median(way));
  return best;
}

}  // namespace

void run_adam(const Options& options, std::vector<Result>& results) {
  if (!on_host()) return run_fused_adam(options, results);
  auto adam = get_accelerator()->create_op_builder("CPUAdamBuilder")->load_as<ops::CPUAdam>();
  adam->create_adam(0);
  ops::AdamOptions values;
  values.lr = 1e-6;  // so small that the numbers stay ordinary over many steps
  const StreamLoop loop = best_stream_loop();
  int64_t step = 0;
  {
    const int64_t elements = affordable(options.elements);
    const Arrays arrays(elements);
    const ops::AdamTensors tensors{arrays.tensor(0), arrays.tensor(1), arrays.tensor(2), arrays.tensor(3), {}};
    const double scale = 1e-9 * kBytesPerElement;
    std::vector<double> rates;
    Result result{.name = "adam.bandwidth", .unit = "GB/s", .ceiling_name = "stream of the same bytes"};
    result.ceiling =
        scale * measure(
                    options.runs, static_cast<double>(elements), [&](int64_t ahead) { arrays.stream(loop, ahead); },
                    [&] {
                      adam->adam_update_multi(0, ++step, values, {&tensors, 1});
                    },
                    rates);
    for (double& rate : rates) rate *= scale;
    summarize(result, rates, false);
    results.push_back(result);
  }
  {
    constexpr int64_t kTensors = 1000, kSize = 4096;
    constexpr int kSteps = 20;  // in one measurement
    const Arrays arrays(kTensors * kSize);
    std::vector<ops::AdamTensors> tensors;
    for (int64_t i = 0; i < kTensors; ++i) {
      // Each one is a separate tensor, as in a program.
      const auto part = [&](int k) { return arrays.tensor(k).slice(0, i * kSize, (i + 1) * kSize).clone(); };
      tensors.push_back({part(0), part(1), part(2), part(3), {}});
    }
    std::vector<double> rates;
    Result result{.name = "adam.small", .unit = "elem/s", .ceiling_name = "stream of as many in one array"};
    result.ceiling = measure(
        options.runs, static_cast<double>(kSteps * kTensors * kSize),
        [&](int64_t ahead) {
          for (int i = 0; i < kSteps; ++i) arrays.stream(loop, ahead);
        },
        [&] {
          for (int i = 0; i < kSteps; ++i) adam->adam_update_multi(0, ++step, values, tensors);
        },
        rates);
    summarize(result, rates, false);
    results.push_back(result);
  }
}

}  // namespace anyaccel::cli::bench
