// A launch through the accelerator object allocates nothing in this process's C++ code on its way to the vendor's driver; nor
// do copies, fills and events. Counted on the simulated driver with functions in its place that do nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "cuda/simulated_test_support.h"
#include "ops/portable/kernel_set.h"

namespace {
thread_local long allocations = 0;
thread_local bool counting = false;
}  // namespace

// Not inlined: the compiler would see malloc and free meet delete and new.
[[gnu::noinline]] void* operator new(size_t size) {
  if (counting) ++allocations;
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace anyaccel::cuda_test {
namespace {

// Stands in for the vendor's functions: succeeds at once.
int launches = 0;
cuda::Result launch_kernel(cuda::FunctionHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           cuda::StreamHandle, void**, void**) {
  ++launches;
  return cuda::success;
}
cuda::Result copy(cuda::DevicePointer, cuda::DevicePointer, size_t, cuda::StreamHandle) { return cuda::success; }
cuda::Result fill(cuda::DevicePointer, unsigned, size_t, cuda::StreamHandle) { return cuda::success; }
cuda::Result record(cuda::EventHandle, cuda::StreamHandle) { return cuda::success; }
cuda::Result wait(cuda::StreamHandle, cuda::EventHandle, unsigned) { return cuda::success; }

// Counts while it lives.
class Counter {
 public:
  Counter() : before_(allocations) { counting = true; }
  ~Counter() { counting = false; }
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;
  long count() const { return allocations - before_; }

 private:
  const long before_;
};

// Replaces the vendor's functions while it lives: what is counted is our own share.
class QuickVendor {
 public:
  QuickVendor() : api_(const_cast<cuda::Api&>(*cuda::start_platform().api)), before_(api_) {
    api_.launch_kernel = launch_kernel;
    api_.copy_async = copy;
    api_.fill_32_async = fill;
    api_.event_record = record;
    api_.stream_wait_event = wait;
  }
  ~QuickVendor() { api_ = before_; }
  QuickVendor(const QuickVendor&) = delete;
  QuickVendor& operator=(const QuickVendor&) = delete;

 private:
  cuda::Api& api_;
  const cuda::Api before_;
};

class CudaLaunchAllocations : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = simulator_missing(); !missing.empty()) GTEST_SKIP() << missing;
  }
};

TEST_F(CudaLaunchAllocations, TheCounterCounts) {
  const Counter counter;
  delete new int(1);
  EXPECT_EQ(counter.count(), 1);
}

TEST_F(CudaLaunchAllocations, NoneThroughTheTable) {
  Simulated({}, [] {
    Opened d;
    aa_stream* stream = d.stream();
    aa_event* event = d.event();
    char* memory = d.memory(1000);
    aa_module* module = nullptr;
    aa_kernel* kernel = nullptr;
    const std::string image = "SIMCUBIN\narch sm_90\nkernel nothing\n";
    ok(d.table.module_load(d.device(), image.data(), image.size(), "cubin", &module));
    ok(d.table.kernel_get(module, "nothing", &kernel, nullptr));
    const int32_t unused = 0;
    const void* arguments[] = {&unused};
    const uint32_t sizes[] = {sizeof(unused)};
    const uint8_t kinds[] = {AA_ARGUMENT_VALUE};
    auto launch = abi::sized<aa_launch>();
    for (size_t i = 0; i < 3; ++i) launch.grid[i] = launch.block[i] = 1;
    launch.argument_count = 1;
    launch.arguments = arguments;
    launch.argument_sizes = sizes;
    launch.argument_kinds = kinds;
    const uint32_t value = 1;
    {
      const QuickVendor vendor;
      bool good = true;
      const Counter counter;
      for (int i = 0; i < 100; ++i) {
        good &= !d.table.kernel_launch(stream, kernel, &launch);
        good &= !d.table.copy_async(stream, memory, memory + 500, 100, AA_COPY_DEVICE_TO_DEVICE);
        good &= !d.table.fill_async(stream, memory, &value, 4, 400);
        good &= !d.table.event_record(event, stream);
        good &= !d.table.stream_wait_event(stream, event);
      }
      EXPECT_EQ(counter.count(), 0);
      EXPECT_TRUE(good);
      EXPECT_EQ(launches, 100);
    }
    ok(d.table.module_unload(module));
    ok(d.table.event_destroy(event));
    ok(d.table.stream_destroy(stream));
    d.free(memory, 1000);
  }).clean();
}

TEST_F(CudaLaunchAllocations, NoneThroughTheAccelerator) {
  if (!std::filesystem::exists(simulated_libraries + "/libnvrtc.so.13")) GTEST_SKIP() << "no simulated NVRTC was built";
  Simulated({{"ANYACCEL_KERNEL_TUNING", "group_size=32,lanes=8,subgroup_size=8,items=32,local_memory=16384"}}, [] {
    const std::unique_ptr<Accelerator> made = make_accelerator("cuda");
    auto& accelerator = dynamic_cast<DriverAccelerator&>(*made);
    {
      ops::portable::KernelSet kernels(accelerator, "nothing.cl", {"nothing"});
      const DeviceKernel& kernel = kernels.get(0, 0, ops::portable::Element::F32, ops::portable::Element::F32);
      kernel.launch({}, int32_t{0});
      accelerator.synchronize();
      const QuickVendor vendor;
      const Counter counter;
      for (int i = 0; i < 100; ++i) kernel.launch({}, int32_t{0});
      EXPECT_EQ(counter.count(), 0);
      EXPECT_EQ(launches, 100);
    }
  });
}

}  // namespace
}  // namespace anyaccel::cuda_test
