// The simulated Synapse library through its raw functions: one device a process, addresses that are numbers, host memory
// that must be mapped, and the order of its arguments. What faces share is tested with the Ascend runtime.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <thread>

#include "tests/simulators/library_process.h"

namespace {

using sim_test::LibraryProcess;

template <typename... Args>
int syn(const char* name, Args... args) {
  return sim_test::call("habana/libSynapse.so", name, args...);
}

constexpr std::uint32_t kHpu = 0;  // the id of the device that a process has

void begin_hpu(std::uint32_t module = 0) {
  OK(syn("synInitialize"));
  std::uint32_t id = 9;
  OK(syn("synDeviceAcquireByModuleId", &id, module));
  CHECK_EQUAL(kHpu, id);
}
void end_hpu() {
  OK(syn("synDeviceRelease", kHpu));
  OK(syn("synDestroy"));
}
std::uint64_t hpu_memory(std::uint64_t bytes) {
  std::uint64_t address = 0;
  OK(syn("synDeviceMalloc", kHpu, bytes, std::uint64_t{0}, 0U, &address));
  return address;
}
void hpu_free(std::uint64_t address) { OK(syn("synDeviceFree", kHpu, address, 0U)); }
char* hpu_pinned(std::uint64_t bytes) {
  void* pointer = nullptr;
  OK(syn("synHostMalloc", kHpu, bytes, 0U, &pointer));
  return static_cast<char*>(pointer);
}
void hpu_free(char* pointer) { OK(syn("synHostFree", kHpu, static_cast<const void*>(pointer), 0U)); }
void* hpu_stream() {
  void* stream = nullptr;
  OK(syn("synStreamCreateGeneric", &stream, kHpu, 0U));
  return stream;
}
void* hpu_event(std::uint32_t flags) {
  void* event = nullptr;
  OK(syn("synEventCreate", &event, kHpu, flags));
  return event;
}
std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }
int to_hpu(void* stream, const void* from, std::uint64_t bytes, std::uint64_t to) {
  return syn("synMemCopyAsync", stream, address_of(from), bytes, to, 0);
}
int from_hpu(void* stream, std::uint64_t from, std::uint64_t bytes, void* to) {
  return syn("synMemCopyAsync", stream, from, bytes, address_of(to), 1);
}

class HabanaFace : public LibraryProcess {
 protected:
  std::string kinds_of(const std::function<void()>& program, const Variables& more = {}) {
    return kinds(run(program, more));
  }
};

