// The cuda driver on the simulated libcuda: streams, events, captures and graphs, scratch memory, ceilings.
#include <atomic>
#include <chrono>
#include <thread>

#include "accelerators/cuda/device_state.h"
#include "cuda/simulated_test_support.h"

namespace anyaccel::cuda_test {
namespace {

class CudaStreams : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = simulator_missing(); !missing.empty()) GTEST_SKIP() << missing;
  }
};

// Work of a stream that does not go on before it is released.
class Gate {
 public:
  void close(Opened& d, aa_stream* stream) {
    ok(d.table.stream_host_call(
           stream,
           [](void* self) {
             while (!static_cast<Gate*>(self)->open_) std::this_thread::yield();
           },
           this),
       "stream_host_call");
  }
  void open() { open_ = true; }

 private:
  std::atomic<bool> open_{false};
};

int32_t is_done(const abi::DriverCalls& table, aa_event* event) {
  int32_t done = -1;
  ok(table.event_query(event, &done), "event_query");
  return done;
}

// ---- streams and events ----------------------------------------------------------------------------------------------

TEST_F(CudaStreams, PatternsOfEverySizeAtEveryAddress) {
  Simulated({}, [] {
    Opened d;
    constexpr size_t size = 4096;
    char* memory = d.memory(size);
    aa_stream* stream = d.stream();
    const unsigned char pattern[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const unsigned char halves[8] = {1, 2, 3, 4, 1, 2, 3, 4};
    for (const unsigned char* filling : {pattern, halves}) {
      for (const size_t pattern_size : {1u, 2u, 4u, 8u}) {
        for (size_t offset = 0; offset < 9; ++offset) {
          const unsigned char zero = 0;
          const size_t filled = 101 * pattern_size;
          ok(d.table.fill_async(stream, memory, &zero, 1, size));
          ok(d.table.fill_async(stream, memory + offset, filling, pattern_size, filled));
          std::vector<unsigned char> expected(size, 0);
          for (size_t i = 0; i < filled; ++i) expected[offset + i] = filling[i % pattern_size];
          EXPECT_EQ(d.download(stream, memory, size), expected) << pattern_size << " at " << offset;
        }
      }
    }
    ok(d.table.stream_destroy(stream));
    d.free(memory, size);
  }).clean();
}

TEST_F(CudaStreams, EventsTellWhatHasHappened) {
  Simulated({}, [] {
    Opened d;
    aa_stream *first = d.stream(), *second = d.stream();
    aa_event *event = d.event(), *start = d.event(0, AA_EVENT_TIMING), *end = d.event(0, AA_EVENT_TIMING);
    EXPECT_EQ(is_done(d.table, event), 1);
    Gate gate;
    ok(d.table.event_record(start, first));
    gate.close(d, first);
    ok(d.table.event_record(event, first));
    ok(d.table.event_record(end, first));
    EXPECT_EQ(is_done(d.table, event), 0);
    double milliseconds = -1;
    EXPECT_SAYS(refused(d.table.event_elapsed(start, end, &milliseconds), AA_FAILED_PRECONDITION), "not complete");
    int32_t done = -1;
    ok(d.table.stream_wait_event(second, event));
    ok(d.table.stream_query(second, &done));
    EXPECT_EQ(done, 0);
    gate.open();
    ok(d.table.stream_synchronize(second));
    ok(d.table.event_synchronize(end));
    EXPECT_EQ(is_done(d.table, event), 1);
    ok(d.table.event_elapsed(start, end, &milliseconds));
    EXPECT_GE(milliseconds, 0);
    ok(d.table.stream_destroy(first));
    EXPECT_EQ(is_done(d.table, event), 1);  // it outlives its stream
    for (aa_event* each : {event, start, end}) ok(d.table.event_destroy(each));
    ok(d.table.stream_destroy(second));
  }).clean();
}

TEST_F(CudaStreams, WorkIsOrderedAcrossDevices) {
  Simulated({{"SIM_DEVICES", "2"}, {"SIM_SEED", "3"}}, [] {
    Opened d;
    aa_stream *near = d.stream(0), *far = d.stream(1);
    char *from = d.memory(4 * mebibyte, AA_MEMORY_DEVICE, 0), *to = d.memory(4 * mebibyte, AA_MEMORY_DEVICE, 1);
    aa_event* event = d.event(0);
    for (unsigned char round = 1; round < 5; ++round) {
      const std::vector<unsigned char> bytes(1000, round);
      ok(d.table.fill_async(near, from, &round, 1, 1000));
      ok(d.table.event_record(event, near));
      ok(d.table.stream_wait_event(far, event));
      ok(d.table.copy_async(far, to, from, 1000, AA_COPY_DEVICE_TO_DEVICE));
      EXPECT_EQ(d.download(far, to, 1000), bytes);
    }
    ok(d.table.event_destroy(event));
    ok(d.table.stream_destroy(near));
    ok(d.table.stream_destroy(far));
    d.free(from, 4 * mebibyte);
    d.free(to, 4 * mebibyte, AA_MEMORY_DEVICE, 1);
  }).clean();
}

// ---- captures --------------------------------------------------------------------------------------------------------

TEST_F(CudaStreams, OtherCallsLeaveACaptureAlone) {
  Simulated({}, [] {
    Opened d;
    const auto& graphs = d.extension<aa_graph_table>(AA_GRAPH_EXTENSION);
    const auto& host = d.extension<aa_host_memory_table>(AA_HOST_MEMORY_EXTENSION);
    aa_stream *stream = d.stream(), *beside = d.stream();
    char* memory = d.memory(1000);
    aa_event *event = d.event(), *timed = d.event(0, AA_EVENT_TIMING);
    ok(d.table.event_record(event, beside));
    ok(graphs.capture_begin(stream), "capture_begin");
    const unsigned char value = 3;
    ok(d.table.fill_async(stream, memory, &value, 1, 1000));
    // On the thread that captures: memory of every kind, modules, queries, waits for other work.
    for (const int32_t kind : {AA_MEMORY_DEVICE, AA_MEMORY_PINNED, AA_MEMORY_MANAGED}) {
      for (const size_t size : {size_t{1000}, 4 * mebibyte}) d.free(d.memory(size, kind), size, kind);
    }
    std::vector<char> pages(8192);
    ok(host.register_range(d.device(), pages.data(), pages.size()));
    ok(host.unregister_range(d.device(), pages.data()));
    const std::string image = "SIMCUBIN\narch sm_90\nkernel nothing\n";
    aa_module* module = nullptr;
    ok(d.table.module_load(d.device(), image.data(), image.size(), "cubin", &module));
    aa_kernel* kernel = nullptr;
    ok(d.table.kernel_get(module, "nothing", &kernel, nullptr));
    ok(d.table.module_unload(module));
    EXPECT_EQ(is_done(d.table, event), 1);
    ok(d.table.event_synchronize(event));
    ok(d.table.event_record(timed, beside));
    ok(d.table.stream_synchronize(beside));
    ok(d.table.device_synchronize(d.device()), "device_synchronize");
    d.query(memory);
    int64_t free = 0, total = 0;
    ok(d.table.device_memory_info(d.device(), &free, &total));
    aa_stream* another = d.stream();
    ok(d.table.stream_destroy(another));
    int32_t done = 0;
    refused(d.table.stream_query(stream, &done), AA_FAILED_PRECONDITION);
    refused(d.table.stream_synchronize(stream), AA_FAILED_PRECONDITION);
    // Work that is complete need not be waited for; work that is not cannot be, at every replay.
    ok(d.table.stream_wait_event(stream, event));
    Gate gate;
    gate.close(d, beside);
    ok(d.table.event_record(event, beside));
    EXPECT_SAYS(refused(d.table.stream_wait_event(stream, event), AA_FAILED_PRECONDITION), "outside of it");
    gate.open();
    aa_graph* graph = nullptr;
    ok(graphs.capture_end(stream, &graph), "capture_end");
    int64_t nodes = 0;
    ok(graphs.node_count(graph, &nodes));
    EXPECT_EQ(nodes, 1);
    ok(graphs.launch(graph, beside));
    EXPECT_EQ(d.download(beside, memory, 1000), std::vector<unsigned char>(1000, 3));
    ok(graphs.destroy(graph));
    for (aa_event* each : {event, timed}) ok(d.table.event_destroy(each));
    ok(d.table.stream_destroy(stream));
    ok(d.table.stream_destroy(beside));
    d.free(memory, 1000);
  }).clean();
}

TEST_F(CudaStreams, StreamsForkAndJoinInACapture) {
  Simulated({{"SIM_SEED", "5"}}, [] {
    Opened d;
    const auto& graphs = d.extension<aa_graph_table>(AA_GRAPH_EXTENSION);
    aa_stream *stream = d.stream(), *branch = d.stream();
    char *a = d.memory(1000), *b = d.memory(1000), *c = d.memory(1000);
    aa_event *fork = d.event(), *join = d.event();
    const unsigned char value = 11;
    int32_t flag = -1;
    ok(graphs.capture_begin(stream));
    ok(d.table.fill_async(stream, a, &value, 1, 1000));
    ok(d.table.event_record(fork, stream));
    refused(d.table.event_query(fork, &flag), AA_FAILED_PRECONDITION);  // a place in a graph is not in time
    refused(d.table.event_synchronize(fork), AA_FAILED_PRECONDITION);
    ok(d.table.stream_wait_event(branch, fork));
    ok(graphs.capture_status(branch, &flag));
    EXPECT_EQ(flag, 1);
    refused(d.table.stream_synchronize(branch), AA_FAILED_PRECONDITION);
    refused(graphs.capture_end(branch, nullptr), AA_FAILED_PRECONDITION);  // it did not begin it
    ok(d.table.copy_async(branch, b, a, 1000, AA_COPY_DEVICE_TO_DEVICE));
    ok(d.table.event_record(join, branch));
    ok(d.table.stream_wait_event(stream, join));
    ok(d.table.copy_async(stream, c, b, 1000, AA_COPY_DEVICE_TO_DEVICE));
    aa_graph* graph = nullptr;
    ok(graphs.capture_end(stream, &graph));
    ok(graphs.capture_status(branch, &flag));
    EXPECT_EQ(flag, 0);
    EXPECT_SAYS(refused(d.table.stream_wait_event(branch, fork), AA_FAILED_PRECONDITION), "record it again");
    const unsigned char zero = 0;
    for (int round = 0; round < 3; ++round) {
      ok(d.table.fill_async(branch, c, &zero, 1, 1000));
      ok(graphs.launch(graph, branch));
      EXPECT_EQ(d.download(branch, c, 1000), std::vector<unsigned char>(1000, 11));
    }
    ok(d.table.event_record(fork, branch));
    ok(d.table.event_synchronize(fork));
    EXPECT_EQ(is_done(d.table, fork), 1);
    ok(graphs.destroy(graph));
    for (aa_event* each : {fork, join}) ok(d.table.event_destroy(each));
    for (aa_stream* each : {stream, branch}) ok(d.table.stream_destroy(each));
    for (char* each : {a, b, c}) d.free(each, 1000);
  }).clean();
}

TEST_F(CudaStreams, CapturesThatCannotEndSayWhy) {
  Simulated({}, [] {
    Opened d;
    const auto& graphs = d.extension<aa_graph_table>(AA_GRAPH_EXTENSION);
    aa_stream *stream = d.stream(), *branch = d.stream();
    char* memory = d.memory(1000);
    aa_event* fork = d.event();
    const unsigned char value = 1;
    ok(graphs.capture_begin(stream));
    ok(d.table.event_record(fork, stream));
    ok(d.table.stream_wait_event(branch, fork));
    ok(d.table.fill_async(branch, memory, &value, 1, 1000));
    aa_graph* graph = nullptr;
    EXPECT_SAYS(refused(graphs.capture_end(stream, &graph), AA_FAILED_PRECONDITION), "not joined");
    EXPECT_EQ(graph, nullptr);
    for (aa_stream* each : {stream, branch}) {
      int32_t capturing = -1;
      ok(graphs.capture_status(each, &capturing));
      EXPECT_EQ(capturing, 0);
      ok(d.table.fill_async(each, memory, &value, 1, 1000));
      ok(d.table.stream_synchronize(each));
    }
    // The thread that began it ends it.
    ok(graphs.capture_begin(stream));
    std::thread([&] {
      EXPECT_SAYS(refused(graphs.capture_end(stream, &graph), AA_FAILED_PRECONDITION), "thread");
    }).join();
    ok(graphs.capture_end(stream, &graph));
    ok(graphs.destroy(graph));
    // Destroying a stream ends its capture.
    ok(graphs.capture_begin(stream));
    ok(d.table.fill_async(stream, memory, &value, 1, 1000));
    ok(d.table.stream_destroy(stream));
    ok(d.table.stream_destroy(branch));
    ok(d.table.event_destroy(fork));
    d.free(memory, 1000);
  });
}

TEST_F(CudaStreams, ACaptureByOtherCodeIsSeen) {
  Simulated({}, [] {
    Opened d;
    const auto& graphs = d.extension<aa_graph_table>(AA_GRAPH_EXTENSION);
    const cuda::Api& api = *cuda::start_platform().api;
    aa_stream* stream = d.stream();
    void* native = nullptr;
    ok(d.table.stream_native(stream, &native));
    const auto raw = static_cast<cuda::StreamHandle>(native);
    ASSERT_EQ(api.capture_begin(raw, cuda::capture_mode_thread_local), cuda::success);
    int32_t capturing = 0;
    ok(graphs.capture_status(stream, &capturing));
    EXPECT_EQ(capturing, 1);
    cuda::GraphHandle graph = nullptr;
    ASSERT_EQ(api.capture_end(raw, &graph), cuda::success);
    ok(graphs.capture_status(stream, &capturing));
    EXPECT_EQ(capturing, 0);
    EXPECT_EQ(api.graph_destroy(graph), cuda::success);
    ok(d.table.stream_destroy(stream));
  }).clean();
}

// ---- scratch memory --------------------------------------------------------------------------------------------------

TEST_F(CudaStreams, ScratchMemoryBelongsToAStream) {
  Simulated({}, [] {
    const cuda::Platform& platform = cuda::start_platform();
    cuda::DeviceState state(platform, 0);
    const auto purpose = cuda::DeviceState::Scratch::counters;
    const auto stream = [](uintptr_t number) { return reinterpret_cast<cuda::StreamHandle>(number); };
    void* mine = state.scratch(purpose, stream(1), 1000);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(mine) % 256, 0u);
    EXPECT_EQ(state.scratch(purpose, stream(1), 500), mine);
    EXPECT_NE(state.scratch(purpose, stream(2), 500), mine);
    EXPECT_NE(state.scratch(cuda::DeviceState::Scratch::products, stream(1), 500), mine);
    void* larger = state.scratch(purpose, stream(1), mebibyte);
    EXPECT_NE(larger, mine);
    EXPECT_EQ(state.scratch(purpose, stream(1), 1000), larger);
    // Memory used by a captured graph is not reused until the graph is destroyed.
    state.set_capture(stream(1), 7);
    void* captured = state.scratch(purpose, stream(1), 1000);
    EXPECT_NE(captured, larger);
    EXPECT_NE(captured, mine);
    state.set_capture(stream(1), 0);
    EXPECT_EQ(state.scratch(purpose, stream(1), 1000), larger);
    state.set_capture(stream(1), 8);
    EXPECT_NE(state.scratch(purpose, stream(1), 1000), captured);
    state.set_capture(stream(1), 0);
    state.release_capture(7);
    state.set_capture(stream(2), 9);
    EXPECT_EQ(state.scratch(purpose, stream(2), 1000), captured);
    // Zeros, for counters.
    std::vector<unsigned char> bytes(mebibyte, 1);
    state.bind_surely();
    cuda::StreamHandle copying = nullptr;
    state.check(state.api().stream_create(&copying, cuda::stream_non_blocking, 0), "cuStreamCreateWithPriority");
    state.check(state.api().copy_async(reinterpret_cast<cuda::DevicePointer>(bytes.data()),
                                       reinterpret_cast<cuda::DevicePointer>(larger), bytes.size(), copying),
                "cuMemcpyAsync");
    state.check(state.api().stream_synchronize(copying), "cuStreamSynchronize");
    EXPECT_EQ(bytes, std::vector<unsigned char>(mebibyte, 0));
    state.check(state.api().stream_destroy(copying), "cuStreamDestroy");
  }).clean();
}

