// The simulated libraries of collectives of Ascend, Cambricon and Tecorigin through their raw functions: results on ranks
// that are threads, what each has of its own, and what is reported. What all of them share is tested with NCCL.
#include <array>
#include <numeric>
#include <thread>

#include "tests/simulators/library_process.h"

namespace {

using sim_test::LibraryProcess;

// One vendor's functions of a runtime and a library, with the numbers that the test needs.
struct CollectiveFace {
  const char* runtime;
  const char* library;
  std::size_t id_bytes;
  int fp32, int32;
  std::function<void(int device)> open;
  std::function<void()> close;
  std::function<void*()> stream;
  std::function<void(void*stream)> wait, destroy_stream;
  std::function<char*(std::size_t bytes)> allocate;
  std::function<void(char* memory)> free;
  std::function<void(char* to, const void* from, std::size_t bytes)> upload;
  std::function<void(void* to, const char* from, std::size_t bytes)> download;
  std::function<void(char* id)> make_id;
  std::function<int(void** comm, int ranks, const char* id, int rank, int device)> join;
  // All ranks in one call, where a process has only one for them; null: each joins by itself.
  std::function<int(void** comms, int ranks, const char* id)> join_all;
  const char *all_reduce, *reduce, *all_gather, *reduce_scatter, *destroy;
  std::function<int(const char* send, char* receive, std::size_t count, int type, int root, void* comm, void* stream)>
      broadcast;
  // Both at once, which neither order of two calls would be.
  std::function<int(const char* send, char* receive, std::size_t count, int type, int to, int from, void* comm,
                    void* stream)>
      exchange;