void well_behaved_hpu() {
  const std::uint64_t bytes = 4096;
  begin_hpu(1);
  void *stream = hpu_stream(), *other = hpu_stream(), *start = hpu_event(1), *end = hpu_event(1);
  const std::uint64_t a = hpu_memory(bytes), b = hpu_memory(bytes);
  char *in = hpu_pinned(bytes), *out = hpu_pinned(bytes);
  for (std::size_t i = 0; i < bytes; ++i) in[i] = static_cast<char>(i * 7);
  OK(syn("synEventRecord", start, stream));
  OK(to_hpu(stream, in, bytes, a));
  OK(syn("synMemCopyAsync", stream, a, bytes, b, 2));
  OK(syn("synEventRecord", end, stream));
  OK(syn("synStreamWaitEvent", other, end, 0U));
  OK(from_hpu(other, b, bytes, out));
  // Another thread has the device without a call.
  std::thread([&] { OK(syn("synStreamSynchronize", other)); }).join();
  OK(syn("synStreamQuery", other));
  OK(syn("synEventQuery", end));
  OK(syn("synEventSynchronize", start));
  CHECK(std::memcmp(in, out, bytes) == 0);
  std::uint64_t nanoseconds = 0;
  OK(syn("synEventElapsedTime", &nanoseconds, start, end));
  CHECK(nanoseconds > 0 && nanoseconds < 60'000'000'000);
  for (void* event : {start, end}) OK(syn("synEventDestroy", event));
  OK(syn("synDeviceSynchronize", kHpu));
  for (void* one : {stream, other}) OK(syn("synStreamDestroy", one));
  for (char* pointer : {in, out}) hpu_free(pointer);
  for (const std::uint64_t address : {a, b}) hpu_free(address);
  end_hpu();
}

TEST_F(HabanaFace, AWellBehavedProgramLeavesACleanReport) {
  for (const char* seed : {"0", "1"}) {
    const auto report = run(well_behaved_hpu, {{"SIM_SEED", seed}});
    EXPECT_EQ(kinds(report), "") << "seed " << seed;
    EXPECT_EQ(report.at("leaks"), nlohmann::json::array()) << "seed " << seed;
    EXPECT_EQ(report.at("calls").at("synMemCopyAsync"), 3);
  }
}

TEST_F(HabanaFace, NothingWorksBeforeTheLibraryIsInitializedAndADeviceAcquired) {
  EXPECT_EQ(kinds_of([] {
              CHECK_EQUAL(1, syn("syn_is_simulator"));
              std::uint32_t count = 0, id = 9;
              void* stream = nullptr;
              CHECK_EQUAL(28, syn("synDeviceGetCount", &count));
              OK(syn("synInitialize"));
              CHECK_EQUAL(29, syn("synInitialize"));
              CHECK_EQUAL(26, syn("synStreamCreateGeneric", &stream, kHpu, 0U));
              CHECK_EQUAL(8, syn("synDeviceRelease", kHpu));
              CHECK_EQUAL(8, syn("synDeviceAcquireByModuleId", &id, 2U));
              CHECK_EQUAL(0xFFFFFFFF, id);
              CHECK_EQUAL(8, syn("synDeviceAcquireByDeviceType", &id, 5));
              OK(syn("synDeviceAcquireByDeviceType", &id, 4));
              CHECK_EQUAL(20, syn("synDeviceAcquireByModuleId", &id, 1U));
              CHECK_EQUAL(1, syn("synStreamCreateGeneric", &stream, 1U, 0U));
              OK(syn("synDestroy"));
              CHECK_EQUAL(28, syn("synDeviceGetCount", &count));
            }),
            "not-initialized,bad-argument,no-context,bad-argument,bad-argument,bad-argument,not-initialized");
}

TEST_F(HabanaFace, TheDeviceSaysWhatItIs) {
  EXPECT_EQ(kinds_of(
                [] {
                  OK(syn("synInitialize"));
                  std::uint32_t count = 0, size = 2, modules[8] = {}, id = 9;
                  OK(syn("synDeviceGetCount", &count));
                  CHECK_EQUAL(3, count);
                  OK(syn("synDeviceGetCountByDeviceType", &count, 5));
                  CHECK_EQUAL(0, count);
                  CHECK_EQUAL(1, syn("synDeviceGetModuleIDs", static_cast<std::uint32_t*>(modules), &size));
                  size = 8;
                  OK(syn("synDeviceGetModuleIDs", static_cast<std::uint32_t*>(modules), &size));
                  CHECK(size == 3 && modules[0] == 0 && modules[2] == 2);
                  OK(syn("synDeviceAcquireByModuleId", &id, 2U));
                  char text[56];
                  OK(syn("synDriverGetVersion", static_cast<char*>(text), 56));
                  CHECK(std::strlen(text) > 0);
                  OK(syn("synDeviceGetName", static_cast<char*>(text), 4, kHpu));
                  CHECK(std::string(text) == "GAU");
                  OK(syn("synStatusGetBriefDescription", 22, static_cast<char*>(text), sizeof text));
                  CHECK(std::strstr(text, "busy") != nullptr);
                  CHECK_EQUAL(26, syn("synStatusGetBriefDescription", 99, static_cast<char*>(text), sizeof text));
                  std::uint64_t free = 0, total = 0, values[2] = {};
                  const std::uint64_t memory = hpu_memory(1 << 20);
                  OK(syn("synDeviceGetMemoryInfo", kHpu, &free, &total));
                  CHECK(total == 64 << 20 && free == total - (1 << 20));
                  const int which[] = {7, 4}, unknown = 99;
                  OK(syn("synDeviceGetAttribute", static_cast<std::uint64_t*>(values), static_cast<const int*>(which),
                         2U, kHpu));
                  CHECK(values[0] == 4 && values[1] == free);
                  OK(syn("synDeviceGetAttributeByModuleId", static_cast<std::uint64_t*>(values),
                         static_cast<const int*>(which), 2U, 0U));
                  CHECK(values[1] == total);
                  CHECK_EQUAL(1, syn("synDeviceGetAttribute", static_cast<std::uint64_t*>(values), &unknown, 1U, kHpu));
                  struct {
                    std::uint64_t sram_base, memory_base;
                    std::uint32_t sram;
                    std::uint64_t memory, tpc;
                    std::uint8_t has_memory;
                    std::uint32_t device, file;
                    int type;
                    std::uint8_t index;
                    std::uint64_t reserved;
                  } info;
                  OK(syn("synDeviceGetInfoV2", kHpu, static_cast<void*>(&info)));
                  CHECK(info.memory == total && info.type == 4 && info.has_memory == 1 && info.index == 2);
                  hpu_free(memory);
                  end_hpu();
                },
                {{"SIM_DEVICES", "3"}, {"SIM_MEMORY", "64m"}}),
            "bad-argument,bad-argument");
}

TEST_F(HabanaFace, AModuleBelongsToOneProcess) {
  const std::string machine = folder_.path();
  EXPECT_EQ(kinds_of(
                [] {
                  int to_child[2], to_parent[2];
                  CHECK(::pipe(to_child) == 0 && ::pipe(to_parent) == 0);
                  char byte = 0;
                  const pid_t child = ::fork();
                  CHECK(child >= 0);
                  if (child == 0) {
                    ::unsetenv("SIM_REPORT");
                    begin_hpu(0);
                    CHECK(::write(to_parent[1], "x", 1) == 1);
                    ::close(to_child[1]);
                    CHECK(::read(to_child[0], &byte, 1) == 1);
                    std::_Exit(0);  // without a release
                  }
                  ::close(to_parent[1]);
                  CHECK(::read(to_parent[0], &byte, 1) == 1);
                  OK(syn("synInitialize"));
                  std::uint32_t id = 9;
                  CHECK_EQUAL(8, syn("synDeviceAcquireByModuleId", &id, 0U));
                  OK(syn("synDeviceAcquireByDeviceType", &id, 4));  // the other one
                  OK(syn("synDeviceRelease", kHpu));
                  CHECK(::write(to_child[1], "x", 1) == 1);
                  int status = -1;
                  CHECK(::waitpid(child, &status, 0) == child && status == 0);
                  OK(syn("synDeviceAcquireByModuleId", &id, 0U));
                  end_hpu();
                },
                {{"SIM_HABANA_MACHINE", machine.c_str()}}),
            "");
}

TEST_F(HabanaFace, CopiesReachMappedHostMemoryOnly) {
  EXPECT_EQ(kinds_of([] {
              begin_hpu();
              void* stream = hpu_stream();
              const std::uint64_t memory = hpu_memory(64);
              std::vector<char> host(64, 5);
              CHECK_EQUAL(34, to_hpu(stream, host.data(), 64, memory));
              const auto* data = static_cast<const void*>(host.data());
              OK(syn("synHostMap", kHpu, std::uint64_t{64}, data));
              OK(syn("synHostMap", kHpu, std::uint64_t{32}, data));  // is mapped already
              OK(to_hpu(stream, host.data(), 64, memory));
              OK(syn("synStreamSynchronize", stream));
              CHECK_EQUAL(1, from_hpu(stream, address_of(host.data()), 64, host.data()));  // in the wrong direction
              CHECK_EQUAL(1, syn("synMemCopyAsync", stream, address_of(data), std::uint64_t{64}, memory, 7));
              CHECK_EQUAL(1, syn("synMemCopyAsync", static_cast<void*>(nullptr), memory, std::uint64_t{64}, memory, 2));
              OK(to_hpu(stream, nullptr, 0, 0));  // nothing to copy
              OK(syn("synHostUnmap", kHpu, data));
              OK(syn("synHostUnmap", kHpu, data));  // nothing to unmap
              CHECK_EQUAL(34, from_hpu(stream, memory, 64, host.data()));
              hpu_free(memory);
              hpu_free(std::uint64_t{0});
              OK(syn("synStreamDestroy", stream));
              end_hpu();
            }),
            "bad-pointer,bad-argument,bad-argument,bad-handle,bad-pointer");
}

TEST_F(HabanaFace, TheHostCannotTouchDeviceMemory) {
  EXPECT_DEATH(
      {
        begin_hpu();
        *reinterpret_cast<volatile char*>(hpu_memory(64)) = 1;
      },
      "");
}

TEST_F(HabanaFace, FillsHaveElements) {
  EXPECT_EQ(kinds_of([] {
              begin_hpu();
              void* stream = hpu_stream();
              const std::uint64_t memory = hpu_memory(64);
              char* out = hpu_pinned(64);
              OK(syn("synMemsetD8Async", memory, static_cast<unsigned char>(0x11), std::size_t{64}, stream));
              OK(syn("synMemsetD16Async", memory + 16, static_cast<std::uint16_t>(0x2233), std::size_t{4}, stream));
              OK(syn("synMemsetD32Async", memory + 32, 0x44556677U, std::size_t{4}, stream));
              CHECK_EQUAL(1, syn("synMemsetD32Async", memory + 2, 0U, std::size_t{4}, stream));
              CHECK_EQUAL(1, syn("synMemsetD32Async", memory, 0U, std::size_t{17}, stream));
              OK(from_hpu(stream, memory, 64, out));
              OK(syn("synStreamSynchronize", stream));
              CHECK(out[0] == 0x11 && out[15] == 0x11 && out[16] == 0x33 && out[17] == 0x22 && out[24] == 0x11);
              CHECK(out[32] == 0x77 && out[35] == 0x44 && out[47] == 0x44 && out[48] == 0x11);
              hpu_free(memory);
              hpu_free(out);
              OK(syn("synStreamDestroy", stream));
              end_hpu();
            }),
            "bad-argument,out-of-bounds");
}

TEST_F(HabanaFace, EventsAreRecordedBeforeTheyAreAskedFor) {
  EXPECT_EQ(kinds_of([] {
              begin_hpu();
              void *stream = hpu_stream(), *timed = hpu_event(1), *plain = hpu_event(0);
              CHECK_EQUAL(6, syn("synEventQuery", plain));
              OK(syn("synStreamWaitEvent", stream, plain, 0U));  // an empty set of work
              std::uint64_t nanoseconds = 0;
              CHECK_EQUAL(6, syn("synEventElapsedTime", &nanoseconds, timed, timed));
              OK(syn("synEventRecord", plain, stream));
              OK(syn("synEventRecord", timed, stream));
              OK(syn("synStreamSynchronize", stream));
              CHECK_EQUAL(1, syn("synEventElapsedTime", &nanoseconds, plain, timed));
              CHECK_EQUAL(33, syn("synEventQuery", stream));
              CHECK_EQUAL(1, syn("synStreamQuery", plain));
              for (void* event : {timed, plain}) OK(syn("synEventDestroy", event));
              CHECK_EQUAL(33, syn("synEventRecord", plain, stream));
              OK(syn("synStreamDestroy", stream));
              end_hpu();
            }),
            "event-state,event-state,event-state,bad-handle,bad-handle,bad-handle");
}

TEST_F(HabanaFace, MistakesOfOrderAndOwnershipAreFound) {
  EXPECT_EQ(kinds_of([] {
              begin_hpu();
              void *stream = hpu_stream(), *other = hpu_stream();
              const std::uint64_t memory = hpu_memory(64);
              OK(syn("synMemsetD8Async", memory, static_cast<unsigned char>(1), std::size_t{64}, stream));
              OK(syn("synMemsetD8Async", memory, static_cast<unsigned char>(2), std::size_t{64}, other));
              OK(syn("synDeviceSynchronize", kHpu));
              hpu_free(memory);
              CHECK_EQUAL(1, syn("synDeviceFree", kHpu, memory, 0U));
              OK(syn("synStreamDestroy", stream));
              OK(syn("synDeviceRelease", kHpu));  // with a stream left
            }),
            "race,double-free,destroyed-in-use");
}

struct HcclId {
  char bytes[1024];
  std::size_t length;
};

// `body` on each of the ranks, which are processes, since each has one device. What children find ends this one.
void on_hpus(int ranks, const std::function<void(void* comm, void* stream, int rank)>& body) {
  HcclId id{};
  OK(syn("hcclGetUniqueId", &id));
  CHECK_EQUAL(1024, id.length);
  std::vector<pid_t> children;
  const auto run_rank = [&](int rank) {
    begin_hpu(static_cast<std::uint32_t>(rank));
    void *comm = nullptr, *stream = hpu_stream();
    OK(syn("hcclCommInitRank", &comm, ranks, id, rank));
    int count = 0, mine = -1;
    OK(syn("hcclCommCount", comm, &count));
    OK(syn("hcclCommUserRank", comm, &mine));
    CHECK(count == ranks && mine == rank);
    body(comm, stream, rank);
    OK(syn("hcclCommDestroy", comm));
    OK(syn("synStreamDestroy", stream));
    end_hpu();
  };
  for (int rank = 1; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    CHECK(child >= 0);
    if (child == 0) {
      run_rank(rank);
      std::_Exit(0);
    }
    children.push_back(child);
  }
  run_rank(0);
  for (const pid_t child : children) {
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child && status == 0);
  }
}

