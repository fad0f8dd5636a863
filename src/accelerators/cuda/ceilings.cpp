// Implements ceilings.h: measures the rates that the device can reach at most.
#include "accelerators/cuda/ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include "accelerators/cuda/memory.h"
#include "accelerators/cuda/ops/product_engine.h"
#include "accelerators/cuda/ops/tuned_kernels.h"
#include "accelerators/cuda/stream.h"

namespace anyaccel::cuda {
namespace {

// As kernels/cuda/ceilings.cu has them.
enum CeilingKernel : size_t { read_kernel, fill_kernel, fma_kernel, nothing_kernel };
constexpr unsigned piece_threads = 512, fma_threads = 256, nothing_threads = 32;
constexpr size_t piece_bytes = 65536;
constexpr double operations_a_round = 2.0 * 8 * 16;  // of a thread

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class Buffer {
 public:
  Buffer(DeviceState& device, size_t bytes)
      : device_(device), data_(device.memory().allocate(AA_MEMORY_DEVICE, bytes)) {}
  ~Buffer() {
    try {
      device_.memory().free(AA_MEMORY_DEVICE, data_);
    } catch (const abi::Failure&) {
      // Fails on a lost device, for which measuring has failed already.
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const noexcept { return data_; }
  DevicePointer address() const noexcept { return reinterpret_cast<DevicePointer>(data_); }

 private:
  DeviceState& device_;
  void* const data_;
};

class Timer {
 public:
  explicit Timer(DeviceState& device) : device_(device), stream_(device, nullptr, stream_params()) {
    device.check(device.api().event_create(&start_, 0), "cuEventCreate");
    const Result result = device.api().event_create(&end_, 0);
    if (result != success) device.api().event_destroy(start_);
    device.check(result, "cuEventCreate");
  }
  ~Timer() {
    device_.api().event_destroy(start_);
    device_.api().event_destroy(end_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  StreamHandle stream() const noexcept { return stream_.handle(); }
  Stream& owner() noexcept { return stream_; }
  void wait() { stream_.synchronize(); }
  // Seconds on the device from the first to the last item that `enqueue` enqueues.
  template <class Enqueue>
  double time(Enqueue&& enqueue) {
    const Api& api = device_.api();
    device_.check(api.event_record(start_, stream()), "cuEventRecord");
    enqueue();
    device_.check(api.event_record(end_, stream()), "cuEventRecord");
    wait();
    float milliseconds = 0;
    device_.check(api.event_elapsed(&milliseconds, start_, end_), "cuEventElapsedTime");
    return std::max(1e-3 * static_cast<double>(milliseconds), 1e-9);
  }

 private:
  static aa_stream_params stream_params() {
    auto params = abi::sized<aa_stream_params>();
    params.flags = AA_STREAM_NON_BLOCKING;
    return params;
  }

  DeviceState& device_;
  Stream stream_;
  EventHandle start_ = nullptr, end_ = nullptr;
};

// The best of work / duration; three passes at least, the first of which only warms up.
template <class Pass>
double best_rate(double work, double seconds, Pass&& pass) {
  double best = 0;
  const Clock::time_point start = Clock::now();
  for (int round = 0; round < 3 || seconds_since(start) < seconds; ++round) {
    const double duration = pass();
    if (round) best = std::max(best, work / duration);
  }
  return best;
}

class Ceilings {
 public:
  explicit Ceilings(DeviceState& device)
      : device_(device),
        kernels_(device, "ceilings.cu", {"ceiling_read", "ceiling_fill", "ceiling_fma", "ceiling_nothing"}, {}),
        timer_(device),
        multiprocessors_(static_cast<unsigned>(std::max(device.facts().multiprocessors, 1))) {}

  double read(size_t bytes, double seconds) {
    const size_t pieces = (bytes + piece_bytes - 1) / piece_bytes;
    const TunedLaunch shape{.grid = {pieces_grid(pieces), 1, 1}, .block = piece_threads};
    const Buffer data(device_, pieces * piece_bytes);
    const Buffer sums(device_, shape.grid[0] * (piece_threads / 32) * sizeof(uint32_t));
    fill(data, pieces);
    return best_rate(static_cast<double>(pieces * piece_bytes), seconds, [&] {
      return timer_.time([&] {
        kernels_.launch(read_kernel, timer_.stream(), shape, sums.data(), data.data(), static_cast<int64_t>(pieces));
      });
    });
  }

  double copy(size_t bytes, double seconds) {
    const size_t pieces = (bytes + piece_bytes - 1) / piece_bytes;
    const size_t size = pieces * piece_bytes;
    const Buffer from(device_, size), to(device_, size);
    fill(from, pieces);
    fill(to, pieces);
    return best_rate(2.0 * static_cast<double>(size), seconds, [&] {
      return timer_.time([&] {
        device_.check(device_.api().copy_async(to.address(), from.address(), size, timer_.stream()), "cuMemcpyAsync");
      });
    });
  }

  double fma(double seconds) {
    const unsigned blocks = 4 * multiprocessors_;
    const TunedLaunch shape{.grid = {blocks, 1, 1}, .block = fma_threads};
    const Buffer out(device_, size_t{blocks} * fma_threads * sizeof(float));
    int32_t rounds = 4;
    const auto pass = [&] {
      return timer_.time([&] { kernels_.launch(fma_kernel, timer_.stream(), shape, out.data(), 0.5f, 0.25f, rounds); });
    };
    pass();  // loads the kernel
    // Long enough that starting and ending are negligible.
    constexpr double long_enough = 2e-3;
    constexpr int32_t most_rounds = 1 << 20;
    while (rounds < most_rounds && pass() < std::min(long_enough, seconds)) rounds *= 2;
    return best_rate(operations_a_round * rounds * blocks * fma_threads, seconds, pass);
  }

  // By cuBLASLt, through the code that the op "linear" uses.
  double product(double seconds) {
    ProductEngine engine(device_);
    constexpr int64_t smallest = 256, largest = 8192;
    // The largest product that a few runs of fit into the time.
    for (int64_t n = smallest;; n *= 2) {
      const ProductProblem problem{
          .in = AA_DTYPE_BF16, .out = AA_DTYPE_BF16, .m = n, .n = n, .k = n, .x_step = n, .w_step = n, .out_step = n};
      if (!engine.supports(problem)) abi::unimplemented("the ceiling of products without cuBLASLt");
      const auto elements = static_cast<size_t>(n * n);
      const size_t pieces = (2 * elements + piece_bytes - 1) / piece_bytes;
      const Buffer x(device_, pieces * piece_bytes), w(device_, pieces * piece_bytes), out(device_, 2 * elements);
      fill(x, pieces, true);
      fill(w, pieces, true);
      const Buffer scratch(device_, std::max<size_t>(engine.scratch_bytes(problem, false, timer_.owner()), 256));
      const ProductOperands operands{.x = x.data(), .w = w.data(), .out = out.data()};
      const auto pass = [&] {
        return timer_.time([&] { engine.run(problem, operands, scratch.data(), timer_.owner()); });
      };
      pass();  // the engine compares algorithms
      const double duration = pass();
      const size_t next = 3 * 2 * 4 * elements;  // bytes of twice the size
      if (n < largest && 16 * 8 * duration < seconds && next < device_.facts().total_memory / 4) continue;
      return best_rate(2.0 * static_cast<double>(elements) * static_cast<double>(n), seconds, pass);
    }
  }

  // The vendor's call alone in a loop, in batches small enough not to fill the queue.
  double launch(double seconds) {
    constexpr int batch = 200;
    FunctionHandle const nothing = kernels_.get(nothing_kernel);
    const int32_t unused = 0;
    void* arguments[] = {const_cast<int32_t*>(&unused)};
    double best = 0;
    const Clock::time_point start = Clock::now();
    for (int round = 0; round < 3 || seconds_since(start) < seconds; ++round) {
      Result result = success;
      const Clock::time_point begin = Clock::now();
      for (int i = 0; i < batch && result == success; ++i) {
        result = device_.api().launch_kernel(nothing, 1, 1, 1, nothing_threads, 1, 1, 0, timer_.stream(), arguments,
                                             nullptr);
      }
      const double duration = seconds_since(begin) / batch;
      device_.check(result, "cuLaunchKernel");
      timer_.wait();
      if (round == 1 || (round > 1 && duration < best)) best = duration;
    }
    return best;
  }

 private:
  unsigned pieces_grid(size_t pieces) const {
    return static_cast<unsigned>(std::min<size_t>(pieces, 2 * size_t{multiprocessors_}));
  }
  void fill(const Buffer& data, size_t pieces, bool numbers = false) {
    const TunedLaunch shape{.grid = {pieces_grid(pieces), 1, 1}, .block = piece_threads};
    kernels_.launch(fill_kernel, timer_.stream(), shape, data.data(), static_cast<int64_t>(pieces), int32_t{numbers});
    timer_.wait();
  }

  DeviceState& device_;
  TunedKernels kernels_;
  Timer timer_;
  const unsigned multiprocessors_;
};

}  // namespace

double measure_ceiling(DeviceState& device, int32_t kind, size_t bytes, double seconds) {
  if (kind == AA_CEILING_OPEN) return device.platform().start_seconds + device.open_seconds();
  const bool moves = kind == AA_CEILING_READ || kind == AA_CEILING_COPY;
  if ((moves && bytes == 0) || !(seconds > 0)) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "a ceiling over " + std::to_string(bytes) + " bytes for " +
                                                std::to_string(seconds) + " s was asked for; both must be positive");
  }
  switch (kind) {
    case AA_CEILING_READ: return Ceilings(device).read(bytes, seconds);
    case AA_CEILING_COPY: return Ceilings(device).copy(bytes, seconds);
    case AA_CEILING_FMA_F32: return Ceilings(device).fma(seconds);
    case AA_CEILING_PRODUCT_BF16: return Ceilings(device).product(seconds);
    case AA_CEILING_LAUNCH: return Ceilings(device).launch(seconds);
    default: abi::unimplemented("this kind of ceiling");
  }
}

}  // namespace anyaccel::cuda