  template <typename... Args>
  int rt(const char* name, Args... args) const {
    return sim_test::call(runtime, name, args...);
  }
  template <typename... Args>
  int cc(const char* name, Args... args) const {
    return sim_test::call(library, name, args...);
  }
};

struct TcclId {
  char bytes[128];
};
struct HcclItem {
  int type;
  void* buffer;
  std::uint64_t count;
  int data_type;
  std::uint32_t remote;
};

CollectiveFace hccl_face() {
  CollectiveFace f;
  f.runtime = "ascend/libascendcl.so";
  f.library = "ascend/libhccl.so";
  f.id_bytes = 4108;
  f.fp32 = 4;
  f.int32 = 2;
  f.open = [f](int device) {
    const int result = f.rt("aclInit", static_cast<const char*>(nullptr));
    CHECK(result == 0 || result == 100002);
    OK(f.rt("aclrtSetDevice", device));
  };
  f.close = [f] {
    int device = -1;
    OK(f.rt("aclrtGetDevice", &device));
    OK(f.rt("aclrtResetDevice", device));
  };
  f.stream = [f] {
    void* made = nullptr;
    OK(f.rt("aclrtCreateStream", &made));
    return made;
  };
  f.wait = [f](void* stream) { OK(f.rt("aclrtSynchronizeStream", stream)); };
  f.destroy_stream = [f](void* stream) { OK(f.rt("aclrtDestroyStream", stream)); };
  f.allocate = [f](std::size_t bytes) {
    void* pointer = nullptr;
    OK(f.rt("aclrtMalloc", &pointer, bytes, 0));
    return static_cast<char*>(pointer);
  };
  f.free = [f](char* memory) { OK(f.rt("aclrtFree", static_cast<void*>(memory))); };
  f.upload = [f](char* to, const void* from, std::size_t bytes) { OK(f.rt("aclrtMemcpy", to, bytes, from, bytes, 1)); };
  f.download = [f](void* to, const char* from, std::size_t bytes) {
    OK(f.rt("aclrtMemcpy", to, bytes, from, bytes, 2));
  };
  f.make_id = [f](char* id) { OK(f.cc("HcclGetRootInfo", id)); };
  f.join = [f](void** comm, int ranks, const char* id, int rank, int) {
    return f.cc("HcclCommInitRootInfo", static_cast<unsigned>(ranks), id, static_cast<unsigned>(rank), comm);
  };
  f.all_reduce = "HcclAllReduce";
  f.reduce = "HcclReduce";
  f.all_gather = "HcclAllGather";
  f.reduce_scatter = "HcclReduceScatter";
  f.destroy = "HcclCommDestroy";
  // In place: the root's values go there first.
  f.broadcast = [f](const char* send, char* receive, std::size_t count, int type, int root, void* comm, void* stream) {
    OK(f.rt("aclrtMemcpyAsync", receive, count * 4, send, count * 4, 3, stream));
    return f.cc("HcclBroadcast", receive, count, type, root, comm, stream);
  };
  f.exchange = [f](const char* send, char* receive, std::size_t count, int type, int to, int from, void* comm,
                   void* stream) {
    HcclItem items[] = {{0, const_cast<char*>(send), count, type, static_cast<unsigned>(to)},
                        {1, receive, count, type, static_cast<unsigned>(from)}};
    return f.cc("HcclBatchSendRecv", static_cast<HcclItem*>(items), 2U, comm, stream);
  };
  return f;
}

CollectiveFace cncl_face() {
  CollectiveFace f;
  f.runtime = "neuware/libcnrt.so";
  f.library = "neuware/libcncl.so";
  f.id_bytes = 136;
  f.fp32 = 0x12;
  f.int32 = 0x22;
  f.open = [f](int device) { OK(f.rt("cnrtSetDevice", device)); };
  f.close = [] {};
  f.stream = [f] {
    void* made = nullptr;
    OK(f.rt("cnrtQueueCreate", &made));
    return made;
  };
  f.wait = [f](void* stream) { OK(f.rt("cnrtQueueSync", stream)); };
  f.destroy_stream = [f](void* stream) { OK(f.rt("cnrtQueueDestroy", stream)); };
  f.allocate = [f](std::size_t bytes) {
    void* pointer = nullptr;
    OK(f.rt("cnrtMalloc", &pointer, bytes));
    return static_cast<char*>(pointer);
  };
  f.free = [f](char* memory) { OK(f.rt("cnrtFree", static_cast<void*>(memory))); };
  f.upload = [f](char* to, const void* from, std::size_t bytes) { OK(f.rt("cnrtMemcpy", to, from, bytes, 0)); };
  f.download = [f](void* to, const char* from, std::size_t bytes) { OK(f.rt("cnrtMemcpy", to, from, bytes, 2)); };
  f.make_id = [f](char* id) { OK(f.cc("cnclGetCliqueId", id)); };
  f.join = [f](void** comm, int ranks, const char* id, int rank, int device) {
    return f.cc("cnclInitComms", comm, 1, &device, &rank, ranks, id);
  };
  f.join_all = [f](void** comms, int ranks, const char* id) {
    std::vector<int> numbers(static_cast<std::size_t>(ranks));
    std::iota(numbers.begin(), numbers.end(), 0);
    return f.cc("cnclInitComms", comms, ranks, numbers.data(), numbers.data(), ranks, id);
  };
  f.all_reduce = "cnclAllReduce";
  f.reduce = "cnclReduce";
  f.all_gather = "cnclAllGather";
  f.reduce_scatter = "cnclReduceScatter";
  f.destroy = "cnclFreeComm";
  f.broadcast = [f](const char* send, char* receive, std::size_t count, int type, int root, void* comm, void* stream) {
    return f.cc("cnclBroadcast", send, receive, count, type, root, comm, stream);
  };
  f.exchange = [f](const char* send, char* receive, std::size_t count, int type, int to, int from, void* comm,
                   void* stream) {
    OK(f.cc("cnclGroupStart"));
    OK(f.cc("cnclSend", send, count, type, to, comm, stream));
    OK(f.cc("cnclRecv", receive, count, type, from, comm, stream));
    return f.cc("cnclGroupEnd");
  };
  return f;
}

CollectiveFace tccl_face() {
  CollectiveFace f;
  f.runtime = "tecorigin/libsdaart.so";
  f.library = "tecorigin/libtccl.so";
  f.id_bytes = 128;
  f.fp32 = 4;
  f.int32 = 2;
  f.open = [f](int device) { OK(f.rt("sdaaSetDevice", device)); };
  f.close = [] {};
  f.stream = [f] {
    void* made = nullptr;
    OK(f.rt("sdaaStreamCreateWithFlags", &made, 1U));
    return made;
  };
  f.wait = [f](void* stream) { OK(f.rt("sdaaStreamSynchronize", stream)); };
  f.destroy_stream = [f](void* stream) { OK(f.rt("sdaaStreamDestroy", stream)); };
  f.allocate = [f](std::size_t bytes) {
    void* pointer = nullptr;
    OK(f.rt("sdaaMalloc", &pointer, bytes));
    return static_cast<char*>(pointer);
  };
  f.free = [f](char* memory) { OK(f.rt("sdaaFree", static_cast<void*>(memory))); };
  f.upload = [f](char* to, const void* from, std::size_t bytes) { OK(f.rt("sdaaMemcpy", to, from, bytes, 1)); };
  f.download = [f](void* to, const char* from, std::size_t bytes) { OK(f.rt("sdaaMemcpy", to, from, bytes, 2)); };
  f.make_id = [f](char* id) { OK(f.cc("tcclGetUniqueId", id)); };
  f.join = [f](void** comm, int ranks, const char* id, int rank, int) {
    TcclId value;
    std::copy(id, id + sizeof value, value.bytes);
    return f.cc("tcclCommInitRank", comm, ranks, value, rank);
  };
  f.all_reduce = "tcclAllReduce";
  f.reduce = "tcclReduce";
  f.all_gather = "tcclAllGather";
  f.reduce_scatter = "tcclReduceScatter";
  f.destroy = "tcclCommDestroy";
  f.broadcast = [f](const char* send, char* receive, std::size_t count, int type, int root, void* comm, void* stream) {
    return f.cc("tcclBroadcast", send, receive, count, type, root, comm, stream);
  };
  // Nothing makes two calls one: one rank sends first, and the other receives first.
  f.exchange = [f](const char* send, char* receive, std::size_t count, int type, int to, int from, void* comm,
                   void* stream) {
    if (to != from) return -1;  // with more than two ranks
    const bool first = to == 1;
    for (const bool sends : {first, !first}) {
      if (sends) OK(f.cc("tcclSend", send, count, type, to, comm, stream));
      if (!sends) OK(f.cc("tcclRecv", receive, count, type, from, comm, stream));
    }
    return 0;
  };
  return f;
}

// Every rank's program on a thread of its own, each on its own device.
void on_devices(const CollectiveFace& f, int ranks,
                const std::function<void(void* comm, void* stream, int rank)>& run) {
  f.open(0);
  std::vector<char> id(f.id_bytes);
  f.make_id(id.data());
  std::vector<void*> comms(static_cast<std::size_t>(ranks));
  if (f.join_all) OK(f.join_all(comms.data(), ranks, id.data()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      f.open(rank);
      void *stream = f.stream(), *comm = comms[static_cast<std::size_t>(rank)];
      if (!f.join_all) OK(f.join(&comm, ranks, id.data(), rank, rank));
      run(comm, stream, rank);
      OK(f.cc(f.destroy, comm));
      f.destroy_stream(stream);
      f.close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  f.close();
}

void vendor_collectives(const CollectiveFace& f) {
  constexpr std::size_t n = 70001;  // more than one piece of the rendezvous
  on_devices(f, 2, [&](void* comm, void* stream, int rank) {
    const auto value = [](int who, std::size_t i) { return static_cast<float>(who + 1) * static_cast<float>(i % 97); };
    std::vector<float> own(2 * n), got(2 * n);
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = value(rank, i);
    char *x = f.allocate(8 * n), *y = f.allocate(8 * n);
    f.upload(x, own.data(), 8 * n);
    const auto check = [&](std::size_t count, const std::function<float(std::size_t)>& expected) {
      f.wait(stream);
      f.download(got.data(), y, count * 4);
      for (std::size_t i = 0; i < count; ++i) CHECK(got[i] == expected(i));
    };
    OK(f.cc(f.all_reduce, x, y, n, f.fp32, 0, comm, stream));
    check(n, [](std::size_t i) { return 3 * static_cast<float>(i % 97); });
    OK(f.cc(f.all_reduce, x, y, n, f.fp32, 2, comm, stream));
    check(n, [&](std::size_t i) { return value(1, i); });
    OK(f.cc(f.all_reduce, x, y, n, f.fp32, 3, comm, stream));
    check(n, [&](std::size_t i) { return value(0, i); });
    OK(f.cc(f.reduce, x, y, n, f.fp32, 1, 1, comm, stream));
    check(n, [&](std::size_t i) { return rank == 1 ? value(0, i) * value(1, i) : value(0, i); });
    OK(f.cc(f.all_gather, x, y, n, f.fp32, comm, stream));
    check(2 * n, [&](std::size_t i) { return value(static_cast<int>(i / n), i % n); });
    OK(f.cc(f.reduce_scatter, x, y, n, f.fp32, 0, comm, stream));
    check(n, [&](std::size_t i) { return 3 * static_cast<float>((static_cast<std::size_t>(rank) * n + i) % 97); });
    OK(f.broadcast(x, y, n, f.fp32, 1, comm, stream));
    check(n, [&](std::size_t i) { return value(1, i); });
    OK(f.exchange(x, y, n, f.fp32, 1 - rank, 1 - rank, comm, stream));
    check(n, [&](std::size_t i) { return value(1 - rank, i); });
    CHECK(f.cc(f.all_reduce, x, y, n, f.fp32, 4, comm, stream) != 0);  // no average
    for (char* memory : {x, y}) f.free(memory);
  });
}

// Rank 0 is this process, and rank 1 a child of it, which ends by `signal` (0: well).
void on_processes(const CollectiveFace& f, int signal,
                  const std::function<void(void* comm, void* stream, int rank)>& run) {
  std::vector<char> id(f.id_bytes);
  f.make_id(id.data());
  const auto rank = [&](int number) {
    f.open(number);
    void *stream = f.stream(), *comm = nullptr;
    OK(f.join(&comm, 2, id.data(), number, number));
    run(comm, stream, number);
    OK(f.cc(f.destroy, comm));
    f.destroy_stream(stream);
    f.close();
  };
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("SIM_REPORT", "", 1);
    rank(1);
    std::_Exit(0);
  }
  rank(0);
  int status = 0;
  CHECK_EQUAL(child, ::waitpid(child, &status, 0));
  CHECK_EQUAL(signal, status);
}

class VendorCollectives : public LibraryProcess {
 protected:
  std::string kinds_of(const std::function<void()>& program, const Variables& more = {}) {
    return kinds(run(program, more));
  }
};

TEST_F(VendorCollectives, ResultsAreRight) {
  for (const auto& face : {hccl_face(), cncl_face(), tccl_face()}) {
    SCOPED_TRACE(face.library);
    for (const char* seed : {"0", "3"}) {
      const auto report = run([&] { vendor_collectives(face); }, {{"SIM_SEED", seed}});
      EXPECT_EQ(kinds(report), "bad-argument,bad-argument");  // the average of both ranks
      ASSERT_TRUE(report.is_object());
      EXPECT_EQ(report.at("leaks"), nlohmann::json::array());
    }
  }
}

TEST_F(VendorCollectives, RanksAreProcesses) {
  for (const auto& face : {hccl_face(), cncl_face(), tccl_face()}) {
    SCOPED_TRACE(face.library);
    expect_clean(
        [&] {
          on_processes(face, 0, [&](void* comm, void* stream, int rank) {
            const std::vector<float> own(8, static_cast<float>(rank + 1));
            std::vector<float> got(8);
            char *x = face.allocate(32), *y = face.allocate(32);
            face.upload(x, own.data(), 32);
            OK(face.cc(face.all_reduce, x, y, std::size_t{8}, face.fp32, 0, comm, stream));
            face.wait(stream);
            face.download(got.data(), y, 32);
            for (const float value : got) CHECK(value == 3);
            for (char* memory : {x, y}) face.free(memory);
          });
        },
        {{"SIM_STRICT", "abort"}});
  }
}

// Nobody waits for a rank whose process was killed, and that is no mistake of those that are left.
TEST_F(VendorCollectives, ARankThatDiesIsAnErrorOfTheOthers) {
  for (const auto& face : {hccl_face(), cncl_face(), tccl_face()}) {
    SCOPED_TRACE(face.library);
    expect_clean(
        [&] {
          on_processes(face, SIGKILL, [&](void* comm, void* stream, int rank) {
            if (rank == 1) ::raise(SIGKILL);
            char *x = face.allocate(32), *y = face.allocate(32);
            OK(face.cc(face.all_reduce, x, y, std::size_t{8}, face.fp32, 0, comm, stream));
            face.wait(stream);
            CHECK(face.cc(face.all_reduce, x, y, std::size_t{8}, face.fp32, 0, comm, stream) != 0);
            for (char* memory : {x, y}) face.free(memory);
          });
        },
        {{"SIM_STRICT", "abort"}});
  }
}

// An id leads to the process that made it, and to nothing once that has ended.
TEST_F(VendorCollectives, AnIdEndsWithTheProcessThatMadeIt) {
  for (const auto& face : {hccl_face(), cncl_face(), tccl_face()}) {
    SCOPED_TRACE(face.library);
    expect_clean(
        [&] {
          std::vector<char> id(face.id_bytes);
          std::array<int, 2> ends{};
          OK(::pipe(ends.data()));
          const pid_t child = ::fork();
          if (child == 0) {
            face.make_id(id.data());
            std::_Exit(::write(ends[1], id.data(), id.size()) == static_cast<ssize_t>(id.size()) ? 0 : 1);
          }
          std::size_t got = 0;
          while (got < id.size()) {
            const ssize_t count = ::read(ends[0], id.data() + got, id.size() - got);
            CHECK(count > 0);
            got += static_cast<std::size_t>(count);
          }
          int status = 0;
          ::waitpid(child, &status, 0);
          face.open(0);
          void* comm = nullptr;
          CHECK(face.join(&comm, 2, id.data(), 0, 0) != 0);
          face.close();
        },
        {{"SIM_STRICT", "abort"}});
  }
}

TEST_F(VendorCollectives, RanksThatDoNotDoTheSameAreReported) {
  for (const auto& face : {hccl_face(), cncl_face(), tccl_face()}) {
    SCOPED_TRACE(face.library);
    const std::string found = kinds_of([&] {
      on_devices(face, 2, [&](void* comm, void* stream, int rank) {
        char *x = face.allocate(64), *y = face.allocate(64);
        OK(face.cc(face.all_reduce, x, y, std::size_t{8}, rank == 0 ? face.fp32 : face.int32, 0, comm, stream));
        face.wait(stream);
        for (char* memory : {x, y}) face.free(memory);
      });
    });
    EXPECT_NE(found.find("collective-mismatch"), std::string::npos) << found;
  }
}

TEST_F(VendorCollectives, AnIdIsCarriedWhole) {
  for (const auto& face : {hccl_face(), cncl_face(), tccl_face()}) {
    SCOPED_TRACE(face.library);
    EXPECT_EQ(kinds_of([&] {
                face.open(0);
                std::vector<char> id(face.id_bytes);
                face.make_id(id.data());
                id.back() = static_cast<char>(id.back() + 1);
                void* comm = nullptr;
                CHECK(face.join(&comm, 1, id.data(), 0, 0) != 0);
                face.close();
              }),
              "bad-argument");
  }
}

TEST_F(VendorCollectives, AStreamOfAnotherDeviceIsRefused) {
  for (const auto& face : {hccl_face(), cncl_face(), tccl_face()}) {
    SCOPED_TRACE(face.library);
    EXPECT_EQ(kinds_of([&] {
                face.open(1);
                void* stream = face.stream();
                face.open(0);
                std::vector<char> id(face.id_bytes);
                face.make_id(id.data());
                void* comm = nullptr;
                OK(face.join(&comm, 1, id.data(), 0, 0));
                char *x = face.allocate(64), *y = face.allocate(64);
                CHECK(face.cc(face.all_reduce, x, y, std::size_t{8}, face.fp32, 0, comm, stream) != 0);
                OK(face.cc(face.destroy, comm));
                for (char* memory : {x, y}) face.free(memory);
              }),
              "wrong-owner");
  }
}

// Properties that only one of the libraries has.
TEST_F(VendorCollectives, CnclUsesAnIdOnceInAProcessAndMakesSeveralMembers) {
  EXPECT_EQ(kinds_of([] {
              const CollectiveFace f = cncl_face();
              f.open(1);
              std::array<void*, 2> comms{};
              const std::array<int, 2> devices = {0, 1}, ranks = {1, 0};
              char* const no_id = nullptr;
              OK(f.cc("cnclInitComms", comms.data(), 2, devices.data(), ranks.data(), 2, no_id));
              int device = -1, rank = -1;
              OK(f.rt("cnrtGetDevice", &device));
              CHECK_EQUAL(1, device);  // as before
              OK(f.cc("cnclGetCommRank", &rank, comms[0]));
              CHECK_EQUAL(1, rank);
              OK(f.cc("cnclGetCommAsyncError", comms[0]));
              OK(f.cc("cnclDestroyComms", comms.data(), 2));
              std::vector<char> id(f.id_bytes);
              f.make_id(id.data());
              OK(f.join(comms.data(), 1, id.data(), 0, 0));
              CHECK_EQUAL(0x71, f.join(&comms[1], 1, id.data(), 0, 1));
              OK(f.cc("cnclFreeComm", comms[0]));
            }),
            "bad-argument");
}

TEST_F(VendorCollectives, WhatIsMissingIsNotThere) {
  EXPECT_EQ(kinds_of([] {
              CHECK(::dlsym(sim_test::library("ascend/libhccl.so"), "HcclGroupStart") == nullptr);
              CHECK(::dlsym(sim_test::library("tecorigin/libtccl.so"), "tcclGroupStart") == nullptr);
              CHECK(::dlsym(sim_test::library("ascend/libhccl.so"), "HcclSend") != nullptr);
              hccl_face().open(0);
              hccl_face().close();
            }),
            "");
}

}  // namespace