void hpu_collectives(void* comm, void* stream, int rank) {
  constexpr std::size_t n = 70001;  // more than one piece of the rendezvous
  const auto value = [](int who, std::size_t i) { return static_cast<float>(who + 1) * static_cast<float>(i % 97); };
  float *own = reinterpret_cast<float*>(hpu_pinned(8 * n)), *back = reinterpret_cast<float*>(hpu_pinned(8 * n));
  for (std::size_t i = 0; i < 2 * n; ++i) own[i] = value(rank, i);
  const std::uint64_t memory = hpu_memory(8 * n), results = hpu_memory(8 * n);
  const auto* x = reinterpret_cast<const void*>(memory);
  auto* y = reinterpret_cast<void*>(results);
  OK(to_hpu(stream, own, 8 * n, memory));
  const auto check = [&](std::size_t count, const std::function<float(std::size_t)>& expected) {
    OK(from_hpu(stream, results, count * 4, back));
    OK(syn("synStreamSynchronize", stream));
    for (std::size_t i = 0; i < count; ++i) CHECK(back[i] == expected(i));
  };
  const int fp32 = 7, sum = 0, min = 2, max = 3, average = 4, other = 1 - rank;
  OK(syn("hcclAllReduce", x, y, n, fp32, sum, comm, stream));
  check(n, [](std::size_t i) { return 3 * static_cast<float>(i % 97); });
  OK(syn("hcclAllReduce", x, y, n, fp32, min, comm, stream));
  check(n, [&](std::size_t i) { return value(0, i); });
  OK(syn("hcclAllReduce", x, y, n, fp32, max, comm, stream));
  check(n, [&](std::size_t i) { return value(1, i); });
  OK(syn("hcclReduce", x, y, n, fp32, average, 1, comm, stream));
  check(n, [&](std::size_t i) { return (rank == 1 ? 1.5F : 2.0F) * value(0, i); });
  OK(syn("hcclAllGather", x, y, n, fp32, comm, stream));
  check(2 * n, [&](std::size_t i) { return value(static_cast<int>(i / n), i % n); });
  OK(syn("hcclReduceScatter", x, y, n, fp32, sum, comm, stream));
  check(n, [&](std::size_t i) { return 3 * static_cast<float>((static_cast<std::size_t>(rank) * n + i) % 97); });
  OK(syn("hcclBroadcast", x, y, n, fp32, 1, comm, stream));
  check(n, [&](std::size_t i) { return value(1, i); });
  OK(syn("hcclGroupStart"));
  OK(syn("hcclSend", x, n, fp32, other, comm, stream));
  OK(syn("hcclRecv", y, n, fp32, other, comm, stream));
  OK(syn("hcclGroupEnd"));
  check(n, [&](std::size_t i) { return value(other, i); });
  int error = -1;
  OK(syn("hcclCommGetAsyncError", comm, &error));
  CHECK_EQUAL(0, error);
  for (const std::uint64_t address : {memory, results}) hpu_free(address);
  for (float* pointer : {own, back}) hpu_free(reinterpret_cast<char*>(pointer));
}

