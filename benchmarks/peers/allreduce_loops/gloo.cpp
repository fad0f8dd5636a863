// The all-reduce loop of Gloo (TCP over the loopback interface) for benchmarks/peers/allreduce.py: prints "BYTES MICROSECONDS" a
// line.
//
// g++ -O2 gloo.cpp -lgloo -lpthread -o gloo; RANK=0 ./gloo FOLDER BYTES... & RANK=1 ./gloo FOLDER BYTES...
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

int main(int argc, char** argv) {
  const int rank = std::atoi(std::getenv("RANK"));
  gloo::rendezvous::FileStore store(argv[1]);
  gloo::transport::tcp::attr address("127.0.0.1");
  auto device = gloo::transport::tcp::CreateDevice(address);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, 2);
  context->connectFullMesh(store, device);
  gloo::BarrierOptions barrier(context);
  for (int k = 2; k < argc; ++k) {
    const size_t bytes = static_cast<size_t>(std::atoll(argv[k]));
    std::vector<float> data(bytes / sizeof(float));
    // As `anyaccel bench allreduce` does, in fewer repetitions: it is slower by far.
    const size_t batch = std::clamp<size_t>((size_t{4} << 20) / (bytes + 1), 1, 20);
    const int repeats = bytes < (1 << 20) ? 20 : 5;
    double best = 1e9;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      for (size_t i = 0; i < data.size(); ++i) data[i] = 0.5f + 0.001f * static_cast<float>(i % 97);
      gloo::barrier(barrier);
      const auto start = std::chrono::steady_clock::now();
      for (size_t i = 0; i < batch; ++i) {
        if (bytes == 0) {
          gloo::barrier(barrier);
          continue;
        }
        gloo::AllreduceOptions options(context);
        options.setOutput(data.data(), data.size());
        options.setReduceFunction(
            [](void* a, const void* b, const void* c, size_t n) { gloo::sum<float>(a, b, c, n); });
        gloo::allreduce(options);
      }
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      best = std::min(best, seconds.count() / static_cast<double>(batch));
    }
    if (rank == 0) std::printf("%zu %.9g\n", bytes, 1e6 * best);
  }
  return 0;
}
