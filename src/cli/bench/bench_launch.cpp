// bench launch: what a call costs on its way through the accelerator object, beside the raw driver call.
#include <algorithm>

#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/ops/inference.h"
#include "cli/bench/bench.h"

namespace anyaccel::cli::bench {
namespace {

template <class Body>
double nanoseconds_per_call(Body&& body) {
  constexpr int calls = 200000;
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) body();
  return 1e9 * seconds_since(start) / calls;
}

}  // namespace

void run_launch(const Options& options, std::vector<Result>& results) {
  auto* accelerator = dynamic_cast<DriverAccelerator*>(get_accelerator());
  if (!accelerator) throw NotImplementedError("bench launch needs an accelerator that is made of a driver table");
  const Stream& stream = accelerator->current_stream();
  aa_stream* raw = DriverAccelerator::handle(stream);
  const aa_driver* driver = &accelerator->driver();
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

  // One small op from the typed face to its end.
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