TEST_F(HabanaFace, CollectivesOfProcesses) {
  const std::string machine = folder_.path();
  for (const char* seed : {"0", "3"}) {
    const auto report = run([] { on_hpus(2, hpu_collectives); },
                            {{"SIM_SEED", seed}, {"SIM_STRICT", "abort"}, {"SIM_HABANA_MACHINE", machine.c_str()}});
    EXPECT_EQ(kinds(report), "");
    ASSERT_TRUE(report.is_object());
    EXPECT_EQ(report.at("leaks"), nlohmann::json::array());
  }
}

TEST_F(HabanaFace, CollectivesThatDifferAndIdsThatAreNotWholeAreReported) {
  EXPECT_EQ(kinds_of([] {
              on_hpus(2, [](void* comm, void* stream, int rank) {
                const std::uint64_t memory = hpu_memory(64), results = hpu_memory(64);
                OK(syn("hcclAllReduce", reinterpret_cast<const void*>(memory), reinterpret_cast<void*>(results),
                       std::size_t{8}, 7, rank == 0 ? 2 : 3, comm, stream));
                OK(syn("synStreamSynchronize", stream));
                int error = 0;
                OK(syn("hcclCommGetAsyncError", comm, &error));
                CHECK_EQUAL(8, error);
                for (const std::uint64_t address : {memory, results}) hpu_free(address);
              });
            }),
            "collective-mismatch");
  EXPECT_EQ(kinds_of([] {
              begin_hpu();
              HcclId id{};
              OK(syn("hcclGetUniqueId", &id));
              ++id.bytes[1023];
              void* comm = nullptr;
              CHECK_EQUAL(7, syn("hcclCommInitRank", &comm, 1, id, 0));
              OK(syn("hcclGetUniqueId", &id));
              id.length = 0;
              CHECK_EQUAL(7, syn("hcclCommInitRank", &comm, 1, id, 0));
              CHECK_EQUAL(8, syn("hcclGroupEnd"));
              end_hpu();
            }),
            "bad-argument,bad-argument,bad-argument");
}

