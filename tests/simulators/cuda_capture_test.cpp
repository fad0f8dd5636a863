// The simulated CUDA driver: stream capture with its modes and errors, graphs, and launches that overlap.
#include "tests/simulators/cuda_face.h"

namespace {

using namespace cuda_face;  // NOLINT

constexpr int kGlobal = 0;

struct Capturing : Program {
  StreamHandle stream = Program::stream(), other = Program::stream();
  EventHandle event = Program::event(), second = Program::event();
  DevicePointer a = allocate(64);
  GraphHandle graph = nullptr;

  void begin(int mode = capture_mode_thread_local) { CU_OK(api().capture_begin(stream, mode)); }
  int end() { return api().capture_end(stream, &graph); }
  int status(StreamHandle which) {
    int value = -1;
    CU_OK(api().capture_status(which, &value));
    return value;
  }
  // The capture is invalid, and ends as such.
  void expect_invalid() {
    CHECK(status(stream) == capture_status_invalidated);
    CU_IS(error_stream_capture_invalidated, api().fill_8_async(a, 1, 64, stream));
    CU_IS(error_stream_capture_invalidated, end());
    CHECK(graph == nullptr && status(stream) == capture_status_none);
  }
  GraphExecHandle instantiate() {
    GraphExecHandle exec = nullptr;
    CU_OK(api().graph_instantiate(&exec, graph, 0));
    return exec;
  }
};

TEST_F(CudaFace, WhatACaptureDoesNotAllowInvalidatesIt) {
  const auto report = run([] {
    Capturing p;
    const auto forbidden = [&](const std::function<int()>& call, int result = error_stream_capture_unsupported) {
      p.begin();
      CHECK(p.status(p.stream) == capture_status_active && p.status(p.other) == capture_status_none);
      CU_IS(result, call());
      p.expect_invalid();
    };
    DevicePointer more = 0;
    forbidden([&] { return api().stream_synchronize(p.stream); });
    forbidden([&] { return api().stream_query(p.stream); });
    forbidden([&] { return api().context_synchronize(); });
    forbidden([&] { return api().memory_alloc(&more, 64); });
    forbidden([&] { return api().event_query(p.second); });
    CU_OK(api().event_record(p.second, p.other));
    forbidden([&] { return api().stream_wait_event(p.stream, p.second, 0); }, 905);
    forbidden(
        [&] {
          CU_OK(api().event_record(p.event, p.stream));
          return api().event_synchronize(p.event);
        },
        907);
    CU_IS(907, api().event_query(p.event));  // also when it has ended
    CU_IS(907, api().stream_wait_event(p.other, p.event, 0));
    CU_OK(api().event_record(p.event, p.other));
    CU_OK(api().event_synchronize(p.event));
  });
  EXPECT_EQ(kinds(report), "capture,capture,capture,capture,capture,capture,capture,capture,capture");
}

TEST_F(CudaFace, CaptureModesBindThreads) {
  const auto report = run([] {
    Capturing p;
    const auto exchange = [](int mode) {
      CU_OK(api().capture_mode_exchange(&mode));
      return mode;
    };
    const auto elsewhere = [&](int own_mode) {
      int result = -1;
      std::thread([&] {
        CU_OK(api().context_set_current(p.context));
        exchange(own_mode);
        DevicePointer pointer = 0;
        result = api().memory_alloc(&pointer, 64);
        if (result == success) CU_OK(api().memory_free(pointer));
      }).join();
      return result;
    };
    p.begin(kGlobal);
    CU_OK(elsewhere(capture_mode_thread_local));
    CU_OK(elsewhere(capture_mode_relaxed));
    CU_IS(900, elsewhere(kGlobal));
    p.expect_invalid();
    p.begin();
    CU_OK(elsewhere(kGlobal));
    CHECK(exchange(capture_mode_relaxed) == kGlobal);
    CU_OK(elsewhere(kGlobal));
    CU_OK(api().memory_free(p.allocate(64)));
    CHECK(exchange(kGlobal) == capture_mode_relaxed);
    CU_OK(p.end());
    p.begin(capture_mode_relaxed);
    CU_OK(api().memory_free(p.allocate(64)));
    CU_OK(p.end());
  });
  EXPECT_EQ(kinds(report), "capture");
}

TEST_F(CudaFace, CapturesEndWhereTheyBegan) {
  const auto report = run([] {
    Capturing p;
    CU_IS(401, p.end());
    CU_IS(900, api().capture_begin(nullptr, capture_mode_relaxed));
    p.begin();
    CU_IS(401, api().capture_begin(p.stream, capture_mode_thread_local));
    int result = -1;
    std::thread([&] {
      CU_OK(api().context_set_current(p.context));
      result = p.end();
    }).join();
    CHECK(result == 908);
    CU_OK(api().event_record(p.event, p.stream));
    CU_OK(api().stream_wait_event(p.other, p.event, 0));
    CHECK(p.status(p.other) == capture_status_active);
    CU_IS(903, api().capture_end(p.other, &p.graph));
    CU_OK(api().fill_8_async(p.a, 1, 64, p.other));
    CU_IS(904, p.end());  // `other` was not joined
    CHECK(p.status(p.other) == capture_status_none);
    // Two captures cannot become one.
    const auto third = p.Program::stream();
    p.begin();
    CU_OK(api().capture_begin(third, capture_mode_thread_local));
    CU_OK(api().event_record(p.event, third));
    CU_IS(902, api().stream_wait_event(p.stream, p.event, 0));
    CU_IS(901, p.end());
    CU_IS(901, api().capture_end(third, &p.graph));
  });
  EXPECT_EQ(kinds(report), "capture,capture,capture,capture,capture,capture,capture");
}

TEST_F(CudaFace, TheLegacyStreamDisturbsCapturesOfBlockingStreams) {
  const auto report = run([] {
    Capturing p;
    const auto blocking = p.Program::stream(true);
    p.begin();
    CU_OK(api().fill_8_async(p.a, 1, 64, nullptr));  // a non-blocking stream captures: nothing to do with it
    CU_OK(p.end());
    CU_OK(api().capture_begin(blocking, capture_mode_relaxed));
    CU_IS(906, api().fill_8_async(p.a, 1, 64, nullptr));
    CU_IS(901, api().capture_end(blocking, &p.graph));
    CU_OK(api().context_synchronize());
  });
  EXPECT_EQ(kinds(report), "capture");
}

TEST_F(CudaFace, GraphsForkJoinAndRunAgain) {
  const auto report = run(
      [] {
        Capturing p;
        const auto b = p.allocate(64), c = p.allocate(64);
        p.begin();
        CU_OK(api().event_record(p.event, p.stream));
        CU_OK(api().stream_wait_event(p.other, p.event, 0));
        CU_OK(api().copy_async(b, p.a, 64, p.stream));
        CU_OK(api().copy_async(c, p.a, 64, p.other));
        CU_OK(api().event_record(p.second, p.other));
        CU_OK(api().stream_wait_event(p.stream, p.second, 0));
        static std::atomic<int> runs = 0;
        CU_OK(api().launch_host_function(
            p.stream, [](void*) { ++runs; }, nullptr));
        CU_OK(api().copy_async(p.a, c, 32, p.stream));
        CU_OK(p.end());
        std::size_t count = 2;
        void* nodes[2] = {};
        CU_OK(api().graph_nodes(p.graph, nodes, &count));
        CHECK(count == 2 && nodes[0] != nullptr && nodes[0] != nodes[1]);
        CU_OK(api().graph_nodes(p.graph, nullptr, &count));
        CHECK(count == 4);
        const auto exec = p.instantiate();
        CHECK(runs == 0);
        for (int i = 1; i <= 3; ++i) {  // with the memory as it is then; on several streams, one after another
          CU_OK(api().fill_8_async(p.a, static_cast<unsigned char>(i), 64, i % 2 == 0 ? p.stream : p.other));
          CU_OK(api().graph_launch(exec, i % 2 == 0 ? p.stream : p.other));
          char seen[2] = {};
          CU_OK(p.copy(seen, b, 1, i % 2 == 0 ? p.stream : p.other));
          CU_OK(p.copy(seen + 1, c + 63, 1, i % 2 == 0 ? p.stream : p.other));
          CHECK(seen[0] == i && seen[1] == i && runs == i);
        }
        // In another capture: its nodes.
        CU_OK(api().graph_destroy(p.graph));
        p.begin();
        CU_OK(api().graph_launch(exec, p.stream));
        CU_OK(api().graph_launch(exec, p.stream));
        CU_OK(p.end());
        CU_OK(api().graph_nodes(p.graph, nullptr, &count));
        CHECK(count == 8);
        const auto twice = p.instantiate();
        CU_OK(api().graph_launch(twice, p.stream));
        CU_OK(api().graph_exec_destroy(twice));  // while it runs
        CU_OK(api().stream_synchronize(p.stream));
        CHECK(runs == 5);
        CU_OK(api().graph_destroy(p.graph));
        CU_OK(api().graph_exec_destroy(exec));
        CU_IS(error_invalid_handle, api().graph_launch(exec, p.stream));
        CU_IS(error_invalid_value, api().graph_destroy(p.graph));
      },
      {{"SIM_SEED", "3"}});
  EXPECT_EQ(kinds(report), "bad-handle,bad-handle");
}

TEST_F(CudaFace, CapturedCopiesReadTheHostsMemoryAtEveryLaunch) {
  EXPECT_EQ(kinds_of([] {
              Capturing p;
              char pageable = 1;
              p.begin();
              CU_OK(p.copy(p.a, &pageable, 1, p.stream));
              CU_OK(p.end());
              const auto exec = p.instantiate();
              for (char i = 2; i < 4; ++i) {
                pageable = i;
                CU_OK(api().graph_launch(exec, p.stream));
                char seen = 0;
                CU_OK(p.copy(&seen, p.a, 1, p.stream));
                CHECK(seen == i);
              }
            }),
            "");
}

TEST_F(CudaFace, BranchesOfAGraphRace) {
  EXPECT_EQ(kinds_of([] {
              Capturing p;
              p.begin();
              CU_OK(api().event_record(p.event, p.stream));
              CU_OK(api().stream_wait_event(p.other, p.event, 0));
              CU_OK(api().fill_8_async(p.a, 1, 64, p.stream));
              CU_OK(api().fill_8_async(p.a, 2, 64, p.other));
              CU_OK(api().event_record(p.second, p.other));
              CU_OK(api().stream_wait_event(p.stream, p.second, 0));
              CU_OK(p.end());
              CU_OK(api().graph_launch(p.instantiate(), p.stream));
              CU_OK(api().stream_synchronize(p.stream));
            }),
            "race");
}

TEST_F(CudaFace, AGraphNeedsItsKernelsAndMemory) {
  for (const bool unload : {true, false}) {
    EXPECT_EQ(kinds_of([unload] {
                Capturing p;
                const auto module = p.module();
                p.begin();
                CU_OK(p.scale(p.function(module), p.stream, p.a, p.a, 1.0f, 16));
                CU_OK(p.end());
                const auto exec = p.instantiate();
                CU_OK(api().graph_launch(exec, p.stream));
                CU_OK(api().stream_synchronize(p.stream));
                CU_OK(unload ? api().module_unload(module) : api().memory_free(p.a));
                // May find out at once, or when the kernel runs.
                const Result launched = api().graph_launch(exec, p.stream);
                if (launched != success) CU_IS(700, launched);
                CU_IS(700, api().stream_synchronize(p.stream));
              }),
              unload ? "destroyed-in-use" : "use-after-free");
  }
}

// Kernels that may begin before those before them have ended must wait before they use their results.
TEST_F(CudaFace, OverlappingLaunchesWaitForResults) {
  // Two of them in a row: the second may begin with the first, and so before the kernel before that one has ended.
  const auto program = [](int mistake, bool graph) {
    Capturing p;
    const auto module = p.module("kernel warp_mistakes\nkernel sim_scale\n");
    const auto function = p.function(module, "warp_mistakes");
    auto y = p.allocate(4096), x = p.allocate(4096);
    CU_OK(api().fill_8_async(y, 0, 4096, p.stream));
    CU_OK(api().stream_synchronize(p.stream));
    LaunchAttribute attribute{};
    attribute.id = launch_attribute_programmatic_stream_serialization;
    attribute.value = 1;
    if (graph) p.begin();
    CU_OK(p.scale(p.function(module), p.stream, x, y, 1.0f, 64));
    const LaunchConfig config = {{1, 1, 1}, {64, 1, 1}, 16, p.stream, &attribute, 1};
    void* arguments[] = {&y, &x, &mistake};
    for (int i = 0; i < 2; ++i) CU_OK(api().launch_kernel_ex(&config, function, arguments, nullptr));
    if (graph) {
      CU_OK(p.end());
      CU_OK(api().graph_launch(p.instantiate(), p.stream));
    }
    api().stream_synchronize(p.stream);
  };
  for (const bool graph : {false, true}) {
    EXPECT_EQ(kinds_of([&] { program(0, graph); }), "");
    EXPECT_EQ(kinds_of([&] { program(14, graph); }), "race,race,race,race");  // of each: x, y
  }
}

}  // namespace
