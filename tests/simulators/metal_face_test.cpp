// The simulated Metal: devices, buffers, libraries, command buffers and encoders, and the mistakes that it must find. Order between
// commands is in metal_order_test.cpp.
#include "tests/simulators/metal_face.h"

#include <atomic>
#include <thread>

namespace {

using namespace sim_test;  // NOLINT: a test of one interface

constexpr UInteger kBytes = 4096;
constexpr std::int64_t kFloats = kBytes / 4;

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

}  // namespace
