// The Level Zero runtime of xpu on the simulated driver, through the system's loader and its validation layer.
#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "accelerators/xpu/level_zero/device.h"
#include "conformance/suite.h"
#include "refuse_system_calls.h"
#include "xpu/level_zero_test_support.h"

namespace anyaccel {
namespace {

using test::bytes_of;
using test::Child;
using test::error;
using test::LevelZero;
using test::ok;
using test::OpenedDevice;
using test::probe;
using test::xpu_table;

bool is_mapped(const char* library) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(library) != std::string::npos) return true;
  }
  return false;
}

// ---- probing ---------------------------------------------------------------------------------------------------------

TEST(LevelZeroProbe, WithoutAGpuTheLibraryIsNotOpened) {
  if (std::filesystem::exists("/dev/dri") || std::filesystem::exists("/dev/accel")) {
    GTEST_SKIP() << "this machine has GPU device nodes";
  }
  Child({}, [] {
    unsetenv("ZE_ENABLE_ALT_DRIVERS");
    const aa_probe found = probe();
    EXPECT_EQ(found.state, AA_PROBE_ABSENT);
    EXPECT_NE(std::strstr(found.reason, "/dev/dri/renderD"), nullptr) << found.reason;
    EXPECT_FALSE(is_mapped("libze_loader"));
    aa_initialize_params params{};
    params.struct_size = sizeof(params);
    aa_instance* instance = nullptr;
    EXPECT_EQ(error(xpu_table().initialize(&params, &instance)).first, AA_UNAVAILABLE);
    EXPECT_EQ(instance, nullptr);
  });
}

TEST_F(LevelZero, ProbeCountsDevices) {
  Child({{"SIM_DEVICES", "3"}}, [] {
    const aa_probe found = probe();
    EXPECT_EQ(found.state, AA_PROBE_USABLE) << found.reason;
    EXPECT_EQ(found.device_count, 3);
  }).expect_clean();
}

TEST_F(LevelZero, TheDriverReadsTheAffinityMask) {
  Child({{"SIM_DEVICES", "3"}, {"ZE_AFFINITY_MASK", "2"}}, [] { EXPECT_EQ(probe().device_count, 1); }).expect_clean();
}

TEST_F(LevelZero, ADriverWithoutDevicesIsUnusable) {
  Child({{"SIM_DEVICES", "0"}}, [] {
    const aa_probe found = probe();
    EXPECT_EQ(found.state, AA_PROBE_UNUSABLE);
    EXPECT_EQ(found.device_count, 0);
    EXPECT_NE(std::strstr(found.reason, "none lists a GPU"), nullptr) << found.reason;
  });
}

TEST_F(LevelZero, ADriverThatDoesNotStartIsUnusable) {
  for (const test::Environment& environment :
       {test::Environment{{"SIM_FAULT", "init"}}, test::Environment{{"ZE_ENABLE_ALT_DRIVERS", "/no/such/driver.so"}}}) {
    Child(environment, [] {
      const aa_probe found = probe();
      EXPECT_EQ(found.state, AA_PROBE_UNUSABLE);
      EXPECT_NE(std::strstr(found.reason, "zeInit"), nullptr) << found.reason;
      EXPECT_NE(std::strstr(found.reason, "ZE_RESULT_ERROR_UNINITIALIZED"), nullptr) << found.reason;
    });
  }
}

// ---- fork ------------------------------------------------------------------------------------------------------------