struct HpuGeometry {
  std::uint64_t sizes[25];
  std::uint32_t dimensions;
};
struct HpuLaunchTensor {
  const char* name;
  std::uint64_t address;
  int type;
  std::uint64_t sizes[25];
  std::uint64_t id;
};

// relu(a * b + c): a product of 2x3 and 3x4 in fp32, and 4 numbers for every row. `c` and `out` are persistent, and the product
// and the sum are in the workspace.
struct HpuGraph {
  HpuGraph() {
    OK(syn("synGraphCreate", &graph, 4));
    a = tensor("a", {3, 2}, true);
    b = tensor("b", {4, 3}, true);
    c = tensor("c", {4}, true);
    product = tensor("product", {4, 2}, false);
    sum = tensor("sum", {4, 2}, false);
    out = tensor("out", {4, 2}, true);
  }
  ~HpuGraph() {
    for (void* one : tensors) OK(syn("synTensorDestroy", one));
    for (void* one : sections) OK(syn("synSectionDestroy", one));
    OK(syn("synGraphDestroy", graph));
  }
  void* tensor(const char* name, std::vector<std::uint64_t> sizes, bool persistent) {
    void *made = nullptr, *section = nullptr;
    OK(syn("synTensorHandleCreate", &made, graph, 0, name));
    HpuGeometry geometry{};
    std::copy(sizes.begin(), sizes.end(), geometry.sizes);
    geometry.dimensions = static_cast<std::uint32_t>(sizes.size());
    OK(syn("synTensorSetGeometryExt", made, static_cast<const HpuGeometry*>(&geometry), 1));
    OK(syn("synTensorSetDeviceDataType", made, 4));
    tensors.push_back(made);
    if (!persistent) return made;
    OK(syn("synSectionCreate", &section, std::uint64_t{0}, graph));
    OK(syn("synSectionSetPersistent", section, true));
    OK(syn("synTensorAssignToSection", made, section, std::uint64_t{0}));
    sections.push_back(section);
    return made;
  }
  int node(const char* guid, std::vector<void*> in, void* result, const void* params = nullptr, unsigned bytes = 0) {
    const char** const no_layouts = nullptr;
    return syn("synNodeCreate", graph, static_cast<void* const*>(in.data()), static_cast<void* const*>(&result),
               static_cast<std::uint32_t>(in.size()), 1U, params, bytes, guid, guid, no_layouts, no_layouts);
  }
  int compile(void** recipe) {
    return syn("synGraphCompile", recipe, graph, "recipe", static_cast<const char*>(nullptr));
  }
  void *graph = nullptr, *a, *b, *c, *product, *sum, *out;
  std::vector<void*> tensors, sections;
};

