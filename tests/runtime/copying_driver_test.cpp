// A driver that can only allocate, copy and synchronize is a whole accelerator: what else programs ask for has an answer of the
// host. On the asynchronous reference driver, whose memory the host cannot touch.
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <vector>

#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "anyaccel/tensor.h"
#include "this_build.h"

namespace anyaccel {
namespace {

// A program may have one accelerator of a kind open: the reference driver in its smallest form.
class CopyingDriver : public testing::Test {
 protected:
  static DriverAccelerator& accelerator() {
    static DriverAccelerator& made = [&]() -> DriverAccelerator& {
      setenv("ANYACCEL_REFERENCE_ASYNC_OPTIONS", "leaves_out=all", 1);
      static const LoadedDriver plugin = load_plugin(test::built("tests/plugins/reference_async.so"));
      return *new DriverAccelerator(plugin.table, plugin.origin);
    }();
    return made;
  }

  // Returns the bytes that the device has at this address.
  template <class T>
  static std::vector<T> read(const void* from, size_t count) {
    std::vector<T> values(count);
    accelerator().copy(values.data(), from, count * sizeof(T), AA_COPY_DEVICE_TO_HOST, 0);
    accelerator().synchronize();
    return values;
  }
};

TEST_F(CopyingDriver, FillsByCopies) {
  // Larger than a piece, and no multiple of it.
  constexpr size_t count = 3000001;
  const auto storage = accelerator().allocate(count * sizeof(int32_t), 0);
  for (const int32_t value : {7, -123456789}) {
    accelerator().fill(storage->data(), &value, sizeof(value), count * sizeof(value), 0);
    EXPECT_EQ(read<int32_t>(storage->data(), count), std::vector<int32_t>(count, value));
  }
  const unsigned char byte = 0xAB;
  accelerator().fill(static_cast<char*>(storage->data()) + 1, &byte, 1, 5, 0);
  EXPECT_EQ(read<unsigned char>(storage->data(), 7)[6], 0xA4);  // of -123456789
  EXPECT_EQ(read<unsigned char>(storage->data(), 7)[5], byte);
  const int32_t value = 1;
  EXPECT_THROW(accelerator().fill(storage->data(), &value, sizeof(value), 6, 0), InvalidArgument);
  const Tensor zeros = Tensor::zeros({5, 3}, DType::F32, accelerator().device());
  EXPECT_EQ(zeros.to_vector<float>(), std::vector<float>(15, 0));
  Tensor ones = Tensor::empty({1000}, DType::BF16, accelerator().device());
  ones.fill(1);
  EXPECT_EQ(ones.to(DType::F32).to_vector<float>(), std::vector<float>(1000, 1));
}

TEST_F(CopyingDriver, EventsAreMarkersThatTheHostWaitsFor) {
  std::vector<int32_t> values(1000000);
  std::iota(values.begin(), values.end(), 0);
  const auto storage = accelerator().allocate(values.size() * sizeof(int32_t), 0);
  const Stream first = accelerator().Stream();
  const Stream second = accelerator().Stream();
  Event start = accelerator().Event(true);
  Event end = accelerator().Event(true);
  EXPECT_TRUE(end.query()) << "an event that was never recorded is complete";
  EXPECT_THROW(start.elapsed_time(end), InvalidArgument);
  start.record(first);
  {
    const ScopeGuard guard = accelerator().stream(first);
    accelerator().copy(storage->data(), values.data(), values.size() * sizeof(int32_t), AA_COPY_HOST_TO_DEVICE, 0);
  }
  end.record(first);
  EXPECT_TRUE(end.query());
  end.synchronize();
  second.wait_event(end);
  second.wait_stream(first);
  std::vector<int32_t> found(values.size());
  {
    const ScopeGuard guard = accelerator().stream(second);
    accelerator().copy(found.data(), storage->data(), found.size() * sizeof(int32_t), AA_COPY_DEVICE_TO_HOST, 0);
  }
  EXPECT_TRUE(second.query()) << "it waits, where a driver cannot be asked";
  EXPECT_EQ(found, values);
  EXPECT_GE(start.elapsed_time(end), 0);
  EXPECT_EQ(end.elapsed_time(start), -start.elapsed_time(end));
  EXPECT_TRUE(second.record_event());
}

TEST_F(CopyingDriver, HostCallsComeAfterTheWorkBeforeThem) {
  std::vector<int32_t> values(1000000, 5);
  const auto storage = accelerator().allocate(values.size() * sizeof(int32_t), 0);
  const Stream stream = accelerator().Stream();
  const ScopeGuard guard = accelerator().stream(stream);
  std::vector<int32_t> found(values.size());
  accelerator().copy(storage->data(), values.data(), values.size() * sizeof(int32_t), AA_COPY_HOST_TO_DEVICE, 0);
  accelerator().copy(found.data(), storage->data(), values.size() * sizeof(int32_t), AA_COPY_DEVICE_TO_HOST, 0);
  int calls = 0;
  stream.host_call([&] {
    EXPECT_EQ(found, values);
    ++calls;
  });
  EXPECT_EQ(calls, 1);
}

TEST_F(CopyingDriver, WhatAHostCallThrowsIsLogged) {
  const Stream stream = accelerator().Stream();
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(stream.host_call([] { throw std::runtime_error("some reason"); }));
  EXPECT_NO_THROW(stream.host_call([] { throw 42; }));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("some reason"), std::string::npos) << log;
  EXPECT_NE(log.find("not a std::exception"), std::string::npos) << log;
}

TEST_F(CopyingDriver, PinnedMemoryIsOrdinaryMemory) {
  const Tensor source = Tensor::from_host(std::vector<float>{1, 2, 3, 4}.data(), {2, 2}, DType::F32);
  testing::internal::CaptureStderr();
  const Tensor pinned = accelerator().pin_memory(source);
  const Tensor again = accelerator().pin_empty({3}, DType::I32);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("pin_memory goes on with ordinary memory"), std::string::npos) << log;
  EXPECT_EQ(log.find("goes on"), log.rfind("goes on")) << "said more than once: " << log;
  EXPECT_EQ(pinned.to_vector<float>(), source.to_vector<float>());
  EXPECT_FALSE(accelerator().is_pinned(pinned));
  EXPECT_FALSE(accelerator().unpin_memory(pinned));
  EXPECT_EQ(again.numel(), 3);
}

