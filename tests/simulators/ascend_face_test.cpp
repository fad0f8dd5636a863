// The simulated Ascend runtime through its raw functions: what a program may do, and which mistakes it reports with
// which of CANN's error codes.
#include <sys/wait.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/simulators/library_process.h"

namespace {

using sim_test::LibraryProcess;

constexpr const char* kRuntime = "ascend/libascendcl.so";

template <typename... Args>
int acl(const char* name, Args... args) {
  return sim_test::call(kRuntime, name, args...);
}
const char* const kNoConfiguration = nullptr;
void* const kDefaultStream = nullptr;

// A started runtime with a current device, and what most programs begin with.
struct Npu {
  explicit Npu(int device = 0) : device_(device) {
    OK(acl("aclInit", kNoConfiguration));
    OK(acl("aclrtSetDevice", device));
  }
  void close() const {
    OK(acl("aclrtResetDevice", device_));
    OK(acl("aclFinalize"));
  }
  static char* allocate(std::size_t bytes) {
    void* pointer = nullptr;
    OK(acl("aclrtMalloc", &pointer, bytes, 0));
    return static_cast<char*>(pointer);
  }
  static char* pinned(std::size_t bytes) {
    void* pointer = nullptr;
    OK(acl("aclrtMallocHost", &pointer, bytes));
    return static_cast<char*>(pointer);
  }
  static void* stream() {
    void* made = nullptr;
    OK(acl("aclrtCreateStreamWithConfig", &made, 0U, 3U));
    return made;
  }
  static void* event(unsigned flags = 1) {
    void* made = nullptr;
    OK(acl("aclrtCreateEventExWithFlag", &made, flags));
    return made;
  }
  static int copy(void* to, const void* from, std::size_t bytes, int kind, void* stream) {
    return acl("aclrtMemcpyAsync", to, bytes, from, bytes, kind, stream);
  }
  static int set(void* to, int value, std::size_t bytes, void* stream) {
    return acl("aclrtMemsetAsync", to, bytes, value, bytes, stream);
  }
  static int wait(void* stream) { return acl("aclrtSynchronizeStream", stream); }
  static void free(void* pointer) { OK(acl("aclrtFree", pointer)); }
  static void free_host(void* pointer) { OK(acl("aclrtFreeHost", pointer)); }
  static void destroy(void* stream) { OK(acl("aclrtDestroyStream", stream)); }
  static void destroy_event(void* event) { OK(acl("aclrtDestroyEvent", event)); }

 private:
  const int device_;
};

// Holds a stream until it is opened: work behind it has surely not run, whatever the timing.
class NpuGate {
 public:
  explicit NpuGate(void* stream) {
    OK(acl(
        "aclrtLaunchHostFunc", stream,
        +[](void* user) {
          while (!static_cast<NpuGate*>(user)->open_) std::this_thread::yield();
        },
        static_cast<void*>(this)));
  }
  void open() { open_ = true; }