TEST_F(HabanaFace, RecipesCompute) {
  EXPECT_EQ(
      kinds_of([] {
        begin_hpu();
        void *stream = hpu_stream(), *recipe = nullptr;
        {
          HpuGraph g;
          const bool transposes[2] = {false, false};
          // In another order than that of their results.
          OK(g.node("relu_fwd_f32", {g.sum}, g.out));
          OK(g.node("add_fwd_f32", {g.product, g.c}, g.sum));
          OK(g.node("gemm", {g.a, g.b}, g.product, transposes, 2));
          OK(g.compile(&recipe));
        }
        const char* names[] = {"a", "b", "c", "out"};
        std::uint64_t ids[4] = {}, workspace_bytes = 0;
        OK(syn("synTensorRetrieveIds", recipe, static_cast<const char**>(names), static_cast<std::uint64_t*>(ids), 4U));
        OK(syn("synWorkspaceGetSize", &workspace_bytes, recipe));
        CHECK_EQUAL(256, workspace_bytes);
        const std::uint64_t memory = hpu_memory(4096), workspace = hpu_memory(workspace_bytes);
        auto* host = reinterpret_cast<float*>(hpu_pinned(4096));
        for (int i = 0; i < 256; ++i) host[i] = 0;
        for (int i = 0; i < 6; ++i) host[i] = static_cast<float>(i + 1);            // a
        for (int i = 0; i < 12; ++i) host[64 + i] = static_cast<float>(i % 5) - 2;  // b
        for (int i = 0; i < 4; ++i) host[128 + i] = static_cast<float>(i) - 1;      // c
        OK(to_hpu(stream, host, 1024, memory));
        HpuLaunchTensor list[4] = {};
        for (std::size_t i = 0; i < 4; ++i) {
          list[i].name = names[i];
          list[i].address = memory + 256 * i;
          list[i].id = ids[i];
        }
        const auto launch = [&](std::uint32_t count, std::uint64_t space) {
          return syn("synLaunchExt", stream, static_cast<const HpuLaunchTensor*>(list), count, space, recipe, 0U);
        };
        OK(launch(4, workspace));
        OK(from_hpu(stream, memory + 768, 32, host + 192));
        OK(syn("synStreamSynchronize", stream));
        for (int row = 0; row < 2; ++row) {
          for (int column = 0; column < 4; ++column) {
            float expected = host[128 + column];
            for (int k = 0; k < 3; ++k) expected += host[row * 3 + k] * host[64 + k * 4 + column];
            CHECK(host[192 + row * 4 + column] == (expected > 0 ? expected : 0));
          }
        }
        CHECK_EQUAL(38, launch(3, workspace));  // without the result
        CHECK_EQUAL(38, launch(4, 0));
        list[0].name = "b";
        CHECK_EQUAL(1, launch(4, workspace));
        list[0].name = "a";
        list[0].id = 0;
        CHECK_EQUAL(1, launch(4, workspace));
        OK(syn("synRecipeDestroy", recipe));
        for (const std::uint64_t address : {memory, workspace}) hpu_free(address);
        hpu_free(reinterpret_cast<char*>(host));
        OK(syn("synStreamDestroy", stream));
        end_hpu();
      }),
      "bad-argument,bad-argument,bad-argument,bad-argument");
}