// Memory that one stream frees while another one uses it is given out only when the other one is done.
TEST_F(CopyingDriver, MemoryIsNotGivenOutWhileItIsUsed) {
  constexpr size_t size = size_t{8} << 20;
  const Stream other = accelerator().Stream();
  const std::vector<unsigned char> ones(size, 1), twos(size, 2);
  std::vector<unsigned char> found(size);
  for (int round = 0; round < 5; ++round) {
    Tensor used = Tensor::empty({static_cast<int64_t>(size)}, DType::U8, accelerator().device());
    accelerator().copy(used.data(), ones.data(), size, AA_COPY_HOST_TO_DEVICE, 0);
    accelerator().synchronize();
    {
      const ScopeGuard guard = accelerator().stream(other);
      for (int i = 0; i < 5; ++i) accelerator().copy(found.data(), used.data(), size, AA_COPY_DEVICE_TO_HOST, 0);
    }
    used.storage()->record_stream(other);
    used = {};
    const Tensor next = Tensor::empty({static_cast<int64_t>(size)}, DType::U8, accelerator().device());
    accelerator().copy(next.data(), twos.data(), size, AA_COPY_HOST_TO_DEVICE, 0);
    accelerator().synchronize();
    other.synchronize();
    EXPECT_EQ(found, ones);
  }
}

}  // namespace
}  // namespace anyaccel
