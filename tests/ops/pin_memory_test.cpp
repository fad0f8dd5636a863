// Tests of page-locked tensors: which memory counts as locked, and when it goes.
#include "anyaccel/ops/pin_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "anyaccel/error.h"
#include "anyaccel/ops/async_io.h"
#include "this_build.h"

namespace anyaccel::ops {
namespace {

class PinMemoryTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("DS_ACCELERATOR", "cpu", 0); }
  PinMemory pins{*get_accelerator()};
};

TEST_F(PinMemoryTest, MakesLockedTensors) {
  const Tensor t = pins.new_cpu_locked_tensor(1000, DType::BF16);
  EXPECT_EQ(t.shape(), Shape{1000});
  EXPECT_EQ(t.dtype(), DType::BF16);
  EXPECT_TRUE(t.device().is_host());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data()) % static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), 0u);
  t.fill(2);
  EXPECT_EQ(t.select(0, 999).item<float>(), 2);
  EXPECT_TRUE(get_accelerator()->is_pinned(t));
  EXPECT_EQ(pins.new_cpu_locked_tensor(3, Tensor::empty({9}, DType::I64)).dtype(), DType::I64);
  EXPECT_EQ(pins.new_cpu_locked_tensor(0, DType::F32).numel(), 0);
  EXPECT_THROW(pins.new_cpu_locked_tensor(-1, DType::F32), InvalidArgument);
  EXPECT_THROW(pins.new_cpu_locked_tensor(1, Tensor()), InvalidArgument);
  EXPECT_THROW(pins.new_cpu_locked_tensor(1, DType::None), InvalidArgument);
}

TEST_F(PinMemoryTest, ViewsCountWhenAllOfThemIsInside) {
  const Tensor t = pins.new_cpu_locked_tensor(1000, DType::F32);
  EXPECT_TRUE(pins.is_managed(t));
  EXPECT_TRUE(pins.is_managed(t.slice(0, 999, 1000)));
  EXPECT_TRUE(pins.is_managed(t.view({10, 100}).transpose(0, 1).slice(0, 3, 90, 7)));
  // The last bytes of a page that was locked for less, and what reaches over the end.
  EXPECT_TRUE(pins.is_managed(Tensor::from_blob(t.data(), {1000}, DType::F32, nullptr)));
  EXPECT_FALSE(pins.is_managed(Tensor::from_blob(t.data(), {1001}, DType::F32, nullptr)));
  EXPECT_FALSE(pins.is_managed(Tensor::from_blob(t.data_as<float>() + 1000, {1}, DType::F32, nullptr)));
  EXPECT_FALSE(pins.is_managed(Tensor::empty({4}, DType::F32)));
  EXPECT_FALSE(pins.is_managed(Tensor()));
  EXPECT_FALSE(pins.is_pinned(Tensor()));
  // Locked by the accelerator itself.
  const Tensor other = get_accelerator()->pin_memory(t);
  EXPECT_TRUE(pins.is_pinned(other));
  EXPECT_FALSE(pins.is_managed(other));
}

TEST_F(PinMemoryTest, FreesOnce) {
  Tensor t = pins.new_cpu_locked_tensor(1000, DType::F32);
  t.fill(3);
  Tensor view = t.slice(0, 10, 20);
  Tensor copy = t;
  EXPECT_FALSE(pins.free_cpu_locked_tensor(view));
  EXPECT_TRUE(view);
  EXPECT_TRUE(pins.free_cpu_locked_tensor(t));
  EXPECT_FALSE(t);
  EXPECT_FALSE(pins.is_managed(copy));
  EXPECT_FALSE(pins.free_cpu_locked_tensor(copy));
  EXPECT_EQ(view.select(0, 9).item<float>(), 3);  // a view keeps the memory
  Tensor ordinary = Tensor::empty({3}, DType::F32);
  EXPECT_FALSE(pins.free_cpu_locked_tensor(ordinary));
  EXPECT_FALSE(pins.free_cpu_locked_tensor(t));

  const Tensor by_pointer = pins.new_cpu_locked_tensor(10, DType::F32);
  EXPECT_FALSE(pins.free_cpu_locked_tensor_by_ptr(by_pointer.data_as<float>() + 1));
  EXPECT_TRUE(pins.free_cpu_locked_tensor_by_ptr(by_pointer.data()));
  EXPECT_FALSE(pins.free_cpu_locked_tensor_by_ptr(by_pointer.data()));
  EXPECT_FALSE(pins.free_cpu_locked_tensor_by_ptr(nullptr));
}

TEST_F(PinMemoryTest, ATensorThatGoesTakesItsRegionAlong) {
  void* address = nullptr;
  {
    const Tensor t = pins.new_cpu_locked_tensor(1000, DType::F32);
    address = t.data();
  }
  EXPECT_FALSE(pins.free_cpu_locked_tensor_by_ptr(address));
}

TEST_F(PinMemoryTest, AllFacesKnowAllRegions) {
  AioHandle handle = AsyncIO(*get_accelerator()).aio_handle();
  Tensor t = handle.new_cpu_locked_tensor(10, DType::U8);
  auto loaded = get_accelerator()->create_op_builder("PinMemoryBuilder")->load_as<PinMemory>();
  EXPECT_TRUE(loaded->is_managed(t));
  EXPECT_TRUE(loaded->free_cpu_locked_tensor(t));
}

TEST_F(PinMemoryTest, TheLimitIsAnErrorThatNamesIt) {
  if (test::sanitizer() != test::Sanitizer::none) GTEST_SKIP() << "the sanitizers' runtime makes mlock do nothing";
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{65536, 65536};
    setrlimit(RLIMIT_MEMLOCK, &limit);
    if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(0);
    try {
      pins.new_cpu_locked_tensor(1 << 20, DType::F32);
      _exit(1);
    } catch (const OutOfMemoryError& error) {
      _exit(std::string(error.what()).find("ulimit -l") == std::string::npos ? 2 : 0);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace anyaccel::ops