// Runs `body` in a child of the calling process; whether it ended without failed expectations.
bool forked(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    const int before = test::failures();
    body();
    std::fflush(nullptr);
    _exit(test::failures() > before ? 1 : 0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(LevelZero, AProcessMayForkAfterProbing) {
  Child({}, [] {
    EXPECT_EQ(probe().state, AA_PROBE_USABLE);
    EXPECT_TRUE(forked([] {
      EXPECT_EQ(probe().state, AA_PROBE_USABLE);
      OpenedDevice d;
      void* memory = d.memory(1000);
      d.free(memory, 1000);
    }));
  });
}

TEST_F(LevelZero, AChildOfAUserIsRefused) {
  Child({}, [] {
    OpenedDevice d;
    aa_stream* stream = d.stream();
    EXPECT_TRUE(forked([&] {
      void* pointer = nullptr;
      const auto [code, message] = error(d.table.mem_alloc(d.device, AA_MEMORY_DEVICE, 100, &pointer));
      EXPECT_EQ(code, AA_FAILED_PRECONDITION);
      EXPECT_NE(message.find("fork()"), std::string::npos) << message;
      EXPECT_EQ(error(d.table.stream_synchronize(stream)).first, AA_FAILED_PRECONDITION);
      EXPECT_EQ(probe().state, AA_PROBE_UNUSABLE);
      EXPECT_NE(std::strstr(probe().reason, "fork()"), nullptr);
    }));
    ok(d.table.stream_destroy(stream));
  }).expect_clean();
}

// ---- devices and memory ----------------------------------------------------------------------------------------------

TEST_F(LevelZero, TellsTheDevicesFacts) {
  Child({}, [] {
    OpenedDevice d;
    aa_device_props props{};
    props.struct_size = sizeof(props);
    ok(d.table.device_props(d.instance, 1, &props));
    EXPECT_STREQ(props.name, "Simulated GPU 1");
    EXPECT_STREQ(props.vendor, "Intel");
    EXPECT_STREQ(props.arch, "8086:5151");
    EXPECT_EQ(props.total_memory, int64_t{1} << 30);
    EXPECT_EQ(props.uuid[15], 1);
    EXPECT_TRUE(props.dtypes_computable & (1u << AA_DTYPE_F16));
    EXPECT_TRUE(props.dtypes_computable & (1u << AA_DTYPE_F64));
    EXPECT_TRUE(props.caps & AA_CAP_KERNELS);
    const auto& compiler = d.extension<aa_compiler_table>(AA_COMPILER_EXTENSION);
    aa_kernel_tuning tuning{};
    tuning.struct_size = sizeof(tuning);
    ok(compiler.kernel_tuning(d.device, &tuning));
    EXPECT_EQ(tuning.group_size, 32);
    EXPECT_EQ(tuning.lanes, 8);
    EXPECT_EQ(tuning.subgroup_size, 8);
    EXPECT_EQ(tuning.items, 32);
    EXPECT_EQ(tuning.local_memory, 16384);
    EXPECT_EQ(tuning.native_f16, 1);
    EXPECT_EQ(tuning.native_f64, 1);
  }).expect_clean();
}

TEST_F(LevelZero, AllocatesEveryKindAndKnowsIt) {
  Child({}, [] {
    OpenedDevice d(1);
    for (const int32_t kind : {AA_MEMORY_DEVICE, AA_MEMORY_PINNED, AA_MEMORY_MANAGED}) {
      void* memory = d.memory(5000, kind);
      aa_memory_info info{};
      info.struct_size = sizeof(info);
      ok(d.table.mem_query(d.instance, static_cast<char*>(memory) + 4999, &info));
      EXPECT_EQ(info.kind, kind);
      EXPECT_EQ(info.base, memory);
      EXPECT_EQ(info.device_index, kind == AA_MEMORY_PINNED ? -1 : 1);
      int64_t free = 0;
      int64_t total = 0;
      ok(d.table.device_memory_info(d.device, &free, &total));
      EXPECT_EQ(total - free, kind == AA_MEMORY_DEVICE ? 5000 : 0);
      d.free(memory, 5000, kind);
    }
  }).expect_clean();
}

TEST_F(LevelZero, RunningOutOfMemoryTellsTheNumbersAndPasses) {
  Child({{"SIM_MEMORY", "1m"}, {"SIM_FAULT", "oom:call=3"}}, [] {
    OpenedDevice d;
    void* held = d.memory(300000);
    void* pointer = nullptr;
    const auto [code, message] = error(d.table.mem_alloc(d.device, AA_MEMORY_DEVICE, 900000, &pointer));
    EXPECT_EQ(code, AA_RESOURCE_EXHAUSTED);
    for (const char* part : {"900000", "300000", "1048576", "Simulated GPU 0"}) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
    EXPECT_EQ(error(d.table.mem_alloc(d.device, AA_MEMORY_DEVICE, 10, &pointer)).first, AA_RESOURCE_EXHAUSTED);
    d.free(d.memory(10), 10);
    d.free(held, 300000);
  }).expect_clean();
}

// ---- order -----------------------------------------------------------------------------------------------------------

// Random copies and fills over a few blocks and streams, with events between the streams; what comes out is what the same
// steps give on the host. The simulator finds accesses that nothing orders.
void random_work(const OpenedDevice& d, unsigned seed) {
  constexpr size_t size = 3000;
  constexpr size_t blocks = 4;
  constexpr size_t streams = 3;
  uint32_t state = seed * 747796405u + 1;
  const auto next = [&](uint32_t bound) {
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % bound;
  };
  std::vector<void*> memory;
  std::vector<std::vector<unsigned char>> expected;
  std::vector<aa_stream*> queue;
  for (size_t i = 0; i < streams; ++i) queue.push_back(d.stream());
  aa_event* event = nullptr;
  ok(d.table.event_create(d.device, AA_EVENT_DEFAULT, &event));
  std::vector<std::vector<unsigned char>> sources;  // host memory lives until the work is complete
  for (size_t i = 0; i < blocks; ++i) {
    memory.push_back(d.memory(size));
    sources.push_back(bytes_of(size, seed * 10 + static_cast<unsigned>(i)));
    expected.push_back(sources.back());
    ok(d.table.copy_async(queue[0], memory[i], sources[i].data(), size, AA_COPY_HOST_TO_DEVICE));
  }
  size_t current = 0;
  for (int step = 0; step < 60; ++step) {
    const size_t other = next(streams);
    if (other != current) {  // the work moves to another stream
      ok(d.table.event_record(event, queue[current]));
      ok(d.table.stream_wait_event(queue[other], event));
      current = other;
    }
    const size_t to = next(blocks);
    const size_t from = (to + 1 + next(blocks - 1)) % blocks;
    const size_t length = 8 * (1 + next(size / 8 - 1));
    if (next(3) == 0) {
      const uint64_t pattern = 0x0102030405060708u * next(100);
      const size_t width = size_t{1} << next(4);
      ok(d.table.fill_async(queue[current], memory[to], &pattern, width, length));
      for (size_t i = 0; i < length; ++i) {
        expected[to][i] = reinterpret_cast<const unsigned char*>(&pattern)[i % width];
      }
    } else {
      ok(d.table.copy_async(queue[current], memory[to], memory[from], length, AA_COPY_DEVICE_TO_DEVICE));
      std::copy_n(expected[from].begin(), length, expected[to].begin());
    }
  }
  for (size_t i = 0; i < blocks; ++i) {
    std::vector<unsigned char> found(size);
    ok(d.table.copy_async(queue[current], found.data(), memory[i], size, AA_COPY_DEVICE_TO_HOST));
    ok(d.table.stream_synchronize(queue[current]));
    EXPECT_EQ(found, expected[i]) << "block " << i << ", seed " << seed;
    d.free(memory[i], size);
  }
  ok(d.table.event_destroy(event));
  for (aa_stream* stream : queue) ok(d.table.stream_destroy(stream));
}

TEST_F(LevelZero, WorkIsInOrderWhateverTheDelays) {
  const char* more = std::getenv("ANYACCEL_TEST_SEEDS");
  const int seeds = more ? std::atoi(more) : 5;
  for (int seed = 1; seed <= seeds; ++seed) {
    Child({{"SIM_SEED", std::to_string(seed)}}, [&] {
      OpenedDevice d;
      random_work(d, static_cast<unsigned>(seed));
    }).expect_clean();
  }
}

TEST_F(LevelZero, DriversThatKeepOrderThemselvesAreAskedTo) {
  // The validation layer of an older loader refuses the flag; barriers take over.
  for (const char* validation : {"0", "1"}) {
    const Child child(
        {{"SIM_LEVEL_ZERO_VERSION", "1.9"}, {"SIM_SEED", "1"}, {"ZE_ENABLE_VALIDATION_LAYER", validation}}, [] {
          OpenedDevice d;
          random_work(d, 77);
        });
    child.expect_clean();
  }
}

// ---- streams and events ----------------------------------------------------------------------------------------------

TEST_F(LevelZero, EventsTellTimeInTheDevicesUnit) {
  Child({}, [] {
    OpenedDevice d;
    aa_stream* stream = d.stream();
    aa_event* events[2];
    for (aa_event*& event : events) ok(d.table.event_create(d.device, AA_EVENT_TIMING, &event));
    const auto begin = std::chrono::steady_clock::now();
    ok(d.table.event_record(events[0], stream));
    const auto pause = [](void*) { usleep(50000); };
    ok(d.table.stream_host_call(stream, pause, nullptr));
    ok(d.table.event_record(events[1], stream));
    ok(d.table.event_synchronize(events[1]));
    const std::chrono::duration<double, std::milli> whole = std::chrono::steady_clock::now() - begin;
    double forward = 0;
    double backward = 0;
    ok(d.table.event_elapsed(events[0], events[1], &forward));
    ok(d.table.event_elapsed(events[1], events[0], &backward));
    // Between the pause and what the host has seen, up to a tick at each end; an error of the unit would be a factor of 19 or more.
    EXPECT_GE(forward, 49.9);
    EXPECT_LT(forward, whole.count() + 0.1);
    EXPECT_DOUBLE_EQ(backward, -forward);
    for (aa_event* event : events) ok(d.table.event_destroy(event));
    ok(d.table.stream_destroy(stream));
  }).expect_clean();
}

TEST(LevelZeroTime, CountersWrapAround) {
  using xpu::level_zero::ticks_between;
  EXPECT_EQ(ticks_between(100, 250, 32, 140), 150);
  EXPECT_EQ(ticks_between(0xffffff00u, 0x100, 32, 500), 512);
  EXPECT_EQ(ticks_between(250, 100, 32, -140), -150);
  // Three times around between the two.
  EXPECT_EQ(ticks_between(100, 250, 32, 3.0 * 4294967296.0), 3.0 * 4294967296.0 + 150);
  EXPECT_EQ(ticks_between(5, 3, 64, 0), -2);
}

TEST_F(LevelZero, AThousandRecordsAndWaitsKeepFewEvents) {
  const Child child({}, [] {
    OpenedDevice d;
    aa_stream* one = d.stream();
    aa_stream* two = d.stream();
    aa_event* event = nullptr;
    ok(d.table.event_create(d.device, AA_EVENT_DEFAULT, &event));
    for (int i = 0; i < 1000; ++i) {
      ok(d.table.event_record(event, one));
      ok(d.table.stream_wait_event(two, event));
      if (i % 50 == 0) ok(d.table.device_synchronize(d.device));
    }
    ok(d.table.device_synchronize(d.device));
    ok(d.table.event_destroy(event));
    ok(d.table.stream_destroy(one));
    ok(d.table.stream_destroy(two));
  });
  child.expect_clean();
  EXPECT_LE(child.report["calls"].value("zeEventCreate", 0), 256);
}

TEST_F(LevelZero, HostCallsRunInOrder) {
  Child({{"SIM_SEED", "3"}}, [] {
    OpenedDevice d;
    aa_stream* stream = d.stream();
    constexpr size_t size = 64;
    void* memory = d.memory(size);
    struct Step {
      std::vector<unsigned char> read = std::vector<unsigned char>(size);
      std::vector<unsigned char> written = std::vector<unsigned char>(size);
    } steps[5];
    const std::vector<unsigned char> zeros(size);
    ok(d.table.copy_async(stream, memory, zeros.data(), size, AA_COPY_HOST_TO_DEVICE));
    for (Step& step : steps) {  // each adds one on the host
      ok(d.table.copy_async(stream, step.read.data(), memory, size, AA_COPY_DEVICE_TO_HOST));
      const auto add_one = [](void* user) {
        auto& mine = *static_cast<Step*>(user);
        for (size_t i = 0; i < size; ++i) mine.written[i] = static_cast<unsigned char>(mine.read[i] + 1);
      };
      ok(d.table.stream_host_call(stream, add_one, &step));
      ok(d.table.copy_async(stream, memory, step.written.data(), size, AA_COPY_HOST_TO_DEVICE));
    }
    ok(d.table.stream_synchronize(stream));
    EXPECT_EQ(steps[4].written, std::vector<unsigned char>(size, 5));
    d.free(memory, size);
    ok(d.table.stream_destroy(stream));
  }).expect_clean();
}

TEST_F(LevelZero, AThreadThatIsRefusedLeavesTheStreamUsable) {
  Child({}, [] {
    OpenedDevice d;
    aa_stream* stream = d.stream();
    int calls = 0;
    const auto count = [](void* user) { ++*static_cast<int*>(user); };
    std::thread([&] {  // whose system calls are filtered
      if (!test::refuse_threads(EAGAIN)) return;
      aa_status* status = d.table.stream_host_call(stream, count, &calls);
      EXPECT_EQ(status_code(status), AA_RESOURCE_EXHAUSTED);
      EXPECT_NE(std::string(status_message(status)).find("pids.max"), std::string::npos) << status_message(status);
      release_status(status);
      calls = 1;
    })
        .join();
    if (calls == 0) return;  // the system takes no filter
    ok(d.table.stream_synchronize(stream));
    ok(d.table.stream_host_call(stream, count, &calls));
    ok(d.table.stream_synchronize(stream));
    EXPECT_EQ(calls, 2);
    ok(d.table.stream_destroy(stream));
  }).expect_clean();
}

// Whichever barrier is refused, also the one of the record that a stream makes now and then so as to keep few: the stream ends.
TEST_F(LevelZero, AHostCallThatFailsLeavesNothingWaiting) {
  for (int barrier = 62; barrier <= 69; ++barrier) {
    SCOPED_TRACE("barrier " + std::to_string(barrier));
    Child({{"SIM_FAULT", "fail:zeCommandListAppendBarrier,call=" + std::to_string(barrier)}}, [] {
      OpenedDevice d;
      aa_stream* stream = d.stream();
      aa_event* event = nullptr;
      ok(d.table.event_create(d.device, AA_EVENT_DEFAULT, &event));
      struct Gate {
        std::atomic<bool> reached{false}, open{false};
      } gate;
      ok(d.table.stream_host_call(
          stream,
          [](void* user) {
            auto& gate = *static_cast<Gate*>(user);
            gate.reached = true;
            gate.reached.notify_all();
            gate.open.wait(false);
          },
          &gate));
      gate.reached.wait(false);
      // What the stream keeps from here on: the call that it waits for, this record, and two records for each further call.
      ok(d.table.event_record(event, stream));
      int failed = 0;
      for (int i = 0; i < 40; ++i) {
        const auto nothing = [](void*) {};
        failed += error(d.table.stream_host_call(stream, nothing, nullptr)).first != AA_OK;
      }
      EXPECT_EQ(failed, 1);
      gate.open = true;
      gate.open.notify_all();
      error(d.table.stream_destroy(stream));
      ok(d.table.event_destroy(event));
    }).expect_clean();
  }
}

// ---- faults ----------------------------------------------------------------------------------------------------------

// Copies until something fails; then every call must say the same, and closing must work.
TEST_F(LevelZero, ALostDeviceSaysSoEveryTime) {
  for (const char* command : {"1", "2", "5", "9"}) {
    const Child child({{"SIM_FAULT", std::string("device_lost:command=") + command}}, [] {
      OpenedDevice d;
      aa_stream* stream = d.stream();
      void* memory = d.memory(100);
      std::vector<unsigned char> data(100);
      std::pair<aa_code, std::string> first{AA_OK, ""};
      for (int i = 0; i < 10 && first.first == AA_OK; ++i) {
        first = error(d.table.copy_async(stream, memory, data.data(), 100, AA_COPY_HOST_TO_DEVICE));
        if (first.first == AA_OK) first = error(d.table.stream_synchronize(stream));
      }
      EXPECT_EQ(first.first, AA_DEVICE_LOST);
      EXPECT_NE(first.second.find("Simulated GPU 0"), std::string::npos) << first.second;
      void* pointer = nullptr;
      EXPECT_EQ(error(d.table.stream_synchronize(stream)), first);
      EXPECT_EQ(error(d.table.copy_async(stream, memory, data.data(), 100, AA_COPY_HOST_TO_DEVICE)), first);
      EXPECT_EQ(error(d.table.device_synchronize(d.device)), first);
      EXPECT_EQ(error(d.table.mem_alloc(d.device, AA_MEMORY_DEVICE, 100, &pointer)), first);
      d.free(memory, 100);
      ok(d.table.stream_destroy(stream));
    });
    child.expect_clean();
  }
}

// The stream takes more while its first command is on its way to fail, and then no record behind that.
TEST_F(LevelZero, AStreamThatTakesNoRecordHasEndedWhenItIsDestroyed) {
  for (const char* command : {"1", "2"}) {
    Child({{"SIM_FAULT", std::string("sticky:command=") + command}, {"SIM_SEED", "1"}, {"SIM_DELAY_US", "20000"}}, [] {
      OpenedDevice d;
      aa_stream* stream = d.stream();
      aa_event* event = nullptr;
      ok(d.table.event_create(d.device, AA_EVENT_DEFAULT, &event));
      constexpr size_t size = 100;
      void* memory = d.memory(size);
      const unsigned char pattern = 7;
      ok(d.table.fill_async(stream, memory, &pattern, 1, size));
      ok(d.table.event_record(event, stream));
      for (int i = 0; i < 8; ++i) ok(d.table.fill_async(stream, memory, &pattern, 1, size));
      EXPECT_EQ(error(d.table.event_synchronize(event)).first, AA_UNKNOWN);
      EXPECT_EQ(error(d.table.stream_destroy(stream)).first, AA_UNKNOWN);
      ok(d.table.event_destroy(event));
      d.free(memory, size);
    }).expect_clean();
  }
}

// The same over a loader of 1.6 or later, whose function waits for a list that refuses everything.
TEST_F(LevelZero, AListOfALaterVersionIsWaitedFor) {
  for (const char* command : {"1", "2"}) {
    Child({{"SIM_LEVEL_ZERO_VERSION", "1.6"},
           {"SIM_FAULT", std::string("sticky:command=") + command},
           {"SIM_SEED", "1"},
           {"SIM_DELAY_US", "20000"}},
          [] {
            xpu::level_zero::Platform platform = xpu::level_zero::discover().platform;
            ASSERT_NE(platform.api, nullptr);
            xpu::level_zero::Api api = *platform.api;
            void* const simulator = dlopen(test::simulated_driver().c_str(), RTLD_NOW | RTLD_NOLOAD);
            ASSERT_NE(simulator, nullptr);
            api.zeCommandListHostSynchronize = reinterpret_cast<decltype(api.zeCommandListHostSynchronize)>(
                dlsym(simulator, "sim_zeCommandListHostSynchronize"));
            ASSERT_NE(api.zeCommandListHostSynchronize, nullptr);
            platform.api = &api;
            xpu::level_zero::Device device(std::make_shared<xpu::level_zero::DeviceState>(
                std::make_shared<const xpu::level_zero::Context>(std::move(platform)), 0));
            aa_alloc wanted{};
            wanted.kind = AA_MEMORY_DEVICE;
            wanted.size = 100;
            aa_allocation memory{};
            device.mem_alloc(wanted, memory);
            const std::unique_ptr<abi::Event> event = device.event_create({});
            std::unique_ptr<abi::Stream> stream = device.stream_create({});
            aa_fill fill{};
            fill.destination = memory.pointer;
            fill.size = wanted.size;
            fill.pattern_size = 1;
            stream->fill(fill);
            event->record(*stream);
            for (int i = 0; i < 8; ++i) stream->fill(fill);
            EXPECT_THROW(event->synchronize(), abi::Failure);
            EXPECT_THROW(stream->close(), abi::Failure);
            stream.reset();
            device.mem_free(memory);
          })
        .expect_clean();
  }
}

TEST_F(LevelZero, AFailedCommandSticksToItsStream) {
  // Delays, so that the event is recorded before the command fails; afterwards that would be refused.
  Child({{"SIM_FAULT", "sticky:command=3"}, {"SIM_SEED", "1"}, {"SIM_DELAY_US", "20000"}}, [] {
    OpenedDevice d;
    aa_stream* stream = d.stream();
    aa_event* event = nullptr;
    ok(d.table.event_create(d.device, AA_EVENT_DEFAULT, &event));
    void* memory = d.memory(100);
    void* untouched = d.memory(100);
    std::vector<unsigned char> data(100);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(error(d.table.copy_async(stream, memory, data.data(), 100, AA_COPY_HOST_TO_DEVICE)).first, AA_OK);
    }
    ok(d.table.event_record(event, stream));
    const auto first = error(d.table.stream_synchronize(stream));
    EXPECT_EQ(first.first, AA_UNKNOWN);
    EXPECT_EQ(error(d.table.stream_synchronize(stream)), first);
    int32_t done = 0;
    EXPECT_EQ(error(d.table.stream_query(stream, &done)), first);
    EXPECT_EQ(error(d.table.event_synchronize(event)).first, first.first);
    EXPECT_EQ(error(d.table.event_query(event, &done)).first, first.first);
    EXPECT_NE(error(d.table.device_synchronize(d.device)).first, AA_OK);
    // Another stream is not concerned.
    aa_stream* other = d.stream();
    ok(d.table.copy_async(other, untouched, data.data(), 100, AA_COPY_HOST_TO_DEVICE));
    ok(d.table.stream_synchronize(other));
    ok(d.table.stream_destroy(other));
    error(d.table.stream_destroy(stream));
    ok(d.table.event_destroy(event));
    d.free(memory, 100);
    d.free(untouched, 100);
  }).expect_clean();
}

// Whichever command fails: who waits for a stream that waited for it is told, or all has been done.
TEST_F(LevelZero, WhoWaitsForAFailedStreamFailsToo) {
  for (int command = 1; command <= 20; ++command) {
    SCOPED_TRACE("command " + std::to_string(command));
    Child({{"SIM_FAULT", "sticky:command=" + std::to_string(command)}, {"SIM_HANG_SECONDS", "10"}}, [] {
      OpenedDevice d;
      constexpr size_t size = 100;
      const unsigned char pattern = 7;
      std::vector<aa_stream*> streams;
      std::vector<aa_event*> events;
      std::vector<void*> memory;
      for (int i = 0; i < 3; ++i) {
        streams.push_back(d.stream());
        events.push_back(nullptr);
        ok(d.table.event_create(d.device, AA_EVENT_DEFAULT, &events[i]));
        memory.push_back(d.memory(size));
      }
      // Each stream fills memory of its own, after the one before it.
      bool all = true;
      for (int i = 0; i < 3 && all; ++i) {
        if (i > 0) all = error(d.table.stream_wait_event(streams[i], events[i - 1])).first == AA_OK;
        all = all && error(d.table.fill_async(streams[i], memory[i], &pattern, 1, size)).first == AA_OK;
        all = all && error(d.table.event_record(events[i], streams[i])).first == AA_OK;
      }
      if (all && error(d.table.stream_synchronize(streams[2])).first == AA_OK) {
        aa_stream* reader = d.stream();
        for (void* filled : memory) {
          std::vector<unsigned char> data(size);
          if (error(d.table.copy_async(reader, data.data(), filled, size, AA_COPY_DEVICE_TO_HOST)).first == AA_OK &&
              error(d.table.stream_synchronize(reader)).first == AA_OK) {
            EXPECT_EQ(data, std::vector<unsigned char>(size, pattern));
          }
        }
        error(d.table.stream_destroy(reader));
      }
      for (int i = 0; i < 3; ++i) {
        error(d.table.stream_destroy(streams[i]));
        ok(d.table.event_destroy(events[i]));
        d.free(memory[i], size);
      }
    }).expect_clean();
  }
}

TEST_F(LevelZero, AMissingFunctionIsOneClearError) {
  Child({{"SIM_FAULT", "hide:zeCommandListAppendMemoryFill"}}, [] {
    OpenedDevice d;
    aa_stream* stream = d.stream();
    void* memory = d.memory(100);
    const char pattern = 1;
    const auto [code, message] = error(d.table.fill_async(stream, memory, &pattern, 1, 100));
    EXPECT_EQ(code, AA_UNIMPLEMENTED);
    EXPECT_NE(message.find("zeCommandListAppendMemoryFill: ZE_RESULT_ERROR_UNSUPPORTED_FEATURE"), std::string::npos)
        << message;
    ok(d.table.stream_synchronize(stream));
    d.free(memory, 100);
    ok(d.table.stream_destroy(stream));
  }).expect_clean();
}

// A little of everything. Whatever fails must say so, and everything that was made can be given back.
void use_everything() {
  const abi::DriverCalls& table = xpu_table();
  int failed = 0;
  const auto tried = [&](aa_status* status) {
    if (!status) return true;
    const auto [code, message] = error(status);
    EXPECT_FALSE(message.empty());
    EXPECT_NE(code, AA_OK);
    ++failed;
    return false;
  };
  aa_initialize_params params{};
  params.struct_size = sizeof(params);
  aa_instance* instance = nullptr;
  aa_device* device = nullptr;
  if (!tried(table.initialize(&params, &instance))) return;
  aa_device_props props{};
  props.struct_size = sizeof(props);
  tried(table.device_props(instance, 0, &props));
  if (tried(table.device_open(instance, 0, &device))) {
    constexpr size_t size = 64;
    const void* found = nullptr;
    ok(table.query_extension(instance, AA_GRAPH_EXTENSION, 1, &found));
    const auto& graphs = *static_cast<const abi::Calls<aa_graph_table>*>(found);
    aa_stream* stream = nullptr;
    aa_event* event = nullptr;
    aa_graph* graph = nullptr;
    void* memory[3] = {};
    unsigned char host[size] = {};
    for (int32_t kind = 0; kind < 3; ++kind) tried(table.mem_alloc(device, kind, size, &memory[kind]));
    if (memory[0] && tried(table.stream_create(device, 0, AA_STREAM_DEFAULT, &stream))) {
      aa_memory_info info{};
      info.struct_size = sizeof(info);
      tried(table.mem_query(instance, memory[0], &info));
      tried(table.copy_async(stream, memory[0], host, size, AA_COPY_HOST_TO_DEVICE));
      ok(table.event_create(device, AA_EVENT_TIMING, &event));
      tried(table.event_record(event, stream));
      tried(table.stream_host_call(
          stream, [](void*) {}, nullptr));
      if (tried(graphs.capture_begin(stream))) {
        const char pattern = 3;
        tried(table.fill_async(stream, memory[0], &pattern, 1, size));
        tried(graphs.capture_end(stream, &graph));
      }
      for (int i = 0; graph && i < 2; ++i) tried(graphs.launch(graph, stream));
      tried(table.copy_async(stream, host, memory[0], size, AA_COPY_DEVICE_TO_HOST));
      tried(table.event_synchronize(event));
      double milliseconds = 0;
      tried(table.event_elapsed(event, event, &milliseconds));
      tried(table.stream_synchronize(stream));
    }
    tried(table.device_synchronize(device));
    if (graph) tried(graphs.destroy(graph));
    if (event) tried(table.event_destroy(event));
    if (stream) tried(table.stream_destroy(stream));
    for (int32_t kind = 0; kind < 3; ++kind) {
      if (memory[kind]) tried(table.mem_free(device, kind, memory[kind], size));
    }
    tried(table.device_close(device));
  }
  tried(table.shutdown(instance));
  std::printf("failed calls: %d\n", failed);
}

TEST_F(LevelZero, EveryCallThatFailsIsTold) {
  std::vector<std::string> functions;
#define ANYACCEL_NAME(name, parameters) functions.emplace_back(#name);
  ANYACCEL_LEVEL_ZERO_FUNCTIONS(ANYACCEL_NAME)
#undef ANYACCEL_NAME
  for (const std::string& function : functions) {
    // Kernels have tests of their own.
    if (function.starts_with("zeModule") || function.starts_with("zeKernel") ||
        function == "zeCommandListAppendLaunchKernel") {
      continue;
    }
    // Objects that could not be destroyed remain, and their parents cannot be destroyed either.
    const bool destroys = function.find("Destroy") != std::string::npos;
    const bool frees = destroys || function == "zeMemFree";
    // A device that does not tell its properties is not offered; a version that is not known is 1.0; an event that cannot be
    // reset is not used again; one that is not signaled is signaled again; a failed look at an event that is not needed any more
    // means later; the work of a graph's queue has told by its fences.
    const bool harmless = destroys || function == "zeDeviceGetProperties" || function == "zeDriverGetApiVersion" ||
                          function == "zeEventHostReset" || function == "zeEventHostSignal" ||
                          function == "zeEventQueryStatus" || function == "zeCommandQueueSynchronize";
    for (const char* call : {"1", "4"}) {
      SCOPED_TRACE(function + ", call " + call);
      // Without delays the host may find everything complete before it has to wait.
      const char* seed = function == "zeEventHostSynchronize" ? "1" : "0";
      const Child child({{"SIM_FAULT", "fail:" + function + ",call=" + call},
                         {"SIM_HANG_SECONDS", "10"},
                         {"SIM_SEED", seed},
                         {"SIM_DELAY_US", "3000"}},
                        use_everything);
      ASSERT_TRUE(child.report.is_object()) << child.output;
      if (!frees) child.expect_clean();
      if (*call == '1' && !harmless) {
        EXPECT_EQ(child.output.find("failed calls: 0"), std::string::npos) << child.output;
      }
    }
  }
}

// ---- the whole -------------------------------------------------------------------------------------------------------

TEST_F(LevelZero, PassesConformance) {
  Child({}, [] {
    const auto report = conformance::run_conformance(&xpu_table(), host_services(), {}, {}, {.in_process = true});
    for (const auto& result : report.cases) {
      // The simulator runs no code but that which was compiled into it.
      if (result.message.find("not among the kernels compiled into the simulator") != std::string::npos) continue;
      if (result.group == "promises" && result.name == "kernels") continue;  // for the same reason nothing was launched
      EXPECT_NE(result.outcome, conformance::Outcome::fail)
          << result.group << "." << result.name << ": " << result.message;
    }
    EXPECT_EQ(live_status_count(), 0);
  }).expect_clean();
}

}  // namespace
}  // namespace anyaccel
