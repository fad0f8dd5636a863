// The simulated Tecorigin runtime through its raw functions: its own numbers, and what it does otherwise than the other
// faces. What they share is tested with the Ascend runtime.
#include <cstring>

#include "tests/simulators/library_process.h"

namespace {

using sim_test::LibraryProcess;

template <typename... Args>
int sdaa(const char* name, Args... args) {
  return sim_test::call("tecorigin/libsdaart.so", name, args...);
}

char* sdaa_memory(std::size_t bytes) {
  void* pointer = nullptr;
  OK(sdaa("sdaaMalloc", &pointer, bytes));
  return static_cast<char*>(pointer);
}
void* sdaa_stream() {
  void* stream = nullptr;
  OK(sdaa("sdaaStreamCreateWithFlags", &stream, 1U));
  return stream;
}
int sdaa_copy(void* to, const void* from, std::size_t bytes, int kind, void* stream) {
  return sdaa("sdaaMemcpyAsync", to, from, bytes, kind, stream);
}

class TecoriginFace : public LibraryProcess {
 protected:
  std::string kinds_of(const std::function<void()>& program, const Variables& more = {}) {
    return kinds(run(program, more));
  }
};

void well_behaved_sdaa() {
  const std::size_t bytes = 4096;
  int count = 0;
  OK(sdaa("sdaaGetDeviceCount", &count));
  CHECK_EQUAL(2, count);
  OK(sdaa("sdaaSetDevice", 1));
  void *stream = sdaa_stream(), *other = sdaa_stream(), *start = nullptr, *end = nullptr, *host = nullptr;
  OK(sdaa("sdaaEventCreateWithFlags", &start, 0U));
  OK(sdaa("sdaaEventCreateWithFlags", &end, 0U));
  OK(sdaa("sdaaMallocHost", &host, bytes));
  char *a = sdaa_memory(bytes), *b = sdaa_memory(bytes);
  auto* values = static_cast<char*>(host);
  for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<char>(i * 7);
  OK(sdaa("sdaaEventRecord", start, stream));
  OK(sdaa_copy(a, values, bytes, 1, stream));
  OK(sdaa_copy(b, a, bytes, 3, stream));
  OK(sdaa("sdaaEventRecord", end, stream));
  OK(sdaa("sdaaStreamWaitEvent", other, end, 0U));
  std::vector<char> out(bytes);
  OK(sdaa_copy(out.data(), b, bytes, 2, other));  // pageable: has ended
  CHECK(std::memcmp(values, out.data(), bytes) == 0);
  OK(sdaa("sdaaEventQuery", end));
  float milliseconds = -1;
  OK(sdaa("sdaaEventElapsedTime", &milliseconds, start, end));
  CHECK(milliseconds >= 0);
  OK(sdaa("sdaaStreamSynchronize", stream));
  for (void* event : {start, end}) OK(sdaa("sdaaEventDestroy", event));
  for (void* one : {stream, other}) OK(sdaa("sdaaStreamDestroy", one));
  OK(sdaa("sdaaFreeHost", host));
  for (char* pointer : {a, b}) OK(sdaa("sdaaFree", static_cast<void*>(pointer)));
}

TEST_F(TecoriginFace, AWellBehavedProgramLeavesACleanReport) {
  for (const char* seed : {"0", "1"}) {
    const auto report = run(well_behaved_sdaa, {{"SIM_SEED", seed}});
    EXPECT_EQ(kinds(report), "") << "seed " << seed;
    EXPECT_EQ(report.at("leaks"), nlohmann::json::array()) << "seed " << seed;
    EXPECT_EQ(report.at("calls").at("sdaaMemcpyAsync"), 3);
  }
}

TEST_F(TecoriginFace, ItHasItsOwnNumbers) {
  EXPECT_EQ(kinds_of([] {
              CHECK_EQUAL(1, sdaa("sdaa_is_simulator"));
              CHECK_EQUAL(101, sdaa("sdaaSetDevice", 5));
              void* stream = sdaa_stream();
              char *memory = sdaa_memory(64), host[64] = {};
              CHECK_EQUAL(21, sdaa_copy(memory, host, 64, 2, stream));
              CHECK_EQUAL(21, sdaa_copy(memory, host, 64, 5, stream));
              CHECK_EQUAL(1, sdaa_copy(memory, host, 65, 1, stream));
              OK(sdaa_copy(memory, host, 64, 4, stream));
              CHECK_EQUAL(1, sdaa("sdaaGetLastError"));
              CHECK(std::string(sim_test::call<const char*>("tecorigin/libsdaart.so", "sdaaGetErrorName", 600)) ==
                    "sdaaErrorNotReady");
              OK(sdaa("sdaaFree", static_cast<void*>(memory)));
              OK(sdaa("sdaaStreamDestroy", stream));
              CHECK_EQUAL(400, sdaa("sdaaStreamSynchronize", stream));
            }),
            "bad-argument,bad-argument,bad-argument,out-of-bounds,bad-handle");
}

TEST_F(TecoriginFace, DevicesDoNotReachEachOther) {
  EXPECT_EQ(kinds_of([] {
              char* mine = sdaa_memory(64);
              OK(sdaa("sdaaSetDevice", 1));
              char* other = sdaa_memory(64);
              CHECK_EQUAL(217, sdaa_copy(other, mine, 64, 3, nullptr));
              for (char* pointer : {mine, other}) OK(sdaa("sdaaFree", static_cast<void*>(pointer)));
            }),
            "no-peer-access");
  EXPECT_EQ(kinds_of([] {
              CHECK(::dlsym(sim_test::library("tecorigin/libsdaart.so"), "sdaaStreamBeginCapture") == nullptr);
              std::vector<unsigned char> properties(16384);
              OK(sdaa("sdaaGetDeviceProperties", static_cast<void*>(properties.data()), 1));
              CHECK(std::string(reinterpret_cast<char*>(properties.data())) == "SDAA simulated 1");
            }),
            "");
}

TEST_F(TecoriginFace, AFailureBreaksTheDevice) {
  const auto report = run(
      [] {
        void *stream = sdaa_stream(), *other = sdaa_stream();
        char* memory = sdaa_memory(64);
        OK(sdaa("sdaaMemsetAsync", static_cast<void*>(memory), 0, std::size_t{64}, stream));
        CHECK_EQUAL(719, sdaa("sdaaStreamSynchronize", stream));
        CHECK_EQUAL(719, sdaa("sdaaStreamSynchronize", other));
        CHECK_EQUAL(719, sdaa("sdaaDeviceSynchronize"));
        OK(sdaa("sdaaFree", static_cast<void*>(memory)));
      },
      {{"SIM_FAULT", "launch_failed:command=1"}});
  EXPECT_EQ(kinds(report), "");
  EXPECT_EQ(report.at("leaks"), nlohmann::json::array());
}

TEST_F(TecoriginFace, VisibleDevices) {
  EXPECT_EQ(kinds_of(
                [] {
                  int count = 0;
                  OK(sdaa("sdaaGetDeviceCount", &count));
                  CHECK_EQUAL(2, count);
                },
                {{"SDAA_VISIBLE_DEVICES", "3,1,x,0"}, {"SIM_DEVICES", "4"}}),
            "");
}

}  // namespace