// Rows of a cache of 3 rows of 2 numbers written in place, and a row read from what it was before: the reader comes first although it was
// made last.
int write_in_place(std::vector<std::int32_t> rows, std::vector<float> values, bool one_place,
                   std::vector<float>* results) {
  begin_hpu();
  void *stream = hpu_stream(), *recipe = nullptr;
  const std::uint64_t count = rows.size();
  {
    HpuGraph g;
    void* const cache = g.tensor("cache", {2, 3}, true);
    void* const section = g.sections.back();
    void* const after = g.tensor("after", {2, 3}, false);
    OK(syn("synTensorAssignToSection", after, section, std::uint64_t{0}));
    void* const index = g.tensor("index", {count}, true);
    OK(syn("synTensorSetDeviceDataType", index, 16));
    void* const given = g.tensor("given", {2, count}, true);
    void* const old = g.tensor("old", {2, count}, true);
    const std::int32_t copy_axis = 0, gather_axis = 1;
    OK(g.node("index_copy_fwd_f32", {cache, index, given}, after, &copy_axis, sizeof copy_axis));
    CHECK_EQUAL(26, g.node("index_copy_fwd_bf16", {cache, index, given}, after, &copy_axis, sizeof copy_axis));
    CHECK_EQUAL(26, g.node("gather_fwd_f32", {cache, index}, old, &copy_axis, sizeof copy_axis));  // the other axis
    CHECK_EQUAL(26, g.node("gather_fwd_f32", {cache, index}, old));                                // no parameters
    OK(g.node("gather_fwd_f32", {cache, index}, old, &gather_axis, sizeof gather_axis));
    OK(g.compile(&recipe));
  }
  const char* names[] = {"cache", "after", "index", "given", "old",
                         "a",     "b",     "c",     "out"};  // the last four are in no node
  std::uint64_t ids[9] = {};
  OK(syn("synTensorRetrieveIds", recipe, static_cast<const char**>(names), static_cast<std::uint64_t*>(ids), 9U));
  const std::uint64_t memory = hpu_memory(4096);
  char* const host = hpu_pinned(4096);
  const float before[] = {1, 2, 3, 4, 5, 6};
  std::memcpy(host, before, sizeof before);
  std::memcpy(host + 1024, rows.data(), count * 4);
  std::memcpy(host + 2048, values.data(), count * 8);
  OK(to_hpu(stream, host, 4096, memory));
  HpuLaunchTensor list[9] = {};
  const std::uint64_t places[] = {0, one_place ? 0U : 512U, 1024, 2048, 3072, 3584, 3584, 3584, 3584};
  for (int i = 0; i < 9; ++i) {
    list[i].name = names[i];
    list[i].id = ids[i];
    list[i].address = memory + places[i];
  }
  const int status =
      syn("synLaunchExt", stream, static_cast<const HpuLaunchTensor*>(list), 9U, memory + 3840, recipe, 0U);
  OK(from_hpu(stream, memory, 4096, host));
  OK(syn("synStreamSynchronize", stream));
  results->assign(6 + 2 * count, 0);
  std::memcpy(results->data(), host, 24);
  std::memcpy(results->data() + 6, host + 3072, count * 8);
  OK(syn("synStreamDestroy", stream));
  OK(syn("synRecipeDestroy", recipe));
  hpu_free(memory);
  hpu_free(host);
  end_hpu();
  return status;
}