// ---- ceilings --------------------------------------------------------------------------------------------------------

TEST_F(CudaStreams, CeilingsAreMeasured) {
  if (!std::filesystem::exists(simulated_libraries + "/libnvrtc.so.13")) GTEST_SKIP() << "no simulated NVRTC was built";
  Simulated({}, [] {
    Opened d;
    const auto& ceilings = d.extension<aa_ceilings_table>(AA_CEILINGS_EXTENSION);
    for (const int32_t kind :
         {AA_CEILING_READ, AA_CEILING_COPY, AA_CEILING_FMA_F32, AA_CEILING_LAUNCH, AA_CEILING_OPEN}) {
      double value = 0;
      ok(ceilings.measure(d.device(), kind, 200000, 1e-3, &value), "measure");
      EXPECT_GT(value, 0) << kind;
    }
    double value = 0;
    const StatusRef product(ceilings.measure(d.device(), AA_CEILING_PRODUCT_BF16, 0, 1e-3, &value));
    if (std::filesystem::exists(simulated_libraries + "/libcublasLt.so.13")) {
      EXPECT_TRUE(product.ok()) << product.text();
      EXPECT_GT(value, 0);
    }
    refused(ceilings.measure(d.device(), 99, 1000, 1e-3, &value), AA_UNIMPLEMENTED);
    refused(ceilings.measure(d.device(), AA_CEILING_READ, 0, 1e-3, &value), AA_INVALID_ARGUMENT);
  }).clean();
}

}  // namespace
}  // namespace anyaccel::cuda_test
