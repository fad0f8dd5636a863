// The simulated CUDA driver: errors that stay, injected faults, and devices that reach each other's memory or do not.
#include <tuple>

#include "tests/simulators/cuda_face.h"

namespace {

using namespace cuda_face;  // NOLINT

TEST_F(CudaFace, ErrorsOfKernelsStay) {
  struct Case {
    const char* kind;
    int result;
    std::function<void(Program&, FunctionHandle, StreamHandle)> mistake;
  };
  const Case cases[] = {
      {"out-of-bounds", 700,
       [](Program& p, FunctionHandle scale, StreamHandle stream) {
         const auto a = p.allocate(64), b = p.allocate(64);
         CU_OK(p.scale(scale, stream, a, b, 1.0f, 17));
       }},
      {"use-after-free", 700,
       [](Program& p, FunctionHandle scale, StreamHandle stream) {
         const auto a = p.allocate(64);
         CU_OK(api().memory_free(a));
         CU_OK(p.scale(scale, stream, a, a, 1.0f, 16));
       }},
      {"bad-pointer", 700,
       [](Program& p, FunctionHandle scale, StreamHandle stream) {
         static float pageable[16];
         const auto a = p.allocate(64);
         CU_OK(p.scale(scale, stream, a, device_address(pageable), 1.0f, 16));
       }},
      {"divergent-barrier", 719,
       [](Program& p, FunctionHandle, StreamHandle stream) {
         const auto diverge = p.function(p.module("kernel sim_diverge\n"), "sim_diverge");
         DevicePointer a = p.allocate(128);
         void* arguments[] = {&a};
         CU_OK(api().launch_kernel(diverge, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr));
       }},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.kind);
    const auto report = run([&one] {
      Program p;
      const auto stream = p.stream(), other = p.stream();
      const auto event = p.event();
      const auto scale = p.function(p.module());
      const auto a = p.allocate(64);
      one.mistake(p, scale, stream);
      CU_IS(one.result, api().stream_synchronize(stream));
      CU_IS(one.result, api().stream_synchronize(other));  // the context is dead
      CU_IS(one.result, api().event_record(event, other));
      DevicePointer more = 0;
      CU_IS(one.result, api().memory_alloc(&more, 64));
      CU_IS(one.result, api().memory_free(a));
      CU_IS(one.result, api().context_synchronize());
      ContextHandle second = nullptr;  // another device goes on
      CU_OK(api().primary_context_retain(&second, 1));
      CU_OK(api().context_set_current(second));
      CU_OK(api().context_synchronize());
    });
    EXPECT_EQ(kinds(report), one.kind);
  }
}

TEST_F(CudaFace, InjectedErrorsStay) {
  for (const auto& [fault, result, retained] :
       std::vector<std::tuple<const char*, int, int>>{{"sticky:command=2", 700, 700},
                                                      {"launch_failed:command=2", 719, 719},
                                                      {"ecc:command=2", 214, 214},
                                                      {"device_lost:command=2", 719, 46}}) {
    SCOPED_TRACE(fault);
    const auto report = run(
        [result = result, retained = retained] {
          Program p;
          const auto stream = p.stream(), other = p.stream();
          const auto a = p.allocate(64);
          CU_OK(api().fill_8_async(a, 1, 64, stream));
          CU_OK(api().stream_synchronize(stream));
          const auto event = p.event();
          CU_OK(api().fill_8_async(a, 2, 64, stream));
          while (api().stream_query(other) == success) std::this_thread::yield();
          CU_IS(result, api().event_query(event));
          CU_IS(result, api().stream_synchronize(stream));
          ContextHandle again = nullptr;
          CU_IS(retained, api().primary_context_retain(&again, 0));
          CU_IS(result, api().stream_destroy(stream));
        },
        {{"SIM_FAULT", fault}});
    EXPECT_EQ(kinds(report), "");
    EXPECT_EQ(report.at("leaks"), nlohmann::json::array());
  }
}

TEST_F(CudaFace, FaultsOfAllocationsAndCalls) {
  run(
      [] {
        Program p;
        DevicePointer pointer = 0;
        p.allocate(64);
        CU_IS(error_out_of_memory, api().memory_alloc(&pointer, 64));
        CU_OK(api().memory_alloc(&pointer, 64));
        CU_IS(error_out_of_memory, api().memory_alloc(&pointer, std::size_t{2} << 30));
        StreamHandle stream = nullptr;
        p.stream();
        CU_IS(error_unknown, api().stream_create(&stream, 1, 0));
        p.stream();
      },
      {{"SIM_FAULT", "oom:call=2;fail:cuStreamCreateWithPriority,call=2"}});
}

TEST_F(CudaFace, PeersMustBeEnabled) {
  const auto program = [] {
    Program p;
    ContextHandle second = nullptr;
    CU_OK(api().primary_context_retain(&second, 1));
    CU_OK(api().context_set_current(second));
    const auto theirs = p.allocate(64);
    CU_OK(api().context_set_current(p.context));
    const auto mine = p.allocate(64);
    const auto stream = p.stream();
    CU_OK(api().copy_async(mine, theirs, 64, stream));  // copies need no access
    CU_OK(api().stream_synchronize(stream));
    int can = -1;
    CU_OK(api().can_access_peer(&can, 0, 1));
    const bool possible = std::getenv("SIM_FAULT") == nullptr;
    CHECK(can == possible);
    CU_IS(possible ? success : 217, api().enable_peer_access(second, 0));
    CU_IS(possible ? 704 : 217, api().enable_peer_access(second, 0));
    const auto scale = p.function(p.module());
    CU_OK(p.scale(scale, stream, mine, theirs, 1.0f, 16));
    CU_IS(possible ? success : 700, api().stream_synchronize(stream));
    if (!possible) return;
    CU_IS(error_invalid_context, api().enable_peer_access(p.context, 0));
    auto* disable = symbol<int(ContextHandle)>("cuCtxDisablePeerAccess");
    CU_OK(disable(second));
    CU_IS(705, disable(second));
    CU_OK(p.scale(scale, stream, mine, theirs, 1.0f, 16));
    CU_IS(700, api().stream_synchronize(stream));
  };
  EXPECT_EQ(kinds_of(program), "bad-argument,no-peer-access");
  EXPECT_EQ(kinds_of(program, {{"SIM_FAULT", "no_peer"}}), "no-peer-access");
}

}  // namespace
