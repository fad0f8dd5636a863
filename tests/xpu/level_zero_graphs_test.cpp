// Graphs of the Level Zero runtime of xpu, on the simulated driver: what a launch does, and who is told when part of it fails.
#include <atomic>
#include <string>

#include "xpu/level_zero_test_support.h"

namespace anyaccel {
namespace {

using test::bytes_of;
using test::Child;
using test::error;
using test::ok;
using test::OpenedDevice;

class LevelZeroGraphs : public test::LevelZero {};

TEST_F(LevelZeroGraphs, GraphsReplayCopiesFillsHostCallsAndEvents) {
  Child({{"SIM_SEED", "5"}}, [] {
    OpenedDevice d;
    const auto& graphs = d.extension<aa_graph_table>(AA_GRAPH_EXTENSION);
    aa_stream* stream = d.stream();
    aa_stream* other = d.stream();
    aa_event* event = nullptr;
    ok(d.table.event_create(d.device, AA_EVENT_DEFAULT, &event));
    constexpr size_t size = 500;
    void* a = d.memory(size);
    void* b = d.memory(size);
    std::vector<unsigned char> input(size);
    std::vector<unsigned char> output(size);
    int calls = 0;
    ok(graphs.capture_begin(stream));
    const uint16_t pattern = 0x4321;
    ok(d.table.fill_async(stream, b, &pattern, 2, size));
    ok(d.table.copy_async(stream, a, input.data(), size, AA_COPY_HOST_TO_DEVICE));
    ok(d.table.copy_async(stream, b, a, size / 2, AA_COPY_DEVICE_TO_DEVICE));
    ok(d.table.stream_host_call(
        stream, [](void* user) { ++*static_cast<int*>(user); }, &calls));
    ok(d.table.copy_async(stream, output.data(), b, size, AA_COPY_DEVICE_TO_HOST));
    ok(d.table.event_record(event, stream));
    EXPECT_EQ(error(d.table.stream_synchronize(stream)).first, AA_FAILED_PRECONDITION);
    aa_graph* graph = nullptr;
    ok(graphs.capture_end(stream, &graph));
    int64_t nodes = 0;
    ok(graphs.node_count(graph, &nodes));
    EXPECT_EQ(nodes, 6);
    EXPECT_EQ(calls, 0);
    for (int round = 1; round <= 6; ++round) {
      // Each launch comes after the last one, also on another stream: both write the same memory.
      aa_stream* where = round % 3 == 0 ? other : stream;
      const std::vector<unsigned char> fresh = bytes_of(size, static_cast<unsigned>(round));
      std::copy(fresh.begin(), fresh.end(), input.begin());  // where the recorded copy reads
      ok(graphs.launch(graph, where));
      if (round % 2) ok(graphs.launch(graph, where == stream ? other : stream));
      ok(d.table.event_synchronize(event));
      for (size_t i = 0; i < size; ++i) {
        const unsigned char wanted = i < size / 2 ? input[i] : i % 2 ? 0x43 : 0x21;
        ASSERT_EQ(output[i], wanted) << "round " << round << ", byte " << i;
      }
    }
    EXPECT_EQ(calls, 9);
    ok(d.table.device_synchronize(d.device));
    ok(graphs.destroy(graph));
    ok(d.table.event_destroy(event));
    d.free(a, size);
    d.free(b, size);
    ok(d.table.stream_destroy(stream));
    ok(d.table.stream_destroy(other));
  }).expect_clean();
}

// A graph's commands run on a queue of its own. Whichever command of all fails, the stream's wait tells, or all has been done.
TEST_F(LevelZeroGraphs, AFailedCommandOfAGraphIsTold) {
  for (int command = 1; command <= 20; ++command) {
    SCOPED_TRACE("command " + std::to_string(command));
    Child({{"SIM_FAULT", "sticky:command=" + std::to_string(command)}, {"SIM_HANG_SECONDS", "10"}}, [] {
      OpenedDevice d;
      const auto& graphs = d.extension<aa_graph_table>(AA_GRAPH_EXTENSION);
      aa_stream* stream = d.stream();
      constexpr size_t size = 100;
      void* memory = d.memory(size);
      const unsigned char pattern = 7;
      ok(graphs.capture_begin(stream));
      ok(d.table.fill_async(stream, memory, &pattern, 1, size));
      aa_graph* graph = nullptr;
      ok(graphs.capture_end(stream, &graph));
      aa_event* event = nullptr;
      ok(d.table.event_create(d.device, AA_EVENT_DEFAULT, &event));
      if (error(graphs.launch(graph, stream)).first == AA_OK) {
        const bool recorded = error(d.table.event_record(event, stream)).first == AA_OK;
        const auto told = error(d.table.stream_synchronize(stream));
        std::vector<unsigned char> data(size);
        aa_stream* reader = d.stream();
        if (told.first == AA_OK &&
            error(d.table.copy_async(reader, data.data(), memory, size, AA_COPY_DEVICE_TO_HOST)).first == AA_OK &&
            error(d.table.stream_synchronize(reader)).first == AA_OK) {
          EXPECT_EQ(data, std::vector<unsigned char>(size, pattern));
        }
        if (told.first != AA_OK) {
          EXPECT_EQ(error(d.table.stream_synchronize(stream)), told);
          int32_t done = 0;
          EXPECT_EQ(error(d.table.stream_query(stream, &done)), told);
          if (recorded) {
            EXPECT_EQ(error(d.table.event_synchronize(event)), told);
          }
        }
        error(d.table.stream_destroy(reader));
      }
      error(graphs.destroy(graph));
      error(d.table.stream_destroy(stream));
      ok(d.table.event_destroy(event));
      d.free(memory, size);
    }).expect_clean();
  }
}

// Whichever command fails: a record from before a launch that failed is complete, and who waits for it is not concerned.
TEST_F(LevelZeroGraphs, ARecordFromBeforeAFailureStaysGood) {
  int failed = 0;
  for (const bool asked : {false, true}) {
    for (int command = 1; command <= 14; ++command) {
      SCOPED_TRACE("command " + std::to_string(command));
      const Child child({{"SIM_FAULT", "sticky:command=" + std::to_string(command)}, {"SIM_HANG_SECONDS", "10"}}, [&] {
        OpenedDevice d;
        const auto& graphs = d.extension<aa_graph_table>(AA_GRAPH_EXTENSION);
        aa_stream* failing = d.stream();
        aa_stream* waiting = d.stream();
        constexpr size_t size = 100;
        void* memory = d.memory(size);
        const unsigned char pattern = 7;
        ok(graphs.capture_begin(failing));
        ok(d.table.fill_async(failing, memory, &pattern, 1, size));
        aa_graph* graph = nullptr;
        ok(graphs.capture_end(failing, &graph));
        aa_event* event = nullptr;
        ok(d.table.event_create(d.device, AA_EVENT_DEFAULT, &event));
        if (error(d.table.fill_async(failing, memory, &pattern, 1, size)).first == AA_OK &&
            error(d.table.event_record(event, failing)).first == AA_OK &&
            error(asked ? d.table.event_synchronize(event) : d.table.stream_synchronize(failing)).first == AA_OK &&
            error(graphs.launch(graph, failing)).first == AA_OK &&
            error(d.table.stream_synchronize(failing)).first != AA_OK) {
          std::printf("the launch failed\n");
          ok(d.table.event_synchronize(event));
          ok(d.table.stream_wait_event(waiting, event));
          std::vector<unsigned char> data(size);
          void* other = d.memory(size);
          ok(d.table.fill_async(waiting, other, &pattern, 1, size));
          ok(d.table.copy_async(waiting, data.data(), other, size, AA_COPY_DEVICE_TO_HOST));
          ok(d.table.stream_synchronize(waiting));
          EXPECT_EQ(data, std::vector<unsigned char>(size, pattern));
          d.free(other, size);
        }
        error(graphs.destroy(graph));
        error(d.table.stream_destroy(failing));
        error(d.table.stream_destroy(waiting));
        ok(d.table.event_destroy(event));
        d.free(memory, size);
      });
      // Behind a launch that was refused halfway nothing can be recorded that the stream could wait for when it is destroyed.
      if (child.output.find("the launch failed") == std::string::npos) continue;
      ++failed;
      child.expect_clean();
    }
  }
  EXPECT_GE(failed, 2);
}

// Whichever command of the first launch fails: a record behind it tells, although the next launch of the graph waits for the
// host.
TEST_F(LevelZeroGraphs, AFailedLaunchIsToldWhileTheNextOneWaits) {
  for (int command = 4; command <= 7; ++command) {
    SCOPED_TRACE("command " + std::to_string(command));
    Child({{"SIM_FAULT", "sticky:command=" + std::to_string(command)}, {"SIM_HANG_SECONDS", "10"}}, [] {
      OpenedDevice d;
      const auto& graphs = d.extension<aa_graph_table>(AA_GRAPH_EXTENSION);
      aa_stream* stream = d.stream();
      constexpr size_t size = 100;
      void* memory = d.memory(size);
      const unsigned char pattern = 7;
      ok(graphs.capture_begin(stream));
      ok(d.table.fill_async(stream, memory, &pattern, 1, size));
      aa_graph* graph = nullptr;
      ok(graphs.capture_end(stream, &graph));
      aa_event* event = nullptr;
      ok(d.table.event_create(d.device, AA_EVENT_DEFAULT, &event));
      // Before both launches, so that nothing has failed when the second one is enqueued. The first gate takes two commands, and
      // the stream's signal to the list one.
      std::atomic<bool> gates[2] = {false, false};
      const auto wait = [](void* gate) { static_cast<std::atomic<bool>*>(gate)->wait(false); };
      const auto open = [](std::atomic<bool>& gate) {
        gate = true;
        gate.notify_all();
      };
      ok(d.table.stream_host_call(stream, wait, &gates[0]));
      ok(graphs.launch(graph, stream));
      ok(d.table.event_record(event, stream));
      ok(d.table.stream_host_call(stream, wait, &gates[1]));
      ok(graphs.launch(graph, stream));
      open(gates[0]);
      EXPECT_NE(error(d.table.event_synchronize(event)).first, AA_OK);
      open(gates[1]);
      EXPECT_NE(error(d.table.stream_synchronize(stream)).first, AA_OK);
      error(graphs.destroy(graph));
      error(d.table.stream_destroy(stream));
      ok(d.table.event_destroy(event));
      d.free(memory, size);
    }).expect_clean();
  }
}

// A list's events order a launch between the commands of its stream. What a launch that was refused halfway left signaled would
// order the next one wrongly, also on another stream.
TEST_F(LevelZeroGraphs, AGraphWhoseLaunchWasRefusedHalfwayIsNotLaunchedAgain) {
  // The capture takes the first reset and three barriers, and the launch begins with one more.
  const char* const faults[] = {
      "fail:zeCommandQueueExecuteCommandLists,call=1;fail:zeCommandListAppendEventReset,call=2",
      "fail:zeCommandListAppendEventReset,call=2",
      "fail:zeCommandListAppendBarrier,call=5",
      // The end of the launch cannot be recorded, either time.
      "fail:zeCommandListAppendBarrier,call=6;fail:zeCommandListAppendBarrier,call=7",
  };
  for (const char* fault : faults) {
    SCOPED_TRACE(fault);
    Child({{"SIM_FAULT", fault}, {"SIM_HANG_SECONDS", "10"}}, [] {
      OpenedDevice d;
      const auto& graphs = d.extension<aa_graph_table>(AA_GRAPH_EXTENSION);
      aa_stream* stream = d.stream();
      aa_stream* other = d.stream();
      constexpr size_t size = 100;
      void* memory = d.memory(size);
      const unsigned char pattern = 7;
      const auto capture = [&] {
        ok(graphs.capture_begin(other));
        ok(d.table.fill_async(other, memory, &pattern, 1, size));
        aa_graph* graph = nullptr;
        ok(graphs.capture_end(other, &graph));
        return graph;
      };
      aa_graph* graph = capture();
      EXPECT_EQ(error(graphs.launch(graph, stream)).first, AA_UNKNOWN);
      error(d.table.stream_synchronize(stream));  // so that nothing of it runs any more
      for (int i = 0; i < 2; ++i) {
        const auto again = error(graphs.launch(graph, other));
        EXPECT_EQ(again.first, AA_FAILED_PRECONDITION);
        EXPECT_NE(again.second.find("capture it again"), std::string::npos) << again.second;
      }
      ok(graphs.destroy(graph));
      graph = capture();
      ok(graphs.launch(graph, other));
      ok(d.table.stream_synchronize(other));
      ok(graphs.destroy(graph));
      error(d.table.stream_destroy(stream));
      ok(d.table.stream_destroy(other));
      d.free(memory, size);
    }).expect_clean();
  }
}

// Launches follow each other on all streams. One whose stream has failed is nothing to wait for, but it may still run. Here the
// stream fails because the host cannot wait for it while a host call holds it.
TEST_F(LevelZeroGraphs, ALaunchIsRefusedWhileAFailedOneMayStillRun) {
  Child({{"SIM_FAULT", "fail:zeEventHostSynchronize,call=2"}, {"SIM_HANG_SECONDS", "10"}}, [] {
    OpenedDevice d;
    const auto& graphs = d.extension<aa_graph_table>(AA_GRAPH_EXTENSION);
    aa_stream* failing = d.stream();
    aa_stream* other = d.stream();
    // Each launch moves the bytes on by one part, so that the result tells how many there were.
    constexpr size_t part = 25, size = 4 * part;
    auto* const memory = static_cast<unsigned char*>(d.memory(size));
    const auto parts = [](const std::vector<unsigned char>& values) {
      std::vector<unsigned char> bytes;
      for (const unsigned char value : values) bytes.insert(bytes.end(), part, value);
      return bytes;
    };
    std::vector<unsigned char> data = parts({4, 3, 2, 1});
    ok(d.table.copy_async(failing, memory, data.data(), size, AA_COPY_HOST_TO_DEVICE));
    ok(graphs.capture_begin(other));
    for (unsigned char* to = memory + 3 * part; to > memory; to -= part)
      ok(d.table.copy_async(other, to, to - part, part, AA_COPY_DEVICE_TO_DEVICE));
    aa_graph* graph = nullptr;
    ok(graphs.capture_end(other, &graph));
    struct Gate {
      std::atomic<bool> reached{false}, open{false};
    } gate;
    ok(d.table.stream_host_call(
        failing,
        [](void* user) {
          auto& gate = *static_cast<Gate*>(user);
          gate.reached = true;
          gate.reached.notify_all();
          gate.open.wait(false);
        },
        &gate));
    ok(graphs.launch(graph, failing));
    aa_event* event = nullptr;
    ok(d.table.event_create(d.device, AA_EVENT_DEFAULT, &event));
    ok(d.table.event_record(event, failing));
    gate.reached.wait(false);
    // The second wait of the process, whether the thread of the host call needed one or not.
    EXPECT_EQ(error(d.table.event_synchronize(event)).first, AA_UNKNOWN);
    const auto refused = error(graphs.launch(graph, other));
    EXPECT_EQ(refused.first, AA_FAILED_PRECONDITION);
    EXPECT_NE(refused.second.find("earlier launch"), std::string::npos) << refused.second;
    gate.open = true;
    gate.open.notify_all();
    error(d.table.stream_destroy(failing));  // waits for its launch
    ok(graphs.launch(graph, other));
    ok(d.table.copy_async(other, data.data(), memory, size, AA_COPY_DEVICE_TO_HOST));
    ok(d.table.stream_synchronize(other));
    EXPECT_EQ(data, parts({4, 4, 4, 3}));
    ok(d.table.stream_destroy(other));
    ok(d.table.event_destroy(event));
    ok(graphs.destroy(graph));
    d.free(memory, size);
  }).expect_clean();
}

}  // namespace
}  // namespace anyaccel
