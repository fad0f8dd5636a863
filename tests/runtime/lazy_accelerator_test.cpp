// An accelerator that holds work back: what makes it go on without anybody asking for a result.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "this_build.h"

namespace anyaccel {
namespace {

// The reference driver in its lazy mode: an item runs when it is released, and at no other time.
class LazyAccelerator : public ::testing::Test {
 protected:
  LazyAccelerator() {
    set_driver_options("reference.async", "lazy=1");
    const LoadedDriver loaded = load_plugin(test::built("tests/plugins/reference_async.so"));
    accelerator = std::make_unique<DriverAccelerator>(loaded.table, loaded.origin);
    stream = accelerator->Stream();
  }
  ~LazyAccelerator() override { set_driver_options("reference.async", ""); }
  void enqueue() {
    stream.host_call([this] { ran = true; });
  }
  // Without the release it waits until the test's time is up.
  void wait_for_the_work() const {
    while (!ran) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::unique_ptr<DriverAccelerator> accelerator;
  Stream stream;
  std::atomic<bool> ran{false};
};

TEST_F(LazyAccelerator, FlushReleasesTheCurrentStream) {
  const ScopeGuard current = accelerator->stream(stream);
  enqueue();
  EXPECT_FALSE(ran);
  accelerator->flush();
  wait_for_the_work();
}

TEST_F(LazyAccelerator, AStreamThatIsLeftIsFlushed) {
  {
    const ScopeGuard current = accelerator->stream(stream);
    enqueue();
    EXPECT_FALSE(ran);
  }
  wait_for_the_work();
}

TEST_F(LazyAccelerator, AnotherStreamInItsPlaceFlushesToo) {
  const ScopeGuard current = accelerator->stream(stream);
  enqueue();
  const Stream other = accelerator->Stream();
  EXPECT_FALSE(ran);
  const ScopeGuard instead = accelerator->stream(other);
  wait_for_the_work();
}

TEST_F(LazyAccelerator, AStepReleasesItsWorkAtItsEnd) {
  const ScopeGuard current = accelerator->stream(stream);
  {
    const ScopeGuard step = accelerator->step(7);
    enqueue();
    EXPECT_FALSE(ran);
  }
  wait_for_the_work();
}

TEST_F(LazyAccelerator, OthersHaveNothingToFlush) {
  EXPECT_NO_THROW(get_accelerator()->flush());
  const ScopeGuard step = get_accelerator()->step(1);
  EXPECT_NO_THROW(get_accelerator()->synchronize());
}

}  // namespace
}  // namespace anyaccel
