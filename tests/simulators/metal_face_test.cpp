// The simulated Metal: devices, buffers, libraries, command buffers and encoders, and the mistakes that it must find. Order between
// commands is in metal_order_test.cpp.
#include "tests/simulators/metal_face.h"

#include <atomic>
#include <thread>

namespace sim_test {
namespace {

void well_behaved() {
  Metal metal;
  const Pool pool;
  CHECK(text(send(metal.device, "name")) == "Simulated Apple GPU 0");
  CHECK(send<bool>(metal.device, "hasUnifiedMemory"));
  CHECK(send<bool>(metal.device, "supportsFamily:", 1007L) && !send<bool>(metal.device, "supportsFamily:", 1009L));
  CHECK_EQUAL(32768, send<UInteger>(metal.device, "maxThreadgroupMemoryLength"));
  const Id in = buffer(metal, kBytes), middle = buffer(metal, kBytes, kPrivate), out = buffer(metal, kBytes);
  CHECK_EQUAL(3 * kBytes, send<UInteger>(metal.device, "currentAllocatedSize"));
  CHECK(send(middle, "contents") == nullptr);
  CHECK_EQUAL(kBytes, send<UInteger>(in, "length"));
  for (std::int64_t i = 0; i < kFloats; ++i) {
    CHECK(floats(out)[i] == 0);  // documented
    floats(in)[i] = static_cast<float>(i);
  }
  const Id state = pipeline(metal, kScale, "sim_scale");
  CHECK_EQUAL(32, send<UInteger>(state, "threadExecutionWidth"));
  CHECK_EQUAL(1024, send<UInteger>(state, "maxTotalThreadsPerThreadgroup"));
  static std::atomic<int> handled{0};
  const Id work = command_buffer(metal);
  CHECK_EQUAL(0, status(work));
  TestBlock handler = block(
      [](TestBlock* self, Id completed, std::uint64_t) {
        CHECK(self->user == &handled);
        CHECK_EQUAL(4, status(completed));
        ++handled;
      },
      &handled);
  send<void>(work, "addCompletedHandler:", static_cast<Id>(&handler));
  handler.user = nullptr;  // it was copied
  {
    const Pool inner;
    const Id compute = send(work, "computeCommandEncoder");
    scale(compute, state, middle, in, 2, kFloats);
    end(compute);
    const Id blit = send(work, "blitCommandEncoder");
    copy(blit, middle, 0, out, 0, kBytes);
    fill(blit, out, 0, 8, 0);
    end(blit);
  }
  CHECK(send<double>(work, "GPUEndTime") == 0);
  finish(work);
  CHECK_EQUAL(4, status(work));
  CHECK_EQUAL(1, handled);
  CHECK(send(work, "error") == nullptr);
  CHECK(send<double>(work, "GPUStartTime") > 0 &&
        send<double>(work, "GPUEndTime") >= send<double>(work, "GPUStartTime"));
  CHECK(floats(out)[0] == 0 && floats(out)[1] == 0 && floats(out)[2] == 4 &&
        floats(out)[kFloats - 1] == 2 * (kFloats - 1));
  for (const Id object : {state, in, middle, out}) let_go(object);
  CHECK_EQUAL(0, send<UInteger>(metal.device, "currentAllocatedSize"));
  metal.close();
}

class MetalDeviceFace : public MetalFace {};

TEST_F(MetalDeviceFace, AWellBehavedProgramLeavesACleanReport) {
  for (const char* seed : {"0", "1", "2"}) {
    const auto report = run(well_behaved, {{"SIM_SEED", seed}});
    EXPECT_EQ(kinds(report), "") << "seed " << seed;
    EXPECT_EQ(report.at("leaks"), nlohmann::json::array()) << "seed " << seed;
    EXPECT_EQ(report.at("calls").at("setBuffer:offset:atIndex:"), 2);
  }
}

// ---- devices and buffers

TEST_F(MetalDeviceFace, AMachineWithoutDevices) {
  expect_clean(
      [] {
        CHECK(call<Id>("apple/Metal", "MTLCreateSystemDefaultDevice") == nullptr);
        const Id all = call<Id>("apple/Metal", "MTLCopyAllDevices");
        CHECK_EQUAL(0, send<UInteger>(all, "count"));
        let_go(all);
      },
      {{"SIM_DEVICES", "0"}});
}

TEST_F(MetalDeviceFace, OneObjectADevice) {
  expect_clean([] {
    const Pool pool;
    Metal metal;
    const Id all = call<Id>("apple/Metal", "MTLCopyAllDevices"), second = send(all, "objectAtIndex:", UInteger{1});
    CHECK(send(all, "objectAtIndex:", UInteger{0}) == metal.device);
    CHECK(send<std::uint64_t>(second, "registryID") != send<std::uint64_t>(metal.device, "registryID"));
    let_go(all);
    metal.close();
  });
}

TEST_F(MetalDeviceFace, SizesAndOptionsOfBuffers) {
  EXPECT_EQ(kinds_of([] {
              const Pool pool;
              Metal metal;
              const auto fails = [&](UInteger bytes, UInteger options) {
                CHECK(send(metal.device, "newBufferWithLength:options:", bytes, options) == nullptr);
              };
              fails(0, kShared);
              fails(send<UInteger>(metal.device, "maxBufferLength") + 1, kShared);
              fails(64, 1 << 4);   // managed
              fails(64, 3 << 4);   // memoryless
              fails(64, 1 << 20);  // unknown
              const Id all = buffer(metal, send<UInteger>(metal.device, "maxBufferLength"), kPrivate);
              fails(64, kShared);  // the memory is spent: no mistake
              let_go(all);
              metal.close();
            }),
            "bad-argument,bad-argument,bad-argument,bad-argument,bad-argument");
}

TEST_F(MetalDeviceFace, TheHostCannotTouchPrivateMemoryAndNotWriteBehindSharedOne) {
  EXPECT_EQ(kinds_of([] {
              Metal metal;
              const Id memory = buffer(metal, 100);
              send<char*>(memory, "contents")[100] = 1;
              send<void>(memory, "didModifyRange:", Range{0, 4});
              let_go(memory);
              metal.close();
            }),
            "bad-argument,guard-overwritten");
}

TEST_F(MetalDeviceFace, MemoryOfTheProgramWithoutACopy) {
  EXPECT_EQ(kinds_of([] {
              const Pool pool;
              Metal metal;
              const auto page = static_cast<UInteger>(::sysconf(_SC_PAGESIZE));
              auto* memory = static_cast<char*>(
                  ::mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
              const auto wrap = [&](void* at, UInteger bytes, UInteger options = kShared, Id deallocator = nullptr) {
                return send(metal.device, "newBufferWithBytesNoCopy:length:options:deallocator:", at, bytes, options,
                            deallocator);
              };
              // Nil, and no mistake.
              CHECK(wrap(memory + 8, page) == nullptr);
              CHECK(wrap(memory, page + 8) == nullptr);
              static bool freed = false;
              TestBlock deallocator =
                  block([](TestBlock*, Id at, std::uint64_t bytes) { freed = at != nullptr && bytes > 0; }, nullptr);
              const Id one = wrap(memory, 2 * page, kShared, &deallocator), same = wrap(memory, 2 * page);
              CHECK(one != nullptr && same != nullptr && send(one, "contents") == memory);
              const Id work = command_buffer(metal), blit = send(work, "blitCommandEncoder");
              fill(blit, one, 0, page, 7);
              end(blit);
              finish(work);
              CHECK(memory[page - 1] == 7 && memory[page] == 0);
              CHECK(wrap(memory, page) == nullptr);  // a part of it
              let_go(one);
              CHECK(freed);
              let_go(same);
              CHECK(wrap(memory, page, kPrivate) == nullptr);
              ::munmap(memory + 2 * page, page);
              CHECK(wrap(memory, 4 * page) == nullptr);
              let_go(wrap(memory, page));
              metal.close();
            }),
            "bad-argument,bad-argument,bad-argument");
}

// ---- command buffers and encoders

TEST_F(MetalDeviceFace, CommandBuffersAreCommittedOnceAndWithoutAnOpenEncoder) {
  EXPECT_EQ(kinds_of([] {
              const Pool pool;
              Metal metal;
              const Id work = command_buffer(metal);
              send<void>(work, "waitUntilCompleted");
              const Id blit = send(work, "blitCommandEncoder");
              CHECK(send(work, "computeCommandEncoder") == nullptr);
              const Id event = send(metal.device, "newSharedEvent");
              send<void>(work, "encodeSignalEvent:value:", event, std::uint64_t{1});
              commit(work);
              end(blit);
              end(blit);
              finish(work);
              commit(work);
              CHECK(send(work, "blitCommandEncoder") == nullptr);
              TestBlock handler = block([](TestBlock*, Id, std::uint64_t) {}, nullptr);
              send<void>(work, "addCompletedHandler:", static_cast<Id>(&handler));
              let_go(event);
              metal.close();
            }),
            "command-buffer-state,encoder-state,encoder-state,encoder-state,encoder-state,command-buffer-state,"
            "command-buffer-state,command-buffer-state");
}

TEST_F(MetalDeviceFace, AnEncoderIsDeallocatedAfterItsEnd) {
  EXPECT_EQ(kinds_of([] {
              Metal metal;
              {
                const Pool pool;
                send(command_buffer(metal), "blitCommandEncoder");
              }
              metal.close();
            }),
            "encoder-state");
}

TEST_F(MetalDeviceFace, CommandBuffersRunInTheOrderInWhichTheyWereEnqueued) {
  for (const char* seed : {"0", "3"}) {
    expect_clean(
        [] {
          const Pool pool;
          Metal metal;
          const Id memory = buffer(metal, 64);
          const auto filled = [&](int value) {
            const Id work = command_buffer(metal), blit = send(work, "blitCommandEncoder");
            fill(blit, memory, 0, 64, value);
            end(blit);
            return work;
          };
          const Id first = filled(1), second = filled(2);
          send<void>(first, "enqueue");
          CHECK_EQUAL(1, status(first));
          commit(second);
          CHECK_EQUAL(2, status(second));
          commit(first);
          send<void>(second, "waitUntilScheduled");
          send<void>(second, "waitUntilCompleted");
          CHECK_EQUAL(4, status(first));
          CHECK_EQUAL(2, send<char*>(memory, "contents")[63]);
          // One that is dropped holds nothing up.
          {
            const Pool inner;
            send<void>(command_buffer(metal), "enqueue");
          }
          finish(filled(3));
          CHECK_EQUAL(3, send<char*>(memory, "contents")[63]);
          let_go(memory);
          metal.close();
        },
        {{"SIM_SEED", seed}});
  }
}

TEST_F(MetalDeviceFace, AQueueHasSoManyCommandBuffers) {
  EXPECT_EQ(kinds_of(
                [] {
                  const Pool pool;
                  Metal metal;
                  const Id few = send(metal.device, "newCommandQueueWithMaxCommandBufferCount:", UInteger{2});
                  finish(send(few, "commandBuffer"));
                  {
                    const Pool inner;
                    send(few, "commandBuffer");  // dropped
                  }
                  send(few, "commandBuffer");
                  send(few, "commandBuffer");
                  CHECK(send(few, "commandBuffer") == nullptr);
                  let_go(few);
                  metal.close();
                },
                {{"SIM_HANG_SECONDS", "1"}}),
            "hang");
}

TEST_F(MetalDeviceFace, ResourcesLiveAsLongAsTheCommandBufferRetainsThem) {
  expect_clean(
      [] {
        const Pool pool;
        Metal metal;
        const Id memory = buffer(metal, 1 << 20), work = command_buffer(metal), blit = send(work, "blitCommandEncoder");
        fill(blit, memory, 0, 1 << 20, 1);
        end(blit);
        commit(work);
        let_go(memory);
        send<void>(work, "waitUntilCompleted");
        CHECK_EQUAL(0, send<UInteger>(metal.device, "currentAllocatedSize"));
        metal.close();
      },
      {{"SIM_SEED", "1"}});
  for (const bool described : {false, true}) {
    EXPECT_EQ(kinds_of([described] {
                const Pool pool;
                Metal metal;
                Id work = nullptr;
                if (described) {
                  const Id descriptor = send(class_named("MTLCommandBufferDescriptor"), "new");
                  CHECK(send<bool>(descriptor, "retainedReferences"));
                  send<void>(descriptor, "setRetainedReferences:", false);
                  work = send(metal.queue, "commandBufferWithDescriptor:", descriptor);
                  let_go(descriptor);
                } else {
                  work = send(metal.queue, "commandBufferWithUnretainedReferences");
                }
                const Id memory = buffer(metal, 64), blit = send(work, "blitCommandEncoder");
                fill(blit, memory, 0, 64, 1);
                end(blit);
                let_go(memory);
                finish(work);
                CHECK_EQUAL(5, status(work));
                CHECK_EQUAL(3, send<long>(send(work, "error"), "code"));
                metal.close();
              }),
              "free-while-in-use,use-after-free");
  }
}

TEST_F(MetalDeviceFace, BlitsAreInsideOfBuffersAndOfWholeWords) {
  EXPECT_EQ(
      kinds_of([] {
        const Pool pool;
        Metal metal;
        const Id a = buffer(metal, 64), b = buffer(metal, 64), work = command_buffer(metal),
                 blit = send(work, "blitCommandEncoder");
        fill(blit, a, 60, 8, 0);
        fill(blit, a, 2, 4, 0);
        fill(blit, a, 0, 6, 0);
        fill(blit, a, 0, 0, 0);
        copy(blit, a, 32, b, 0, 36);
        copy(blit, a, 0, b, 64, 4);
        copy(blit, a, 2, b, 0, 4);
        copy(blit, a, 0, b, 0, 5);
        copy(blit, a, 0, a, 8, 16);
        send<void>(blit, "synchronizeResource:", a);
        copy(blit, a, 0, a, 16, 16);
        end(blit);
        finish(work);
        for (const Id object : {a, b}) let_go(object);
        metal.close();
      }),
      "out-of-bounds,bad-argument,bad-argument,bad-argument,out-of-bounds,out-of-bounds,bad-argument,bad-argument,"
      "bad-argument,bad-argument");
}

// ---- libraries and kernels

TEST_F(MetalDeviceFace, SourcesThatDoNotCompileTellWhy) {
  expect_clean([] {
    const Pool pool;
    Metal metal;
    const auto error_of = [&](const char* source) {
      Id error = nullptr;
      const Id none = nullptr;
      CHECK(send(metal.device, "newLibraryWithSource:options:error:", string(source), none, &error) == nullptr);
      CHECK(text(send(error, "domain")) == "MTLLibraryErrorDomain");
      CHECK_EQUAL(3, send<long>(error, "code"));
      return text(send(error, "localizedDescription"));
    };
    CHECK(error_of("#include \"mine.h\"\n").find("program_source:1") != std::string::npos);
    CHECK(error_of("kernel void f(device float* x) {\n  x[0 = 1;\n}\n").find("program_source:2") != std::string::npos);
    Id error = nullptr;
    const Id options = send(class_named("MTLCompileOptions"), "new");
    send<void>(options, "setLanguageVersion:", UInteger{0x40000});
    CHECK(send(metal.device, "newLibraryWithSource:options:error:", string(kScale), options, &error) == nullptr);
    CHECK_EQUAL(1, send<long>(error, "code"));
    // Macros reach the source.
    send<void>(options, "setLanguageVersion:", UInteger{0x30001});
    const Id macros = send(class_named("NSMutableDictionary"), "dictionary");
    send<void>(macros, "setObject:forKey:", string("sim_scale"), string("NAME"));
    send<void>(options, "setPreprocessorMacros:", macros);
    const Id library = send(metal.device, "newLibraryWithSource:options:error:",
                            string("kernel void NAME(device float* x) { x[0] = 1; }"), options, &error);
    CHECK(text(send(send(library, "functionNames"), "firstObject")) == "sim_scale");
    CHECK(send(library, "newFunctionWithName:", string("other")) == nullptr);
    let_go(library);
    let_go(options);
    metal.close();
  });
}

TEST_F(MetalDeviceFace, KernelsWithOtherArgumentsThanTheOnesThatRun) {
  for (const char* source :
       {"kernel void sim_scale(device float* y, device const float* x) {}", "kernel void nobodys(device float* y) {}",
        "kernel void sim_scale(device float* y, device const float* x, float factor, constant long& count) {}",
        "kernel void sim_scale(device float* y [[buffer(31)]], device const float* x, constant float& factor,"
        " constant long& count) {}",
        "kernel void sim_scale(device float* y, device const float* x, constant int2& f, constant int& count) {}"}) {
    EXPECT_EQ(kinds_of([source] {
                const Pool pool;
                Metal metal;
                CHECK(pipeline(metal, source, std::strstr(source, "nobodys") != nullptr ? "nobodys" : "sim_scale") ==
                      nullptr);
                metal.close();
              }),
              "kernel-state")
        << source;
  }
}

TEST_F(MetalDeviceFace, ArgumentsInStructsAreReachedByTheirAddresses) {
  for (const bool in_buffer : {false, true}) {
    expect_clean([in_buffer] {
      const Pool pool;
      Metal metal;
      const Id x = buffer(metal, kBytes), y = buffer(metal, kBytes),
               state = pipeline(metal, kScaleInStruct, "sim_scale");
      for (std::int64_t i = 0; i < kFloats; ++i) floats(x)[i] = static_cast<float>(i);
      const auto address = [](Id one) { return send<std::uint64_t>(one, "gpuAddress"); };
      CHECK(address(x) != reinterpret_cast<std::uint64_t>(floats(x)));
      const ScaleArguments arguments{address(y), address(x), 3, kFloats};
      const Id work = command_buffer(metal), compute = send(work, "computeCommandEncoder");
      send<void>(compute, "setComputePipelineState:", state);
      Id table = nullptr;
      if (in_buffer) {
        table = send(metal.device, "newBufferWithBytes:length:options:", static_cast<const void*>(&arguments),
                     UInteger{sizeof arguments}, kShared);
        bind(compute, table, 0);
        let_go(table);
      } else {
        bind_value(compute, arguments, 0);
      }
      const Id used[] = {x};
      send<void>(compute, "useResources:count:usage:", static_cast<const Id*>(used), UInteger{1}, UInteger{1});
      send<void>(compute, "useResource:usage:", y, UInteger{2});
      dispatch(compute, kFloats / 32);
      end(compute);
      finish(work);
      CHECK(floats(y)[kFloats - 1] == 3 * (kFloats - 1));
      for (const Id object : {x, y, state}) let_go(object);
      metal.close();
    });
  }
}

TEST_F(MetalDeviceFace, MemoryReachedByItsAddressIsDeclared) {
  enum { nothing, read_only, freed, no_address };
  for (const int wrong : {nothing, read_only, freed, no_address}) {
    EXPECT_EQ(kinds_of([wrong] {
                const Pool pool;
                Metal metal;
                const Id x = buffer(metal, kBytes), y = buffer(metal, kBytes),
                         state = pipeline(metal, kScaleInStruct, "sim_scale");
                ScaleArguments arguments{send<std::uint64_t>(y, "gpuAddress"), send<std::uint64_t>(x, "gpuAddress"), 3,
                                         kFloats};
                if (wrong == no_address) arguments.y = reinterpret_cast<std::uint64_t>(floats(y));
                const Id work = command_buffer(metal), compute = send(work, "computeCommandEncoder");
                send<void>(compute, "setComputePipelineState:", state);
                bind_value(compute, arguments, 0);
                if (wrong != nothing) send<void>(compute, "useResource:usage:", x, UInteger{1});
                if (wrong == read_only) send<void>(compute, "useResource:usage:", y, UInteger{1});
                if (wrong == freed) send<void>(compute, "useResource:usage:", y, UInteger{3});
                dispatch(compute, kFloats / 32);
                end(compute);
                if (wrong == freed) let_go(y);  // useResource does not retain it
                finish(work);
                CHECK_EQUAL(5, status(work));
                CHECK_EQUAL(3, send<long>(send(work, "error"), "code"));
                for (const Id object : {x, state}) let_go(object);
                if (wrong != freed) let_go(y);
                metal.close();
              }),
              wrong == freed        ? "free-while-in-use,use-after-free"
              : wrong == no_address ? "bad-pointer"
                                    : "not-resident")
        << wrong;
  }
}

TEST_F(MetalDeviceFace, ResidencySetsCountFromTheirCommitOn) {
  for (const bool of_queue : {false, true}) {
    for (const bool committed : {true, false}) {
      EXPECT_EQ(kinds_of([of_queue, committed] {
                  const Pool pool;
                  Metal metal;
                  const Id x = buffer(metal, kBytes), y = buffer(metal, kBytes),
                           state = pipeline(metal, kScaleInStruct, "sim_scale");
                  Id error = nullptr;
                  const Id descriptor = send(class_named("MTLResidencySetDescriptor"), "new");
                  send<void>(descriptor, "setInitialCapacity:", UInteger{2});
                  const Id set = send(metal.device, "newResidencySetWithDescriptor:error:", descriptor, &error);
                  let_go(descriptor);
                  for (const Id one : {x, y}) send<void>(set, "addAllocation:", one);
                  CHECK(send<bool>(set, "containsAllocation:", x));
                  if (committed) send<void>(set, "commit");
                  if (of_queue) send<void>(metal.queue, "addResidencySet:", set);
                  const ScaleArguments arguments{send<std::uint64_t>(y, "gpuAddress"),
                                                 send<std::uint64_t>(x, "gpuAddress"), 3, kFloats};
                  const Id work = command_buffer(metal), compute = send(work, "computeCommandEncoder");
                  send<void>(compute, "setComputePipelineState:", state);
                  bind_value(compute, arguments, 0);
                  dispatch(compute, kFloats / 32);
                  end(compute);
                  if (!of_queue) send<void>(work, "useResidencySet:", set);
                  finish(work);
                  if (of_queue) send<void>(metal.queue, "removeResidencySet:", set);
                  for (const Id object : {x, y, state, set}) let_go(object);
                  metal.close();
                }),
                committed ? "" : "not-resident");
    }
  }
}

TEST_F(MetalDeviceFace, EveryArgumentIsBoundAndLongEnough) {
  EXPECT_EQ(kinds_of([] {
              const Pool pool;
              Metal metal;
              const Id x = buffer(metal, kBytes), y = buffer(metal, kBytes),
                       state = pipeline(metal, kScale, "sim_scale");
              const Id work = command_buffer(metal), compute = send(work, "computeCommandEncoder");
              dispatch(compute, 1);  // no pipeline state
              send<void>(compute, "setComputePipelineState:", state);
              bind(compute, x, 1);
              bind_value(compute, 2.0F, 2);
              bind_value(compute, std::int64_t{32}, 3);
              dispatch(compute, 1);  // no buffer 0
              bind(compute, y, 0);
              bind(compute, nullptr, 0);
              dispatch(compute, 1);  // not any more
              bind_value(compute, 1.0F, 0);
              dispatch(compute, 1);  // bytes that the kernel may write
              bind(compute, y, 0);
              bind_value(compute, std::int32_t{32}, 3);
              dispatch(compute, 1);  // 4 bytes of 8
              bind(compute, y, 3, kBytes - 4);
              dispatch(compute, 1);  // 4 bytes are left
              bind(compute, y, 0, kBytes);
              bind(compute, y, 31);
              std::vector<char> many(4097);
              send<void>(compute, "setBytes:length:atIndex:", static_cast<const void*>(many.data()), UInteger{4097},
                         UInteger{3});
              send<void>(compute, "setBufferOffset:atIndex:", UInteger{4}, UInteger{5});
              send<void>(compute, "setThreadgroupMemoryLength:atIndex:", UInteger{24}, UInteger{0});
              send<void>(compute, "setThreadgroupMemoryLength:atIndex:", UInteger{32784}, UInteger{0});
              end(compute);
              finish(work);
              CHECK_EQUAL(4, status(work));
              for (const Id object : {x, y, state}) let_go(object);
              metal.close();
            }),
            "kernel-state,missing-binding,missing-binding,bad-argument,missing-binding,missing-binding,out-of-bounds,"
            "bad-argument,"
            "bad-argument,missing-binding,bad-argument,local-memory");
}

TEST_F(MetalDeviceFace, ThreadgroupsFitThePipelineState) {
  EXPECT_EQ(kinds_of([] {
              const Pool pool;
              Metal metal;
              const std::string limited =
                  std::string(kScale).replace(std::strlen("#include <metal_stdlib>\nusing namespace metal;\n"), 6,
                                              "[[max_total_threads_per_threadgroup(32)]] kernel");
              const Id x = buffer(metal, kBytes), y = buffer(metal, kBytes),
                       state = pipeline(metal, limited.c_str(), "sim_scale");
              CHECK_EQUAL(32, send<UInteger>(state, "maxTotalThreadsPerThreadgroup"));
              const Id work = command_buffer(metal), compute = send(work, "computeCommandEncoder");
              scale(compute, state, y, x, 1, 32);
              const auto refused = [&](Size groups, Size threads) {
                send<void>(compute, "dispatchThreadgroups:threadsPerThreadgroup:", groups, threads);
              };
              refused({0, 1, 1}, {32, 1, 1});
              refused({1, 1, 1}, {0, 1, 1});
              refused({1, 1, 1}, {64, 1, 1});
              refused({1, 1, 1}, {8, 4, 1});
              send<void>(compute, "dispatchThreads:threadsPerThreadgroup:", Size{40, 1, 1}, Size{32, 1, 1});
              send<void>(compute, "dispatchThreads:threadsPerThreadgroup:", Size{64, 1, 1}, Size{32, 1, 1});
              end(compute);
              finish(work);
              CHECK_EQUAL(4, status(work));
              // Fewer threads than the kernel was written for.
              const Id small = command_buffer(metal), other = send(small, "computeCommandEncoder");
              scale(other, state, y, x, 1, 32);
              dispatch(other, 1, 16);
              end(other);
              finish(small);
              CHECK_EQUAL(5, status(small));
              for (const Id object : {x, y, state}) let_go(object);
              metal.close();
            }),
            "kernel-state,kernel-state,kernel-state,kernel-state,kernel-state,kernel-state");
}

TEST_F(MetalDeviceFace, AKernelOutsideOfItsBufferFailsItsCommandBuffer) {
  EXPECT_EQ(kinds_of([] {
              const Pool pool;
              Metal metal;
              const Id x = buffer(metal, kBytes), y = buffer(metal, kBytes / 2),
                       state = pipeline(metal, kScale, "sim_scale");
              const Id work = command_buffer(metal), compute = send(work, "computeCommandEncoder");
              scale(compute, state, y, x, 1, kFloats);
              end(compute);
              finish(work);
              CHECK_EQUAL(5, status(work));
              const Id error = send(work, "error");
              CHECK(text(send(error, "domain")) == "MTLCommandBufferErrorDomain");
              CHECK_EQUAL(3, send<long>(error, "code"));
              finish(command_buffer(metal));
              for (const Id object : {x, y, state}) let_go(object);
              metal.close();
            }),
            "out-of-bounds");
}

TEST_F(MetalDeviceFace, ThingsOfAnotherDevice) {
  EXPECT_EQ(kinds_of([] {
              const Pool pool;
              Metal metal;
              const Id all = call<Id>("apple/Metal", "MTLCopyAllDevices"),
                       other = send(all, "objectAtIndex:", UInteger{1});
              const Id foreign = send(other, "newBufferWithLength:options:", UInteger{64}, kShared),
                       event = send(other, "newEvent");
              const Id work = command_buffer(metal);
              send<void>(work, "encodeWaitForEvent:value:", event, std::uint64_t{1});
              const Id blit = send(work, "blitCommandEncoder");
              fill(blit, foreign, 0, 64, 1);
              end(blit);
              const Id compute = send(work, "computeCommandEncoder");
              bind(compute, foreign, 0);
              end(compute);
              finish(work);
              for (const Id object : {foreign, event, all}) let_go(object);
              metal.close();
            }),
            "wrong-owner,wrong-owner,wrong-owner");
}

TEST_F(MetalDeviceFace, HeapsHaveABoundAndTheirBuffersAreReachedByUseHeap) {
  EXPECT_EQ(kinds_of([] {
              const Pool pool;
              Metal metal;
              const Id descriptor = send(class_named("MTLHeapDescriptor"), "new");
              send<void>(descriptor, "setSize:", UInteger{4 * kBytes});
              send<void>(descriptor, "setStorageMode:", UInteger{0});
              const Id heap = send(metal.device, "newHeapWithDescriptor:", descriptor);
              let_go(descriptor);
              const Id x = send(heap, "newBufferWithLength:options:", kBytes, kShared), y = buffer(metal, kBytes);
              CHECK(send(heap, "newBufferWithLength:options:", kBytes, kPrivate) == nullptr);
              CHECK(send(heap, "newBufferWithLength:options:", 4 * kBytes, kShared) == nullptr);  // full: no mistake
              CHECK_EQUAL(1, send<UInteger>(x, "hazardTrackingMode"));
              CHECK_EQUAL(kBytes, send<UInteger>(heap, "usedSize"));
              CHECK(floats(x)[0] != 0);
              for (std::int64_t i = 0; i < kFloats; ++i) floats(x)[i] = 1;
              const ScaleArguments arguments{send<std::uint64_t>(y, "gpuAddress"), send<std::uint64_t>(x, "gpuAddress"),
                                             3, kFloats};
              const Id state = pipeline(metal, kScaleInStruct, "sim_scale"), work = command_buffer(metal);
              const Id compute = send(work, "computeCommandEncoder");
              send<void>(compute, "setComputePipelineState:", state);
              bind_value(compute, arguments, 0);
              send<void>(compute, "useHeap:", heap);
              send<void>(compute, "useResource:usage:", y, UInteger{3});
              dispatch(compute, kFloats / 32);
              end(compute);
              finish(work);
              CHECK(floats(y)[7] == 3);
              for (const Id object : {x, y, heap, state}) let_go(object);
              metal.close();
            }),
            "bad-argument");
}

// ---- faults

TEST_F(MetalDeviceFace, FailuresThatAreAskedFor) {
  expect_clean(
      [] {
        const Pool pool;
        Metal metal;
        CHECK(send(metal.device, "newBufferWithLength:options:", UInteger{64}, kShared) == nullptr);
        const Id memory = buffer(metal, 64);
        Id error = nullptr;
        const Id none = nullptr;
        CHECK(send(metal.device, "newLibraryWithSource:options:error:", string(kScale), none, &error) == nullptr);
        CHECK(error != nullptr);
        const Id work = command_buffer(metal), blit = send(work, "blitCommandEncoder");
        fill(blit, memory, 0, 64, 9);
        end(blit);
        finish(work);
        CHECK_EQUAL(5, status(work));
        CHECK_EQUAL(1, send<long>(send(work, "error"), "code"));
        CHECK_EQUAL(0, send<char*>(memory, "contents")[0]);
        const Id next = command_buffer(metal);
        finish(next);
        CHECK_EQUAL(4, status(next));
        let_go(memory);
        metal.close();
      },
      {{"SIM_FAULT",
        "fail:newBufferWithLength:options:,call=1;fail:newLibraryWithSource:options:error:,call=1;fail:fillBuffer:"
        "range:value:,call=1"}});
}

TEST_F(MetalDeviceFace, ErrorsOfCommandsStayWithTheirQueueAndLostDevicesAreGone) {
  const auto program = [] {
    const Pool pool;
    Metal metal;
    const Id memory = buffer(metal, 64);
    const auto filled = [&](Id queue) {
      const Id work = send(queue, "commandBuffer"), blit = send(work, "blitCommandEncoder");
      fill(blit, memory, 0, 64, 1);
      end(blit);
      finish(work);
      const Id error = send(work, "error");
      return error == nullptr ? 0L : send<long>(error, "code");
    };
    const bool lost = std::strstr(std::getenv("SIM_FAULT"), "lost") != nullptr;
    CHECK_EQUAL(0, filled(metal.queue));
    CHECK_EQUAL(lost ? 11 : 1, filled(metal.queue));
    CHECK_EQUAL(4, filled(metal.queue));
    const Id other = send(metal.device, "newCommandQueue");
    CHECK_EQUAL(lost ? 11 : 0, filled(other));
    CHECK((send(metal.device, "newBufferWithLength:options:", UInteger{64}, kShared) == nullptr) == lost);
    if (!lost) {
      const Id last = send(other, "commandBuffer");
      commit(last);
      send<void>(last, "waitUntilCompleted");
    }
    for (const Id object : {other, memory}) let_go(object);
    metal.close();
  };
  for (const char* fault : {"sticky:command=2", "device_lost:command=2"}) {
    const auto report = run(program, {{"SIM_FAULT", fault}});
    EXPECT_EQ(kinds(report), "") << fault;
  }
}

TEST_F(MetalDeviceFace, WhatIsHiddenIsNotThere) {
  expect_clean(
      [] {
        CHECK(::dlsym(library("apple/Metal"), "MTLCopyAllDevices") == nullptr);
        CHECK(::dlsym(library("apple/libobjc.A.dylib"), "objc_retain") == nullptr);
        Metal metal;
        CHECK(!send<bool>(metal.device, "respondsToSelector:", sel("newFence")));
        CHECK(class_named("MTLCompileOptions") == nullptr);
        metal.close();
      },
      {{"SIM_FAULT", "hide:MTLCopyAllDevices,objc_retain,newFence,MTLCompileOptions"}});
}

}  // namespace
}  // namespace sim_test