 private:
  std::atomic<bool> open_ = false;
};

class AscendFace : public LibraryProcess {
 protected:
  std::string kinds_of(const std::function<void()>& program, const Variables& more = {}) {
    return kinds(run(program, more));
  }
};

// Copies in and out with pinned memory, an event between two streams, a model run twice; everything given back.
void well_behaved_npu() {
  Npu npu;
  const std::size_t bytes = 4096;
  void *stream = npu.stream(), *other = npu.stream();
  void *start = npu.event(9), *end = npu.event(9);
  char *in = npu.pinned(bytes), *out = npu.pinned(bytes), *a = npu.allocate(bytes), *b = npu.allocate(bytes);
  for (std::size_t i = 0; i < bytes; ++i) in[i] = static_cast<char>(i * 7);
  OK(acl("aclrtRecordEvent", start, stream));
  OK(npu.copy(a, in, bytes, 1, stream));
  OK(npu.copy(b, a, bytes, 3, stream));
  OK(acl("aclrtRecordEvent", end, stream));
  OK(acl("aclrtStreamWaitEvent", other, end));
  OK(npu.copy(out, b, bytes, 2, other));
  OK(npu.wait(other));
  CHECK(std::memcmp(in, out, bytes) == 0);
  float milliseconds = -1;
  OK(acl("aclrtSynchronizeEvent", end));
  OK(acl("aclrtEventElapsedTime", &milliseconds, start, end));
  CHECK(milliseconds >= 0);
  int status = -1;
  OK(acl("aclrtQueryEventStatus", end, &status));
  CHECK_EQUAL(1, status);

  void* model = nullptr;
  OK(acl("aclmdlRICaptureBegin", stream, 1));
  OK(npu.set(a, 3, bytes, stream));
  OK(npu.copy(b, a, bytes, 3, stream));
  OK(acl("aclmdlRICaptureGetInfo", stream, &status, static_cast<void**>(nullptr)));
  CHECK_EQUAL(1, status);
  OK(acl("aclmdlRICaptureEnd", stream, &model));
  OK(npu.set(a, 9, bytes, stream));
  OK(npu.copy(out, a, 16, 2, stream));
  OK(npu.wait(stream));
  CHECK_EQUAL(9, out[15]);  // what was captured has not run
  for (int i = 0; i < 2; ++i) OK(acl("aclmdlRIExecuteAsync", model, stream));
  OK(npu.copy(out, b, bytes, 2, stream));
  OK(npu.wait(stream));
  CHECK_EQUAL(3, out[bytes - 1]);
  OK(acl("aclmdlRIDestroy", model));

  for (void* event : {start, end}) npu.destroy_event(event);
  for (void* one : {stream, other}) npu.destroy(one);
  for (void* pointer : {in, out}) npu.free_host(pointer);
  for (void* pointer : {a, b}) npu.free(pointer);
  npu.close();
}

TEST_F(AscendFace, AWellBehavedProgramLeavesACleanReport) {
  for (const char* seed : {"0", "1", "2"}) {
    const auto report = run(well_behaved_npu, {{"SIM_SEED", seed}});
    EXPECT_EQ(kinds(report), "") << "seed " << seed;
    EXPECT_EQ(report.at("leaks"), nlohmann::json::array()) << "seed " << seed;
    EXPECT_EQ(report.at("calls").at("aclrtMemcpyAsync"), 6);
    EXPECT_EQ(report.at("calls").at("aclrtMemcpy"), 0);
  }
}

TEST_F(AscendFace, ItSaysThatItIsASimulator) {
  EXPECT_EQ(kinds_of([] {
              CHECK_EQUAL(1, acl("acl_is_simulator"));
              OK(acl("aclInit", kNoConfiguration));
              const char* name = sim_test::call<const char*>(kRuntime, "aclrtGetSocName");
              CHECK(std::string(name).rfind("Ascend", 0) == 0);
            }),
            "");
}

TEST_F(AscendFace, TheRuntimeIsStartedFirstAndADeviceSet) {
  EXPECT_EQ(kinds_of([] {
              unsigned count = 0;
              int device = -1;
              void* pointer = nullptr;
              CHECK_EQUAL(100001, acl("aclrtGetDeviceCount", &count));
              OK(acl("aclInit", kNoConfiguration));
              CHECK_EQUAL(100002, acl("aclInit", kNoConfiguration));
              OK(acl("aclrtGetDeviceCount", &count));
              CHECK_EQUAL(2, count);
              CHECK_EQUAL(107002, acl("aclrtGetDevice", &device));
              CHECK_EQUAL(107002, acl("aclrtMalloc", &pointer, std::size_t{64}, 0));
              CHECK_EQUAL(107001, acl("aclrtSetDevice", 2));
              OK(acl("aclrtSetDevice", 1));
              OK(acl("aclrtGetDevice", &device));
              CHECK_EQUAL(1, device);
              // Each thread sets its own.
              std::thread([] {
                int mine = -1;
                CHECK_EQUAL(107002, acl("aclrtGetDevice", &mine));
              }).join();
              OK(acl("aclrtResetDevice", 1));
              CHECK_EQUAL(107002, acl("aclrtSynchronizeDevice"));
              CHECK_EQUAL(107001, acl("aclrtResetDevice", 1));
              OK(acl("aclFinalize"));
              CHECK_EQUAL(100037, acl("aclFinalize"));
            }),
            "not-initialized,no-context,bad-argument,no-context,bad-argument");
}

TEST_F(AscendFace, ADeviceIsGivenBackAsOftenAsItWasSet) {
  EXPECT_EQ(kinds_of([] {
              Npu npu;
              OK(acl("aclrtSetDevice", 0));
              OK(acl("aclrtResetDevice", 0));
              OK(acl("aclrtSynchronizeDevice"));
              static_cast<void>(npu.stream());
              static_cast<void>(npu.allocate(64));
              npu.close();
            }),
            "destroyed-in-use");
}

TEST_F(AscendFace, TheListOfVisibleDevicesIsReadToItsFirstBadToken) {
  const std::vector<std::pair<const char*, const char*>> good = {{"1", "1"},     {"0,2,3", "3"}, {"1, 2,3", "1"},
                                                                 {"0,7,1", "1"}, {"2,x", "1"},   {"0,1,2,3,3", "4"}};
  for (const auto& [list, expected] : good) {
    run(
        [] {
          unsigned found = 0;
          OK(acl("aclInit", kNoConfiguration));
          OK(acl("aclrtGetDeviceCount", &found));
          CHECK_EQUAL(std::atoi(std::getenv("EXPECTED")), found);
        },
        {{"ASCEND_RT_VISIBLE_DEVICES", list}, {"SIM_DEVICES", "4"}, {"EXPECTED", expected}});
  }
  for (const char* list : {"", "x", "9", "1,0", "1,1", "0,2,1"}) {
    run(
        [] {
          unsigned found = 7;
          OK(acl("aclInit", kNoConfiguration));
          CHECK_EQUAL(207004, acl("aclrtGetDeviceCount", &found));
          CHECK_EQUAL(0, found);
          CHECK_EQUAL(207004, acl("aclrtSetDevice", 0));
        },
        {{"ASCEND_RT_VISIBLE_DEVICES", list}, {"SIM_DEVICES", "4"}});
  }
}

TEST_F(AscendFace, StreamsAreOfTheCurrentDevice) {
  EXPECT_EQ(kinds_of([] {
              Npu npu(1);
              void* stream = npu.stream();
              OK(acl("aclrtSetDevice", 0));
              CHECK_EQUAL(107003, npu.wait(stream));
              CHECK_EQUAL(107003, acl("aclrtDestroyStream", stream));
              OK(acl("aclrtSetDevice", 1));
              npu.destroy(stream);
              CHECK_EQUAL(107017, npu.wait(stream));
              OK(acl("aclrtResetDevice", 1));
              OK(acl("aclrtResetDevice", 0));
              npu.close();
            }),
            "wrong-owner,wrong-owner,bad-handle");
}

TEST_F(AscendFace, PinnedCopiesRunLaterAndPageableOnesAtOnce) {
  EXPECT_EQ(kinds_of([] {
              Npu npu;
              void* stream = npu.stream();
              char *device = npu.allocate(64), *pinned = npu.pinned(64);
              NpuGate gate(stream);
              pinned[0] = 1;
              OK(npu.copy(device, pinned, 64, 1, stream));
              int status = -1;
              OK(acl("aclrtStreamQuery", stream, &status));
              CHECK_EQUAL(1, status);
              pinned[0] = 2;  // before the copy has run
              gate.open();
              char pageable[64] = {};
              OK(npu.copy(pageable, device, 64, 4, stream));
              CHECK_EQUAL(2, pageable[0]);  // the call has waited for the stream
              OK(acl("aclrtStreamQuery", stream, &status));
              CHECK_EQUAL(0, status);
              npu.free(device);
              npu.free_host(pinned);
              npu.destroy(stream);
              npu.close();
            }),
            "");
}

TEST_F(AscendFace, ArgumentsOfCopies) {
  EXPECT_EQ(kinds_of([] {
              Npu npu;
              void* stream = npu.stream();
              char *device = npu.allocate(64), *pinned = npu.pinned(64), *more = npu.pinned(64);
              const std::size_t n = 64;
              CHECK_EQUAL(107000, acl("aclrtMemcpyAsync", device, std::size_t{63}, pinned, n, 1, stream));
              CHECK_EQUAL(107000, acl("aclrtMemcpy", device, std::size_t{63}, pinned, n, 1));
              CHECK_EQUAL(107000, npu.copy(device, pinned, n, 2, stream));      // the wrong way
              CHECK_EQUAL(107000, npu.copy(device, pinned, n, 9, stream));      // no such kind
              CHECK_EQUAL(107000, npu.copy(device, pinned, 0, 1, stream));      // nothing
              CHECK_EQUAL(107000, npu.copy(device + 8, pinned, n, 1, stream));  // behind its end
              CHECK_EQUAL(107000, npu.copy(nullptr, pinned, n, 1, stream));
              CHECK_EQUAL(207000, npu.copy(more, pinned, n, 0, stream));  // within the host
              OK(acl("aclrtMemcpy", more, n, pinned, n, 0));              // which this one may
              OK(acl("aclrtMemcpy", device, n, pinned, n, 2));            // the kind is reserved here
              npu.free(device);
              CHECK_EQUAL(107000, acl("aclrtFree", device));
              CHECK_EQUAL(107000, acl("aclrtFree", pinned));
              for (char* pointer : {pinned, more}) npu.free_host(pointer);
              npu.destroy(stream);
              npu.close();
            }),
            "bad-argument,bad-argument,bad-argument,bad-argument,bad-argument,out-of-bounds,bad-argument,"
            "double-free,bad-free");
}

TEST_F(AscendFace, RacesAreFound) {
  const char* const race = "race";
  EXPECT_EQ(kinds_of([] {
              Npu npu;
              void *one = npu.stream(), *two = npu.stream();
              char* device = npu.allocate(64);
              OK(npu.set(device, 1, 64, one));
              OK(npu.set(device, 2, 64, two));
              OK(acl("aclrtSynchronizeDevice"));
              for (void* stream : {one, two}) npu.destroy(stream);
              npu.free(device);
              npu.close();
            }),
            race);
  // A copy that waits for no stream.
  EXPECT_EQ(kinds_of([] {
              Npu npu;
              void* stream = npu.stream();
              char* device = npu.allocate(64);
              char host[64];
              OK(npu.set(device, 1, 64, stream));
              OK(acl("aclrtMemcpy", static_cast<void*>(host), std::size_t{64}, device, std::size_t{64}, 2));
              OK(npu.wait(stream));
              npu.destroy(stream);
              npu.free(device);
              npu.close();
            }),
            race);
  // aclrtFree waits for nothing.
  EXPECT_EQ(kinds_of([] {
              Npu npu;
              void* stream = npu.stream();
              char* device = npu.allocate(64);
              OK(npu.set(device, 1, 64, stream));
              std::atomic<bool> ran = false;
              OK(acl(
                  "aclrtLaunchHostFunc", stream, +[](void* user) { *static_cast<std::atomic<bool>*>(user) = true; },
                  static_cast<void*>(&ran)));
              while (!ran) std::this_thread::yield();
              npu.free(device);
              OK(npu.wait(stream));
              npu.destroy(stream);
              npu.close();
            }).rfind("free-while-in-use", 0),
            0U);
}

TEST_F(AscendFace, Events) {
  EXPECT_EQ(kinds_of([] {
              Npu npu;
              void *stream = npu.stream(), *plain = nullptr;
              void *sync = npu.event(1), *timed = npu.event(8);
              int status = -1;
              OK(acl("aclrtQueryEventStatus", sync, &status));  // never recorded
              CHECK_EQUAL(1, status);
              OK(acl("aclrtStreamWaitEvent", stream, sync));
              NpuGate gate(stream);
              OK(acl("aclrtRecordEvent", sync, stream));
              OK(acl("aclrtRecordEvent", sync, stream));  // again
              OK(acl("aclrtQueryEventStatus", sync, &status));
              CHECK_EQUAL(0, status);
              gate.open();
              OK(acl("aclrtSynchronizeEvent", sync));
              CHECK_EQUAL(107000, acl("aclrtStreamWaitEvent", stream, timed));  // made without the flag
              float time = 0;
              OK(acl("aclrtRecordEvent", timed, stream));
              OK(npu.wait(stream));
              CHECK_EQUAL(107006, acl("aclrtEventElapsedTime", &time, timed, sync));
              CHECK_EQUAL(207000, acl("aclrtResetEvent", sync, stream));
              OK(acl("aclrtCreateEventWithFlag", &plain, 1U));
              OK(acl("aclrtRecordEvent", plain, stream));
              OK(npu.wait(stream));
              OK(acl("aclrtResetEvent", plain, stream));
              OK(acl("aclrtRecordEvent", plain, stream));
              OK(acl("aclrtRecordEvent", plain, stream));  // without a reset
              OK(npu.wait(stream));
              for (void* event : {sync, timed, plain}) npu.destroy_event(event);
              CHECK_EQUAL(107017, acl("aclrtRecordEvent", sync, stream));
              npu.destroy(stream);
              npu.close();
            }),
            "event-state,event-state,event-state,event-state,bad-handle");
}

TEST_F(AscendFace, HostFunctionsMayNotCallTheRuntime) {
  EXPECT_EQ(kinds_of([] {
              Npu npu;
              void* stream = npu.stream();
              int result = 0;
              OK(acl(
                  "aclrtLaunchHostFunc", stream,
                  +[](void* user) { *static_cast<int*>(user) = acl("aclrtSynchronizeDevice"); },
                  static_cast<void*>(&result)));
              OK(npu.wait(stream));
              CHECK_EQUAL(507000, result);
              npu.destroy(stream);
              npu.close();
            }),
            "callback");
}

TEST_F(AscendFace, WhatACaptureDoesNotAllow) {
  EXPECT_EQ(kinds_of([] {
              Npu npu;
              void* stream = npu.stream();
              char* device = npu.allocate(64);
              char host[64] = {};
              void *model = nullptr, *event = npu.event();
              int status = -1;
              CHECK_EQUAL(107029, acl("aclmdlRICaptureEnd", stream, &model));
              OK(acl("aclmdlRICaptureBegin", stream, 0));
              CHECK_EQUAL(107027, acl("aclmdlRICaptureBegin", stream, 0));
              CHECK_EQUAL(107027, npu.wait(stream));
              CHECK_EQUAL(107027, acl("aclrtStreamQuery", stream, &status));
              CHECK_EQUAL(107027, acl("aclrtDestroyStream", stream));
              CHECK_EQUAL(107027, acl("aclrtSynchronizeDevice"));
              CHECK_EQUAL(107000, npu.copy(device, host, 64, 1, stream));
              CHECK_EQUAL(107030, acl("aclrtMemset", device, std::size_t{64}, 0, std::size_t{64}));
              OK(acl("aclrtRecordEvent", event, stream));
              CHECK_EQUAL(107028, acl("aclrtSynchronizeEvent", event));
              CHECK_EQUAL(107031, acl("aclrtStreamWaitEvent", kDefaultStream, event));  // ends the capture's validity
              CHECK_EQUAL(507903, npu.set(device, 0, 64, stream));
              CHECK_EQUAL(507903, acl("aclmdlRICaptureEnd", stream, &model));
              OK(npu.wait(stream));
              npu.destroy_event(event);
              npu.free(device);
              npu.destroy(stream);
              npu.close();
            }),
            "capture,capture,capture,capture,capture,capture,capture,capture,capture,capture");
}

TEST_F(AscendFace, CapturesOfSeveralStreams) {
  EXPECT_EQ(kinds_of([] {
              Npu npu;
              void *one = npu.stream(), *two = npu.stream(), *fork = npu.event(), *join = npu.event();
              char *a = npu.allocate(64), *b = npu.allocate(64);
              void* model = nullptr;
              // Joined.
              OK(acl("aclmdlRICaptureBegin", one, 2));
              OK(acl("aclrtRecordEvent", fork, one));
              OK(acl("aclrtStreamWaitEvent", two, fork));
              OK(npu.set(a, 5, 64, one));
              OK(npu.set(b, 6, 64, two));
              OK(acl("aclrtRecordEvent", join, two));
              CHECK_EQUAL(107036, acl("aclmdlRICaptureEnd", two, &model));
              OK(acl("aclrtStreamWaitEvent", one, join));
              OK(npu.copy(a, b, 32, 3, one));
              OK(acl("aclmdlRICaptureEnd", one, &model));
              OK(acl("aclmdlRIExecuteAsync", model, two));
              char host[64] = {};
              OK(npu.copy(host, a, 64, 2, two));
              CHECK_EQUAL(6, host[31]);
              CHECK_EQUAL(5, host[32]);
              OK(acl("aclmdlRIDestroy", model));
              // Not joined.
              OK(acl("aclmdlRICaptureBegin", one, 2));
              OK(acl("aclrtRecordEvent", fork, one));
              OK(acl("aclrtStreamWaitEvent", two, fork));
              OK(npu.set(b, 6, 64, two));
              CHECK_EQUAL(107025, acl("aclmdlRICaptureEnd", one, &model));
              // In another thread.
              OK(acl("aclmdlRICaptureBegin", one, 1));
              std::thread([&] {
                OK(acl("aclrtSetDevice", 0));
                void* none = nullptr;
                CHECK_EQUAL(107038, acl("aclmdlRICaptureEnd", one, &none));
                OK(acl("aclrtResetDevice", 0));
              }).join();
              for (void* event : {fork, join}) npu.destroy_event(event);
              for (void* stream : {one, two}) npu.destroy(stream);
              for (void* pointer : {a, b}) npu.free(pointer);
              npu.close();
            }),
            "capture,capture,capture");
}

TEST_F(AscendFace, DevicesReachEachOtherWhenItIsEnabled) {
  EXPECT_EQ(kinds_of([] {
              Npu npu;
              char* mine = npu.allocate(64);
              OK(acl("aclrtSetDevice", 1));
              char* other = npu.allocate(64);
              int can = 0;
              OK(acl("aclrtDeviceCanAccessPeer", &can, 1, 0));
              CHECK_EQUAL(1, can);
              CHECK_EQUAL(507899, npu.copy(other, mine, 64, 3, kDefaultStream));
              OK(acl("aclrtDeviceEnablePeerAccess", 0, 0U));
              OK(npu.copy(other, mine, 64, 3, kDefaultStream));
              OK(npu.wait(kDefaultStream));
              npu.free(other);
              OK(acl("aclrtResetDevice", 1));
              OK(acl("aclrtSetDevice", 0));
              OK(acl("aclrtResetDevice", 0));
              npu.free(mine);
              npu.close();
            }),
            "no-peer-access");
}

TEST_F(AscendFace, ErrorsHaveATextOnce) {
  EXPECT_EQ(kinds_of(
                [] {
                  Npu npu;
                  const auto recent = [] { return sim_test::call<const char*>(kRuntime, "aclGetRecentErrMsg"); };
                  CHECK(recent() == nullptr);
                  void* pointer = nullptr;
                  CHECK_EQUAL(207001, acl("aclrtMalloc", &pointer, std::size_t{8192}, 0));
                  CHECK(std::string(recent()) == "aclrtMalloc: memory allocation error");
                  CHECK(recent() == nullptr);
                  CHECK_EQUAL(207001, acl("aclrtPeekAtLastError", 0));
                  CHECK_EQUAL(207001, acl("aclrtGetLastError", 0));
                  OK(acl("aclrtGetLastError", 0));
                  npu.close();
                },
                {{"SIM_MEMORY", "4k"}}),
            "");
}

TEST_F(AscendFace, InjectedFaults) {
  EXPECT_EQ(kinds_of([] { CHECK_EQUAL(507000, acl("aclInit", kNoConfiguration)); }, {{"SIM_FAULT", "init"}}), "");
  EXPECT_EQ(kinds_of([] { CHECK_EQUAL(100039, acl("aclInit", kNoConfiguration)); }, {{"SIM_FAULT", "stub"}}), "");
  EXPECT_EQ(kinds_of([] { CHECK(::dlsym(sim_test::library(kRuntime), "aclrtLaunchHostFunc") == nullptr); },
                     {{"SIM_FAULT", "hide:aclrtLaunchHostFunc"}}),
            "");
  EXPECT_EQ(kinds_of(
                [] {
                  Npu npu;
                  void *stream = npu.stream(), *other = npu.stream();
                  char* device = npu.allocate(64);
                  OK(npu.set(device, 1, 64, stream));
                  CHECK_EQUAL(507015, npu.wait(stream));
                  CHECK_EQUAL(507015, npu.set(device, 1, 64, stream));
                  OK(npu.set(device, 1, 64, other));  // the other one is well
                  OK(npu.wait(other));
                  npu.destroy(other);
                },
                {{"SIM_FAULT", "sticky:command=1"}}),
            "");
  const auto lost = run(
      [] {
        Npu npu;
        void* stream = npu.stream();
        char* device = npu.allocate(64);
        OK(npu.set(device, 1, 64, stream));
        CHECK_EQUAL(507010, npu.wait(stream));
        void* pointer = nullptr;
        CHECK_EQUAL(507010, acl("aclrtMalloc", &pointer, std::size_t{64}, 0));
        OK(acl("aclrtSetDevice", 1));
      },
      {{"SIM_FAULT", "device_lost:command=1"}});
  EXPECT_EQ(kinds(lost), "");
  EXPECT_EQ(lost.at("leaks"), nlohmann::json::array());
}

TEST_F(AscendFace, AForkedChildIsRefused) {
  EXPECT_EQ(kinds_of([] {
              Npu npu;
              const pid_t child = ::fork();
              if (child == 0) std::_Exit(acl("aclrtSynchronizeDevice") == 100001 ? 0 : 1);
              int status = 0;
              CHECK(::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
              npu.close();
            }),
            "");
}

TEST_F(AscendFace, WhatIsLeftAtTheEndIsALeak) {
  const auto report = run([] {
    Npu npu;
    static_cast<void>(npu.stream());
    static_cast<void>(npu.allocate(64));
  });
  EXPECT_EQ(kinds(report), "");
  EXPECT_EQ(report.at("leaks").size(), 2U);
}

}  // namespace
