// Implements bench launch: compares the cost of a call through the accelerator object with the raw driver call.
#include <algorithm>

#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/ops/inference.h"
#include "cli/bench/bench.h"
#include "ops/portable/kernel_set.h"

namespace anyaccel::cli::bench {
namespace {

template <class Body>
double nanoseconds_per_call(Body&& body) {
  constexpr int calls = 200000;
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) body();
  return 1e9 * seconds_since(start) / calls;
}

// Launches an empty kernel through the accelerator object and by the raw driver call. Only a few launches are enqueued
// at a time, because with a full queue this would measure the device.
void measure_kernel(DriverAccelerator& accelerator, const Options& options, std::vector<Result>& results) {
  const double vendor = measure_ceiling(AA_CEILING_LAUNCH, options);
  if (!(vendor > 0)) return;
  ops::portable::KernelSet kernels(accelerator, "nothing.cl", {"nothing"});
  const int device = accelerator.current_device();
  const DeviceKernel& kernel = kernels.get(0, device, ops::portable::Element::F32, ops::portable::Element::F32);
  constexpr int batch = 200, batches = 100;
  std::vector<double> values;
  for (int run = 0; run < std::max(options.runs, 5) + 1; ++run) {
    double seconds = 0;
    for (int i = 0; i < batches; ++i) {
      const auto start = Clock::now();
      for (int j = 0; j < batch; ++j) kernel.launch({}, int32_t{0});
      seconds += seconds_since(start);
      accelerator.synchronize();
    }
    if (run) values.push_back(1e9 * seconds / (batch * batches));
  }
  Result result{
      .name = "launch.kernel", .unit = "ns", .ceiling = 1e9 * vendor, .ceiling_name = "the vendor's own call"};
  summarize(result, values, true);
  results.push_back(result);
}

}  // namespace

void run_launch(const Options& options, std::vector<Result>& results) {
  auto* accelerator = dynamic_cast<DriverAccelerator*>(get_accelerator());
  if (!accelerator) throw NotImplementedError("bench launch needs an accelerator that is made of a driver table");
  const Stream& stream = accelerator->current_stream();
  aa_stream* raw = DriverAccelerator::handle(stream);
  const abi::DriverCalls* driver = &accelerator->driver();
  std::vector<double> through;
  double direct = 1e9;
  for (int run = 0; run < std::max(options.runs, 5); ++run) {
    direct = std::min(direct, nanoseconds_per_call([&] {
                        int32_t done = 0;
                        if (driver->stream_query(raw, &done)) throw Error("stream_query failed");
                      }));
    through.push_back(nanoseconds_per_call([&] { stream.query(); }));
  }
  Result call{.name = "launch.call", .unit = "ns", .ceiling = direct, .ceiling_name = "raw driver call"};
  summarize(call, through, true);
  results.push_back(call);
  Result above{.name = "launch.above_raw", .unit = "ns", .ceiling_name = "0: no cost above the raw call"};
  for (double& value : through) value -= direct;
  summarize(above, through, true);
  results.push_back(above);

  measure_kernel(*accelerator, options, results);

  // Measures one small op from the C++ call to its completion.
  auto ops = accelerator->create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  const Tensor x = Tensor::zeros({1}, DType::I32, accelerator->device());
  std::vector<double> values;
  for (int run = 0; run < options.runs; ++run) {
    values.push_back(nanoseconds_per_call([&] { ops->increment(x, 1); }));
    accelerator->synchronize();
  }
  Result op{.name = "launch.op", .unit = "ns", .ceiling = direct, .ceiling_name = "raw driver call"};
  summarize(op, values, true);
  results.push_back(op);
}

}  // namespace anyaccel::cli::bench