TEST_F(HabanaFace, RowsAreWrittenInPlaceAfterTheOldOnesWereRead) {
  const auto kinds = [this](std::vector<std::int32_t> rows, std::vector<float> values, bool one_place, int status,
                            std::vector<float> expected) {
    return kinds_of([rows, values, one_place, status, expected] {
      std::vector<float> results;
      CHECK_EQUAL(status, write_in_place(rows, values, one_place, &results));
      if (!expected.empty()) CHECK(results == expected);
    });
  };
  const std::string refused = "bad-argument,bad-argument,bad-argument";  // nodes
  EXPECT_EQ(kinds({2, 0}, {10, 20, 30, 40}, true, 0, {30, 40, 3, 4, 10, 20, 5, 6, 1, 2}), refused);
  // Two tensors of one section in two places; rows that are not there; two rows for one place.
  EXPECT_EQ(kinds({2, 0}, {10, 20, 30, 40}, false, 38, {}), refused + ",bad-argument");
  EXPECT_EQ(kinds({3}, {10, 20}, true, 0, {}), refused + ",bad-index,bad-index");
  EXPECT_EQ(kinds({1, 1}, {10, 20, 10, 20}, true, 0, {1, 2, 10, 20, 5, 6, 3, 4, 3, 4}), refused);
  EXPECT_EQ(kinds({1, 1}, {10, 20, 30, 40}, true, 0, {}), refused + ",bad-index");
}

TEST_F(HabanaFace, GraphsThatCannotBeCompiledAreRefused) {
  EXPECT_EQ(kinds_of([] {
              OK(syn("synInitialize"));
              {
                HpuGraph g;
                void *recipe = nullptr, *again = nullptr;
                CHECK_EQUAL(21, syn("synTensorHandleCreate", &again, g.graph, 0, "a"));
                CHECK_EQUAL(26, g.node("gemm", {g.b, g.a}, g.product));    // sizes
                CHECK_EQUAL(26, g.node("add_fwd_bf16", {g.a, g.a}, g.a));  // of another type
                CHECK_EQUAL(26, g.node("unheard_of_f32", {g.a}, g.a));
                OK(g.node("relu_fwd_f32", {g.sum}, g.out));
                CHECK_EQUAL(26, g.compile(&recipe));  // nothing writes the sum
              }
              OK(syn("synDestroy"));
            }),
            "bad-argument,bad-argument,bad-argument,bad-argument,bad-argument");
}

TEST_F(HabanaFace, Faults) {
  EXPECT_EQ(kinds_of(
                [] {
                  begin_hpu();
                  void* stream = hpu_stream();
                  const std::uint64_t memory = hpu_memory(64);
                  OK(syn("synMemsetD8Async", memory, static_cast<unsigned char>(1), std::size_t{64}, stream));
                  CHECK_EQUAL(17, syn("synStreamSynchronize", stream));
                  std::uint64_t free = 0, total = 0;
                  CHECK_EQUAL(17, syn("synDeviceGetMemoryInfo", kHpu, &free, &total));
                  OK(syn("synStreamDestroy", stream));
                  hpu_free(memory);
                  end_hpu();
                },
                {{"SIM_FAULT", "device_lost:command=1"}}),
            "");
  EXPECT_EQ(kinds_of(
                [] {
                  begin_hpu();
                  std::uint64_t address = 1;
                  CHECK_EQUAL(4, syn("synDeviceMalloc", kHpu, std::uint64_t{64}, std::uint64_t{0}, 0U, &address));
                  CHECK_EQUAL(0, address);
                  end_hpu();
                },
                {{"SIM_FAULT", "oom:call=1"}}),
            "");
  EXPECT_EQ(kinds_of(
                [] {
                  OK(syn("synInitialize"));
                  std::uint32_t id = 0;
                  CHECK_EQUAL(8, syn("synDeviceAcquireByModuleId", &id, 0U));
                },
                {{"SIM_FAULT", "busy"}}),
            "");
}

}  // namespace
