// The simulated Cambricon runtime through its raw functions: its own numbers, directions and orders of arguments, and
// what it does otherwise than the other faces. What they share is tested with the Ascend runtime.
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/simulators/library_process.h"

namespace {

using sim_test::LibraryProcess;

template <typename... Args>
int cnrt(const char* name, Args... args) {
  return sim_test::call("neuware/libcnrt.so", name, args...);
}
void* const kDefaultQueue = nullptr;

char* mlu_memory(std::size_t bytes) {
  void* pointer = nullptr;
  OK(cnrt("cnrtMalloc", &pointer, bytes));
  return static_cast<char*>(pointer);
}
char* mlu_pinned(std::size_t bytes) {
  void* pointer = nullptr;
  OK(cnrt("cnrtHostMalloc", &pointer, bytes));
  return static_cast<char*>(pointer);
}
void* mlu_queue() {
  void* queue = nullptr;
  OK(cnrt("cnrtQueueCreate", &queue));
  return queue;
}
int mlu_copy(void* to, void* from, std::size_t bytes, int direction, void* queue) {
  return cnrt("cnrtMemcpyAsync", to, from, bytes, queue, direction);
}
int mlu_set(char* to, int value, std::size_t bytes, void* queue) {
  return cnrt("cnrtMemsetAsync", static_cast<void*>(to), value, bytes, queue);
}

class NeuwareFace : public LibraryProcess {
 protected:
  std::string kinds_of(const std::function<void()>& program, const Variables& more = {}) {
    return kinds(run(program, more));
  }
};

void well_behaved_mlu() {
  const std::size_t bytes = 4096;
  unsigned count = 0;
  OK(cnrt("cnrtGetDeviceCount", &count));
  CHECK_EQUAL(2, count);
  OK(cnrt("cnrtSetDevice", 1));
  void *queue = mlu_queue(), *other = mlu_queue(), *start = nullptr, *end = nullptr;
  OK(cnrt("cnrtNotifierCreateWithFlags", &start, 0U));
  OK(cnrt("cnrtNotifierCreate", &end));
  char *in = mlu_pinned(bytes), *out = mlu_pinned(bytes), *a = mlu_memory(bytes), *b = mlu_memory(bytes);
  for (std::size_t i = 0; i < bytes; ++i) in[i] = static_cast<char>(i * 7);
  OK(cnrt("cnrtPlaceNotifier", start, queue));
  OK(mlu_copy(a, in, bytes, 0, queue));
  OK(mlu_copy(b, a, bytes, 1, queue));
  OK(cnrt("cnrtPlaceNotifier", end, queue));
  OK(cnrt("cnrtQueueWaitNotifier", end, other, 0U));
  OK(mlu_copy(out, b, bytes, 2, other));
  OK(cnrt("cnrtQueueSync", other));
  OK(cnrt("cnrtQueueQuery", other));
  CHECK(std::memcmp(in, out, bytes) == 0);
  float milliseconds = -1, microseconds = -1;
  OK(cnrt("cnrtWaitNotifier", end));
  OK(cnrt("cnrtNotifierElapsedTime", start, end, &milliseconds));
  OK(cnrt("cnrtNotifierDuration", start, end, &microseconds));
  CHECK(milliseconds >= 0 && microseconds == 1000 * milliseconds);

  void *topo = nullptr, *entity = nullptr;
  int status = -1;
  OK(cnrt("cnrtQueueBeginCapture", queue, 2));
  OK(mlu_set(a, 3, bytes, queue));
  OK(mlu_copy(b, a, bytes, 5, queue));
  OK(cnrt("cnrtQueueIsCapturing", queue, &status));
  CHECK_EQUAL(1, status);
  OK(cnrt("cnrtQueueEndCapture", queue, &topo));
  void** const no_node = nullptr;
  char* const no_log = nullptr;
  OK(cnrt("cnrtTaskTopoInstantiate", &entity, topo, no_node, no_log, std::size_t{0}));
  OK(cnrt("cnrtTaskTopoDestroy", topo));
  for (int i = 0; i < 2; ++i) OK(cnrt("cnrtTaskTopoEntityInvoke", entity, queue));
  OK(mlu_copy(out, b, bytes, 2, queue));
  OK(cnrt("cnrtQueueSync", queue));
  CHECK_EQUAL(3, out[bytes - 1]);
  OK(cnrt("cnrtTaskTopoEntityDestroy", entity));

  for (void* notifier : {start, end}) OK(cnrt("cnrtNotifierDestroy", notifier));
  for (void* one : {queue, other}) OK(cnrt("cnrtQueueDestroy", one));
  for (char* pointer : {in, out}) OK(cnrt("cnrtFreeHost", static_cast<void*>(pointer)));
  for (char* pointer : {a, b}) OK(cnrt("cnrtFree", static_cast<void*>(pointer)));
}

TEST_F(NeuwareFace, AWellBehavedProgramLeavesACleanReport) {
  for (const char* seed : {"0", "1"}) {
    const auto report = run(well_behaved_mlu, {{"SIM_SEED", seed}});
    EXPECT_EQ(kinds(report), "") << "seed " << seed;
    EXPECT_EQ(report.at("leaks"), nlohmann::json::array()) << "seed " << seed;
    EXPECT_EQ(report.at("calls").at("cnrtMemcpyAsync"), 5);
  }
}

TEST_F(NeuwareFace, ThreadsBeginWithDevice0AndQueuesAreOfTheCurrentOne) {
  EXPECT_EQ(kinds_of([] {
              CHECK_EQUAL(1, cnrt("cnrt_is_simulator"));
              int device = -1;
              OK(cnrt("cnrtGetDevice", &device));
              CHECK_EQUAL(0, device);
              CHECK_EQUAL(100005, cnrt("cnrtSetDevice", 2));
              CHECK_EQUAL(100005, cnrt("cnrtGetLastError"));
              OK(cnrt("cnrtGetLastError"));
              void* queue = mlu_queue();
              OK(cnrt("cnrtSetDevice", 1));
              CHECK_EQUAL(632006, cnrt("cnrtQueueSync", queue));
              OK(cnrt("cnrtSetDevice", 0));
              OK(cnrt("cnrtQueueDestroy", queue));
              CHECK_EQUAL(100014, cnrt("cnrtQueueSync", queue));
              OK(cnrt("cnrtSetDevice", 1));
              OK(cnrt("cnrtDeviceReset"));
              OK(cnrt("cnrtGetDevice", &device));
              CHECK_EQUAL(1, device);
            }),
            "bad-argument,wrong-owner,bad-handle");
}

TEST_F(NeuwareFace, DefaultQueuesAreOfEachThread) {
  EXPECT_EQ(kinds_of([] {
              char* memory = mlu_memory(64);
              OK(mlu_set(memory, 1, 64, kDefaultQueue));
              std::thread([&] {
                OK(mlu_set(memory, 2, 64, kDefaultQueue));
                OK(cnrt("cnrtQueueSync", kDefaultQueue));
              }).join();
              OK(cnrt("cnrtQueueSync", kDefaultQueue));
              OK(cnrt("cnrtFree", static_cast<void*>(memory)));
            }),
            "race");
}

TEST_F(NeuwareFace, CopiesHaveADirectionAndRunLater) {
  EXPECT_EQ(kinds_of([] {
              void* queue = mlu_queue();
              char *memory = mlu_memory(64), pageable[64] = {1};
              char* pinned = mlu_pinned(64);
              CHECK_EQUAL(632013, mlu_copy(memory, pinned, 64, 2, queue));
              CHECK_EQUAL(632013, mlu_copy(memory, pinned, 64, 6, queue));
              CHECK_EQUAL(632013, mlu_copy(pageable, pinned, 64, 3, queue));  // within the host, on a queue
              OK(cnrt("cnrtMemcpy", static_cast<void*>(pageable), static_cast<void*>(pinned), std::size_t{64}, 3));
              // Pageable memory is read when the copy runs.
              std::atomic<bool> open = false;
              const auto wait = +[](void* user) {
                while (!*static_cast<std::atomic<bool>*>(user)) std::this_thread::yield();
              };
              OK(cnrt("cnrtInvokeHostFunc", queue, wait, static_cast<void*>(&open)));
              OK(mlu_copy(memory, pageable, 64, 0, queue));
              CHECK_EQUAL(1, cnrt("cnrtQueueQuery", queue));
              pageable[0] = 2;
              open = true;
              OK(mlu_copy(pinned, memory, 64, 2, queue));
              OK(cnrt("cnrtQueueSync", queue));
              CHECK_EQUAL(2, pinned[0]);
              OK(cnrt("cnrtFree", static_cast<void*>(memory)));
              OK(cnrt("cnrtFreeHost", static_cast<void*>(pinned)));
              OK(cnrt("cnrtQueueDestroy", queue));
            }),
            "bad-argument,bad-argument");
}

TEST_F(NeuwareFace, CopiesBetweenDevicesSayThatTheyAre) {
  EXPECT_EQ(kinds_of([] {
              char* mine = mlu_memory(64);
              OK(cnrt("cnrtSetDevice", 1));
              char* other = mlu_memory(64);
              unsigned can = 0;
              OK(cnrt("cnrtGetPeerAccessibility", &can, 0, 1));
              CHECK_EQUAL(1, can);
              CHECK_EQUAL(632013, mlu_copy(other, mine, 64, 1, kDefaultQueue));
              OK(mlu_copy(other, mine, 64, 4, kDefaultQueue));
              void *to = other, *from = mine;
              OK(cnrt("cnrtMemcpyPeerAsync", to, 1, from, 0, std::size_t{64}, kDefaultQueue));
              CHECK_EQUAL(100006, cnrt("cnrtMemcpyPeer", to, 0, from, 1, std::size_t{64}));
              OK(cnrt("cnrtQueueSync", kDefaultQueue));
              OK(cnrt("cnrtFree", to));
              OK(cnrt("cnrtFree", from));
            }),
            "bad-argument,bad-pointer");
}

TEST_F(NeuwareFace, WhatACaptureDoesNotAllowMakesItInvalid) {
  EXPECT_EQ(kinds_of([] {
              void *queue = mlu_queue(), *topo = nullptr;
              char* memory = mlu_memory(64);
              CHECK_EQUAL(100015, cnrt("cnrtQueueEndCapture", queue, &topo));
              OK(cnrt("cnrtQueueBeginCapture", queue, 1));
              CHECK_EQUAL(100360, cnrt("cnrtQueueSync", queue));
              CHECK_EQUAL(100361, mlu_set(memory, 0, 64, queue));
              CHECK_EQUAL(100361, cnrt("cnrtQueueEndCapture", queue, &topo));
              CHECK(topo == nullptr);
              OK(cnrt("cnrtFree", static_cast<void*>(memory)));
              OK(cnrt("cnrtQueueDestroy", queue));
            }),
            "capture,capture");
}

TEST_F(NeuwareFace, PropertiesAreLargerThanTheirName) {
  EXPECT_EQ(kinds_of([] {
              std::vector<unsigned char> properties(16384, 0x11);
              OK(cnrt("cnrtGetDeviceProperties", static_cast<void*>(properties.data()), 0));
              CHECK(std::string(reinterpret_cast<char*>(properties.data())) == "MLU simulated 0");
              CHECK(properties[2047] == 0xA5 && properties[2048] == 0x11);
              int clusters = 0, cores = 0;
              OK(cnrt("cnrtDeviceGetAttribute", &clusters, 0x205, 0));
              OK(cnrt("cnrtDeviceGetAttribute", &cores, 0x206, 0));
              CHECK(clusters > 0 && cores > 0);
              CHECK_EQUAL(632009, cnrt("cnrtDeviceGetAttribute", &cores, 0x999, 0));
            }),
            "");
}

// Releases before 6.10 say "busy" of what has not ended.
TEST_F(NeuwareFace, OldReleasesAreBusy) {
  EXPECT_EQ(kinds_of(
                [] {
                  std::atomic<bool> open = false;
                  const auto wait = +[](void* user) {
                    while (!*static_cast<std::atomic<bool>*>(user)) std::this_thread::yield();
                  };
                  OK(cnrt("cnrtInvokeHostFunc", kDefaultQueue, wait, static_cast<void*>(&open)));
                  CHECK_EQUAL(632014, cnrt("cnrtQueueQuery", kDefaultQueue));
                  open = true;
                  OK(cnrt("cnrtSyncDevice"));
                  int major = 0, minor = 0, patch = 0;
                  OK(cnrt("cnrtGetLibVersion", &major, &minor, &patch));
                  CHECK(major == 6 && minor == 0 && patch == 2);
                },
                {{"SIM_CNRT_VERSION", "60002"}}),
            "");
}

TEST_F(NeuwareFace, VisibleDevicesAndFaults) {
  const std::vector<std::pair<const char*, int>> lists = {{"1", 1}, {"3,0", 2}, {"0,9", 1}, {"", 0}, {"1,1", 0}};
  for (const auto& [list, expected] : lists) {
    const std::string number = std::to_string(expected);
    EXPECT_EQ(kinds_of(
                  [] {
                    unsigned count = 9;
                    const int wanted = std::atoi(std::getenv("EXPECTED"));
                    CHECK_EQUAL(wanted == 0 ? 100004 : 0, cnrt("cnrtGetDeviceCount", &count));
                    CHECK_EQUAL(wanted, count);
                  },
                  {{"MLU_VISIBLE_DEVICES", list}, {"SIM_DEVICES", "4"}, {"EXPECTED", number.c_str()}}),
              "");
  }
  EXPECT_EQ(kinds_of(
                [] {
                  void *queue = mlu_queue(), *pointer = nullptr;
                  char* memory = mlu_memory(64);
                  OK(mlu_set(memory, 0, 64, queue));
                  CHECK_EQUAL(100132, cnrt("cnrtQueueSync", queue));
                  CHECK_EQUAL(100132, mlu_set(memory, 0, 64, queue));
                  CHECK_EQUAL(100100, cnrt("cnrtMalloc", &pointer, std::size_t{1} << 40));
                },
                {{"SIM_FAULT", "sticky:command=1"}}),
            "");
}

}  // namespace
