// What the simulated Metal orders, and what it does not: encoders by the buffers they use, fences, barriers and events; and that wrong
// programs are found although their commands ran one after the other.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/simulators/metal_face.h"

namespace sim_test {
namespace {

class MetalOrder : public MetalFace {};

// Fills `from` in an encoder, copies it in the next one, of the same command buffer or of another.
void fill_and_copy(const Metal& metal, Id from, Id to, bool two_buffers) {
  Id work = command_buffer(metal), blit = send(work, "blitCommandEncoder");
  fill(blit, from, 0, kBytes, 1);
  end(blit);
  if (two_buffers) {
    commit(work);
    work = command_buffer(metal);
  }
  blit = send(work, "blitCommandEncoder");
  copy(blit, from, 0, to, 0, kBytes);
  end(blit);
  finish(work);
}

TEST_F(MetalOrder, TrackedBuffersOrderEncodersOfAQueueAndUntrackedOnesDoNot) {
  for (const UInteger options : {kShared, kUntracked}) {
    for (const bool two_buffers : {false, true}) {
      EXPECT_EQ(kinds_of([options, two_buffers] {
                  const Pool pool;
                  Metal metal;
                  const Id a = buffer(metal, kBytes, options), b = buffer(metal, kBytes);
                  fill_and_copy(metal, a, b, two_buffers);
                  for (const Id object : {a, b}) let_go(object);
                  metal.close();
                }),
                options == kShared ? "" : "race");
    }
  }
}

TEST_F(MetalOrder, CommandsOfABlitEncoderAreOrdered) {
  expect_clean([] {
    const Pool pool;
    Metal metal;
    const Id a = buffer(metal, kBytes, kUntracked), b = buffer(metal, kBytes, kUntracked);
    const Id work = command_buffer(metal), blit = send(work, "blitCommandEncoder");
    fill(blit, a, 0, kBytes, 1);
    copy(blit, a, 0, b, 0, kBytes);
    end(blit);
    finish(work);
    CHECK_EQUAL(1, send<char*>(b, "contents")[kBytes - 1]);
    for (const Id object : {a, b}) let_go(object);
    metal.close();
  });
}

TEST_F(MetalOrder, ReadersOfABufferComeBeforeItsNextWriter) {
  expect_clean([] {
    const Pool pool;
    Metal metal;
    const Id a = buffer(metal, kBytes), b = buffer(metal, 64 * 64), work = command_buffer(metal);
    for (int i = 0; i < 64; ++i) {  // more readers than are kept one by one
      const Id blit = send(work, "blitCommandEncoder");
      copy(blit, a, 0, b, static_cast<UInteger>(i) * 64, 64);
      end(blit);
    }
    const Id blit = send(work, "blitCommandEncoder");
    fill(blit, a, 0, kBytes, 1);
    end(blit);
    finish(work);
    for (const Id object : {a, b}) let_go(object);
    metal.close();
  });
}

TEST_F(MetalOrder, FencesOrderEncodersBetweenQueuesToo) {
  for (const bool with_fence : {true, false}) {
    for (const bool two_queues : {false, true}) {
      EXPECT_EQ(kinds_of([with_fence, two_queues] {
                  const Pool pool;
                  Metal metal;
                  const Id other = send(metal.device, "newCommandQueue"), fence = send(metal.device, "newFence");
                  const Id a = buffer(metal, kBytes, kUntracked), b = buffer(metal, kBytes);
                  const Id first = command_buffer(metal), writer = send(first, "blitCommandEncoder");
                  fill(writer, a, 0, kBytes, 1);
                  if (with_fence) send<void>(writer, "updateFence:", fence);
                  end(writer);
                  commit(first);
                  const Id second = send(two_queues ? other : metal.queue, "commandBuffer"),
                           reader = send(second, "blitCommandEncoder");
                  if (with_fence) send<void>(reader, "waitForFence:", fence);
                  copy(reader, a, 0, b, 0, kBytes);
                  end(reader);
                  finish(second);
                  send<void>(first, "waitUntilCompleted");
                  for (const Id object : {a, b, fence, other}) let_go(object);
                  metal.close();
                }),
                with_fence ? "" : "race");
    }
  }
}

TEST_F(MetalOrder, AnEncoderDoesNotWaitForAFenceThatItUpdated) {
  EXPECT_EQ(kinds_of([] {
              const Pool pool;
              Metal metal;
              const Id fence = send(metal.device, "newFence"), work = command_buffer(metal),
                       blit = send(work, "blitCommandEncoder");
              send<void>(blit, "updateFence:", fence);
              send<void>(blit, "waitForFence:", fence);
              end(blit);
              finish(work);
              let_go(fence);
              metal.close();
            }),
            "encoder-state");
}

TEST_F(MetalOrder, DispatchesAreOrderedUnlessTheirEncoderIsConcurrent) {
  enum { serial, concurrent, barrier, textures, resources, other_resource };
  for (const int kind : {serial, concurrent, barrier, textures, resources, other_resource}) {
    EXPECT_EQ(kinds_of([kind] {
                const Pool pool;
                Metal metal;
                const Id a = buffer(metal, kBytes), b = buffer(metal, kBytes), c = buffer(metal, kBytes);
                const Id state = pipeline(metal, kScale, "sim_scale"), work = command_buffer(metal);
                for (std::int64_t i = 0; i < kFloats; ++i) floats(a)[i] = 1;
                const Id compute =
                    send(work, "computeCommandEncoderWithDispatchType:", UInteger{kind == serial ? 0U : 1U});
                CHECK_EQUAL(kind == serial ? 0 : 1, send<UInteger>(compute, "dispatchType"));
                scale(compute, state, b, a, 2, kFloats);
                if (kind == barrier) send<void>(compute, "memoryBarrierWithScope:", UInteger{1});
                if (kind == textures) send<void>(compute, "memoryBarrierWithScope:", UInteger{2});
                if (kind == resources || kind == other_resource) {
                  const Id used[] = {kind == resources ? b : c};
                  send<void>(compute, "memoryBarrierWithResources:count:", static_cast<const Id*>(used), UInteger{1});
                }
                scale(compute, state, c, b, 3, kFloats);
                end(compute);
                finish(work);
                CHECK(floats(c)[kFloats - 1] == 6);
                for (const Id object : {a, b, c, state}) let_go(object);
                metal.close();
              }),
              kind == concurrent || kind == textures || kind == other_resource ? "race" : "")
        << kind;
  }
}

TEST_F(MetalOrder, IndependentDispatchesOfAConcurrentEncoderAreFine) {
  expect_clean([] {
    const Pool pool;
    Metal metal;
    const Id a = buffer(metal, kBytes), b = buffer(metal, kBytes), c = buffer(metal, kBytes);
    const Id state = pipeline(metal, kScale, "sim_scale"), work = command_buffer(metal);
    const Id compute = send(work, "computeCommandEncoderWithDispatchType:", UInteger{1});
    scale(compute, state, b, a, 2, kFloats);
    scale(compute, state, c, a, 3, kFloats);
    end(compute);
    const Id blit = send(work, "blitCommandEncoder");
    copy(blit, b, 0, a, 0, kBytes);
    end(blit);
    finish(work);
    for (const Id object : {a, b, c, state}) let_go(object);
    metal.close();
  });
}

TEST_F(MetalOrder, ResidencySetsTrackNoHazardsAndUseResourceDoes) {
  for (const bool declared : {true, false}) {
    EXPECT_EQ(kinds_of([declared] {
                const Pool pool;
                Metal metal;
                const Id x = buffer(metal, kBytes), y = buffer(metal, kBytes),
                         state = pipeline(metal, kScaleInStruct, "sim_scale");
                Id error = nullptr;
                const Id descriptor = send(class_named("MTLResidencySetDescriptor"), "new");
                const Id set = send(metal.device, "newResidencySetWithDescriptor:error:", descriptor, &error);
                let_go(descriptor);
                for (const Id one : {x, y}) send<void>(set, "addAllocation:", one);
                send<void>(set, "commit");
                send<void>(metal.queue, "addResidencySet:", set);
                const Id work = command_buffer(metal);
                for (int i = 0; i < 2; ++i) {
                  const Id compute = send(work, "computeCommandEncoder");
                  const ScaleArguments arguments{send<std::uint64_t>(i == 0 ? y : x, "gpuAddress"),
                                                 send<std::uint64_t>(i == 0 ? x : y, "gpuAddress"), 3, kFloats};
                  send<void>(compute, "setComputePipelineState:", state);
                  bind_value(compute, arguments, 0);
                  if (declared) {
                    for (const Id one : {x, y}) send<void>(compute, "useResource:usage:", one, UInteger{3});
                  }
                  dispatch(compute, kFloats / 32);
                  end(compute);
                }
                finish(work);
                send<void>(metal.queue, "removeResidencySet:", set);
                for (const Id object : {x, y, state, set}) let_go(object);
                metal.close();
              }),
              declared ? "" : "race,race");
  }
}

TEST_F(MetalOrder, EventsOrderQueuesAndNothingElseDoes) {
  enum { shared_event, event, none };
  for (const char* seed : {"0", "5"}) {
    for (const int kind : {shared_event, event, none}) {
      EXPECT_EQ(kinds_of(
                    [kind] {
                      const Pool pool;
                      Metal metal;
                      const Id other = send(metal.device, "newCommandQueue");
                      const Id signal = send(metal.device, kind == event ? "newEvent" : "newSharedEvent");
                      const Id a = buffer(metal, kBytes), b = buffer(metal, kBytes);
                      // The reader first: it waits for what is committed later.
                      const Id second = send(other, "commandBuffer");
                      if (kind != none) send<void>(second, "encodeWaitForEvent:value:", signal, std::uint64_t{7});
                      const Id reader = send(second, "blitCommandEncoder");
                      copy(reader, a, 0, b, 0, kBytes);
                      end(reader);
                      commit(second);
                      // The signal comes after an earlier command buffer's work too.
                      const Id first = command_buffer(metal), writer = send(first, "blitCommandEncoder");
                      fill(writer, a, 0, kBytes, 1);
                      end(writer);
                      commit(first);
                      const Id last = command_buffer(metal);
                      send<void>(last, "encodeSignalEvent:value:", signal, std::uint64_t{8});
                      commit(last);
                      for (const Id one : {second, last, first}) send<void>(one, "waitUntilCompleted");
                      if (kind != none) CHECK_EQUAL(1, send<char*>(b, "contents")[kBytes - 1]);
                      for (const Id object : {a, b, signal, other}) let_go(object);
                      metal.close();
                    },
                    {{"SIM_SEED", seed}}),
                kind == none ? "race" : "");
    }
  }
}

TEST_F(MetalOrder, AWaitForAnEventHoldsUpWhatItsQueueGetsLater) {
  expect_clean([] {
    const Pool pool;
    Metal metal;
    const Id other = send(metal.device, "newCommandQueue"), event = send(metal.device, "newSharedEvent");
    const Id a = buffer(metal, kBytes), b = buffer(metal, kBytes);
    const Id first = command_buffer(metal), writer = send(first, "blitCommandEncoder");
    fill(writer, a, 0, kBytes, 1);
    end(writer);
    send<void>(first, "encodeSignalEvent:value:", event, std::uint64_t{1});
    commit(first);
    const Id waits = send(other, "commandBuffer");
    send<void>(waits, "encodeWaitForEvent:value:", event, std::uint64_t{1});
    commit(waits);
    const Id second = send(other, "commandBuffer"), reader = send(second, "blitCommandEncoder");
    copy(reader, a, 0, b, 0, kBytes);
    end(reader);
    finish(second);
    CHECK_EQUAL(1, send<char*>(b, "contents")[0]);
    for (const Id object : {a, b, event, other}) let_go(object);
    metal.close();
  });
}

TEST_F(MetalOrder, TheHostSignalsWaitsAndIsTold) {
  expect_clean([] {
    const Pool pool;
    Metal metal;
    const Id event = send(metal.device, "newSharedEvent"),
             listener = send(class_named("MTLSharedEventListener"), "new");
    const Id memory = buffer(metal, kBytes);
    static std::atomic<std::uint64_t> told{0};
    TestBlock notified = block([](TestBlock*, Id, std::uint64_t value) { told = value; }, nullptr);
    send<void>(event, "notifyListener:atValue:block:", listener, std::uint64_t{2}, static_cast<Id>(&notified));
    const Id work = command_buffer(metal);
    send<void>(work, "encodeWaitForEvent:value:", event, std::uint64_t{1});
    const Id blit = send(work, "blitCommandEncoder");
    fill(blit, memory, 0, kBytes, 1);
    end(blit);
    send<void>(work, "encodeSignalEvent:value:", event, std::uint64_t{2});
    commit(work);
    CHECK(!send<bool>(event, "waitUntilSignaledValue:timeoutMS:", std::uint64_t{2}, std::uint64_t{20}));
    CHECK_EQUAL(0, send<std::uint64_t>(event, "signaledValue"));
    CHECK(status(work) < 4);
    send<void>(event, "setSignaledValue:", std::uint64_t{1});
    CHECK(send<bool>(event, "waitUntilSignaledValue:timeoutMS:", std::uint64_t{2}, ~std::uint64_t{0}));
    CHECK_EQUAL(1, send<char*>(memory, "contents")[kBytes - 1]);
    send<void>(work, "waitUntilCompleted");
    while (told != 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (const Id object : {memory, event, listener}) let_go(object);
    metal.close();
  });
}

TEST_F(MetalOrder, WaitsThatDoNotEnd) {
  EXPECT_EQ(kinds_of(
                [] {
                  const Pool pool;
                  Metal metal;
                  const Id event = send(metal.device, "newSharedEvent"), work = command_buffer(metal);
                  send<void>(work, "encodeWaitForEvent:value:", event, std::uint64_t{1});
                  finish(work);
                  send<void>(event, "setSignaledValue:", std::uint64_t{1});
                  send<void>(work, "waitUntilCompleted");
                  // A handler that waits for its own command buffer.
                  const Id own = command_buffer(metal);
                  TestBlock handler = block(
                      [](TestBlock*, Id self, std::uint64_t) { send<void>(self, "waitUntilCompleted"); }, nullptr);
                  send<void>(own, "addCompletedHandler:", static_cast<Id>(&handler));
                  finish(own);
                  let_go(event);
                  metal.close();
                },
                {{"SIM_HANG_SECONDS", "1"}}),
            "hang,hang");
}

TEST_F(MetalOrder, TheHostThatDoesNotWaitReadsWhatWasThereBefore) {
  expect_clean(
      [] {
        const Pool pool;
        Metal metal;
        const Id memory = buffer(metal, kBytes), work = command_buffer(metal), blit = send(work, "blitCommandEncoder");
        fill(blit, memory, 0, kBytes, 1);
        end(blit);
        commit(work);
        CHECK_EQUAL(0, send<char*>(memory, "contents")[0]);  // a mistake of the program's
        send<void>(work, "waitUntilCompleted");
        CHECK_EQUAL(1, send<char*>(memory, "contents")[0]);
        let_go(memory);
        metal.close();
      },
      {{"SIM_SEED", "4"}, {"SIM_DELAY_US", "200000"}});
}

TEST_F(MetalOrder, ThreadsWithQueuesOfTheirOwn) {
  expect_clean(
      [] {
        Metal metal;
        const Id state = pipeline(metal, kScale, "sim_scale"), x = buffer(metal, kBytes);
        for (std::int64_t i = 0; i < kFloats; ++i) floats(x)[i] = 1;
        std::vector<std::thread> threads;
        for (int t = 0; t < 3; ++t) {
          threads.emplace_back([&] {
            const Pool pool;
            const Id queue = send(metal.device, "newCommandQueue"), y = buffer(metal, kBytes);
            for (int i = 0; i < 10; ++i) {
              const Pool inner;
              const Id work = send(queue, "commandBuffer"), compute = send(work, "computeCommandEncoder");
              scale(compute, state, y, x, static_cast<float>(i), kFloats);
              end(compute);
              commit(work);
              if (i == 9) send<void>(work, "waitUntilCompleted");
            }
            CHECK(floats(y)[kFloats - 1] == 9);
            for (const Id object : {y, queue}) let_go(object);
          });
        }
        for (auto& thread : threads) thread.join();
        for (const Id object : {x, state}) let_go(object);
        metal.close();
      },
      {{"SIM_SEED", "9"}});
}

}  // namespace
}  // namespace sim_test
