// Copies between two devices of one accelerator, and memory of named kinds: on the reference driver, with the validate layer.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "anyaccel/abi/peer.h"
#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "runtime/driver/host_services.h"
#include "this_build.h"

namespace anyaccel {
namespace {

using Floats = std::vector<float>;

Floats counted(size_t size, float first) {
  Floats values(size);
  std::iota(values.begin(), values.end(), first);
  return values;
}

class DeviceCopies : public ::testing::TestWithParam<const char*> {
 protected:
  DeviceCopies() {
    set_driver_options("reference.async", GetParam());
    setenv("ANYACCEL_LAYERS", "validate", 1);
    const LoadedDriver loaded = load_plugin(test::built("tests/plugins/reference_async.so"));
    accelerator = std::make_unique<DriverAccelerator>(loaded.table, loaded.origin);
  }
  ~DeviceCopies() override {
    unsetenv("ANYACCEL_LAYERS");
    set_driver_options("reference.async", "");
  }
  Tensor on(int index, const Floats& values) {
    Floats copy = values;
    const Tensor host = Tensor::from_blob(copy.data(), Shape{static_cast<int64_t>(copy.size())}, DType::F32, nullptr);
    return host.to(accelerator->device(index));
  }
  // Holds the current stream of a device until `gate` is set.
  void hold(int index, std::promise<void>& gate) {
    accelerator->current_stream(index).host_call([opened = gate.get_future().share()] { opened.wait(); });
  }

  std::unique_ptr<DriverAccelerator> accelerator;
};

// A copy by way of the host would wait for the gate, which is opened after it.
TEST_P(DeviceCopies, RunBehindTheSourcesWorkAndBeforeItsMemoryIsUsedAgain) {
  const Floats values = counted(5000, 1);
  Tensor source = on(0, Floats(5000, -1));
  const Tensor written = on(0, values);
  const Tensor target = on(1, Floats(5000, -2));
  std::promise<void> gate;
  hold(0, gate);
  source.copy_from(written);
  target.copy_from(source);
  const void* const address = source.data();
  source = {};
  Tensor next = Tensor::empty(Shape{5000}, DType::F32, accelerator->device(0));
  EXPECT_EQ(next.data(), address) << "the test is of no use: the memory was not given out again";
  next.fill(7);
  gate.set_value();
  EXPECT_EQ(target.to_vector<float>(), values);
  EXPECT_EQ(next.to_vector<float>(), Floats(5000, 7));
}

// The same where only the destination holds the copy up: nothing but the copy itself keeps the next owner of the source's
// memory from writing to it.
TEST_P(DeviceCopies, HoldTheSourcesMemory) {
  const Floats values = counted(5000, 1);
  Tensor source = on(0, values);
  const Tensor target = on(1, Floats(5000, -2));
  std::promise<void> gate;
  hold(1, gate);
  target.copy_from(source);
  const void* const address = source.data();
  source = {};
  Tensor next = Tensor::empty(Shape{5000}, DType::F32, accelerator->device(0));
  EXPECT_EQ(next.data(), address) << "the test is of no use: the memory was not given out again";
  next.fill(7);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(accelerator->current_stream(0).query());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  gate.set_value();
  EXPECT_EQ(target.to_vector<float>(), values);
  EXPECT_EQ(next.to_vector<float>(), Floats(5000, 7));
}

TEST_P(DeviceCopies, RunBehindTheDestinationsWork) {
  const Floats values = counted(300, 1);
  const Tensor source = on(1, values);
  const Tensor target = on(0, Floats(300, -1));
  std::promise<void> gate;
  hold(0, gate);
  target.fill(3);
  target.copy_from(source);
  gate.set_value();
  EXPECT_EQ(target.to_vector<float>(), values);
  EXPECT_EQ(source.to_vector<float>(), values);
}

TEST_P(DeviceCopies, OfASourceOfAnotherStream) {
  const Floats values = counted(300, 1);
  const Tensor target = on(1, Floats(300, -1));
  const Stream side = accelerator->Stream();
  std::promise<void> gate;
  Tensor source;
  {
    const ScopeGuard current = accelerator->stream(side);
    source = on(0, values);
  }
  hold(0, gate);
  target.copy_from(source);
  {
    const ScopeGuard current = accelerator->stream(side);
    source = {};
    Tensor::empty(Shape{300}, DType::F32, accelerator->device(0)).fill(9);
    side.synchronize();
  }
  gate.set_value();
  EXPECT_EQ(target.to_vector<float>(), values);
}

TEST_P(DeviceCopies, OfAnyLayoutAndType) {
  const Tensor source = on(0, counted(12, 0)).view(Shape{3, 4});
  const Tensor turned = source.transpose(0, 1).to(accelerator->device(1));
  EXPECT_EQ(turned.device(), accelerator->device(1));
  EXPECT_EQ(turned.to_vector<float>(), (Floats{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
  const Tensor whole = Tensor::empty(Shape{3, 4}, DType::I32, accelerator->device(1));
  whole.copy_from(source);
  EXPECT_EQ(whole.to_vector<int32_t>(), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  const Tensor into = on(1, Floats(12, -1)).view(Shape{4, 3});
  into.transpose(0, 1).copy_from(source);
  EXPECT_EQ(into.to_vector<float>(), (Floats{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
  const Tensor none = Tensor::empty(Shape{0}, DType::F32, accelerator->device(0));
  EXPECT_EQ(none.to(accelerator->device(1)).numel(), 0);
}

TEST_P(DeviceCopies, AreCheckedByTheValidateLayer) {
  const auto* peer =
      static_cast<const abi::Calls<aa_peer_table>*>(accelerator->extension(AA_PEER_EXTENSION, AA_PEER_VERSION));
  ASSERT_NE(peer, nullptr);
  const Tensor here = on(0, Floats(100, 1));
  const Tensor there = on(1, Floats(100, 2));
  aa_stream* const stream = DriverAccelerator::handle(accelerator->current_stream(0));
  auto right = abi::sized<aa_peer_copy>();
  right.destination_device = accelerator->device_handle(1);
  right.source_device = accelerator->device_handle(0);
  right.destination = there.data();
  right.source = here.data();
  right.size = 400;
  const auto message = [&](const aa_peer_copy& what) {
    const StatusRef status(peer->copy_async(stream, &what));
    return std::string(status.message());
  };
  EXPECT_EQ(message(right), "");
  accelerator->synchronize(0);
  set_log_level(LogLevel::off);
  aa_peer_copy what = right;
  what.source_device = what.destination_device;
  EXPECT_NE(message(what).find("are the same"), std::string::npos);
  what = right;
  what.source_device = nullptr;
  EXPECT_NE(message(what).find("source_device is not a living device"), std::string::npos);
  what = right;
  what.source = there.data();
  EXPECT_NE(message(what).find("source: "), std::string::npos);
  what = right;
  what.destination = here.data();
  EXPECT_NE(message(what).find("destination: "), std::string::npos);
  set_log_level(LogLevel::warning);
  EXPECT_EQ(there.to_vector<float>(), Floats(100, 1));
}

TEST_P(DeviceCopies, MemoryIsRecordedForStreamsOfItsDeviceOnly) {
  const Tensor tensor = on(0, {1, 2});
  EXPECT_THROW(tensor.storage()->record_stream(accelerator->current_stream(1)), InvalidArgument);
}

// ---- named kinds of memory ----

TEST_P(DeviceCopies, NamedMemoryIsListedAndCounted) {
  std::vector<MemoryKind> kinds = accelerator->memory_kinds(1);
  ASSERT_EQ(kinds.size(), 1u);
  EXPECT_EQ(kinds[0].name, "spare");
  EXPECT_TRUE(kinds[0].for_ops);
  EXPECT_FALSE(kinds[0].host_access);
  EXPECT_EQ(kinds[0].allocated, 0);
  EXPECT_EQ(kinds[0].free, kinds[0].total);
  {
    const Tensor tensor = accelerator->empty_in("spare", Shape{1000, 3}, DType::F32, 1);
    EXPECT_EQ(tensor.device(), accelerator->device(1));
    EXPECT_EQ(tensor.shape(), (Shape{1000, 3}));
    kinds = accelerator->memory_kinds(1);
    EXPECT_EQ(kinds[0].allocated, 12000);
    EXPECT_LE(kinds[0].free, kinds[0].total - 12000);
    EXPECT_EQ(accelerator->memory_kinds(0)[0].allocated, 0);
    const Floats values = counted(3000, 5);
    tensor.view(Shape{3000}).copy_from(on(0, values));
    EXPECT_EQ(tensor.to_vector<float>(), values);
    tensor.fill(2);
    EXPECT_EQ(tensor.clone().to_vector<float>(), Floats(3000, 2));
  }
  kinds = accelerator->memory_kinds(1);
  EXPECT_EQ(kinds[0].allocated, 0);
  EXPECT_EQ(kinds[0].free, kinds[0].total);
}

TEST_P(DeviceCopies, NamedMemoryThatIsNotThere) {
  try {
    accelerator->empty_in("hbm", Shape{1}, DType::F32);
    ADD_FAILURE() << "there is no such memory";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("no memory called \"hbm\"; it has spare"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(accelerator->empty_in("spare", Shape{int64_t{1} << 28}, DType::F32), OutOfMemoryError);
  EXPECT_THROW(accelerator->empty_in("spare", Shape{1}, DType::None), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Modes, DeviceCopies, testing::Values("", "lazy=1"),
                         [](const auto& info) { return *info.param ? "Lazy" : "Eager"; });

TEST(OtherAccelerators, HaveNeither) {
  EXPECT_TRUE(get_accelerator()->memory_kinds().empty());
  EXPECT_THROW(get_accelerator()->empty_in("spare", Shape{1}, DType::F32), InvalidArgument);
}

}  // namespace
}  // namespace anyaccel
