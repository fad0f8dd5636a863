// Members of the accelerator that DeepSpeed's abstract class has and that are not tested with the thing they belong to:
// what capturing, waiting, pinned and registered memory do on the accelerator that DS_ACCELERATOR names, and what a program
// gets that derives from Accelerator itself.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "this_build.h"

namespace anyaccel {
namespace {

using Floats = std::vector<float>;

// Pages of the program's own.
class Pages {
 public:
  explicit Pages(size_t count) : bytes(count * static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
  }
  ~Pages() { munmap(memory, bytes); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  size_t bytes;
  void* memory;
};

class Members : public ::testing::Test {
 protected:
  // A tensor of page-locked memory; skips where the accelerator has none.
  static bool has_pinned_memory() {
    const auto& driven = dynamic_cast<DriverAccelerator&>(*get_accelerator());
    return (driven.device_properties().caps & (AA_CAP_PINNED_HOST | AA_CAP_IS_HOST)) != 0;
  }

  Accelerator& accelerator = *get_accelerator();
};

TEST_F(Members, MemGetInfo) {
  const auto [available, total] = accelerator.mem_get_info();
  EXPECT_EQ(total, accelerator.total_memory());
  EXPECT_GT(available, 0);
  EXPECT_LE(available, total);
  EXPECT_THROW(accelerator.mem_get_info(accelerator.device_count()), InvalidArgument);
}

TEST_F(Members, ComputeCapabilityIsWhatTheArchitecturesNameSays) {
  const std::string arch = accelerator.device_properties().arch;
  const auto [major, minor] = accelerator.compute_capability();
  if (arch.starts_with("sm_")) {
    EXPECT_EQ("sm_" + std::to_string(major) + std::to_string(minor), arch);
    EXPECT_GE(major, 3);
  } else {
    EXPECT_EQ(std::make_pair(major, minor), std::make_pair(0, 0)) << arch;
  }
  EXPECT_EQ(accelerator.prefer_triton_grouped_mm(), accelerator.is_triton_supported() && major >= 7 && major < 9);
  EXPECT_THROW(accelerator.compute_capability(accelerator.device_count()), InvalidArgument);
}

TEST_F(Members, IsCurrentStreamCapturing) {
  EXPECT_FALSE(accelerator.is_current_stream_capturing());
  EXPECT_FALSE(accelerator.is_current_stream_capturing(0));
  if (!accelerator.supports_graphs()) return;
  const Tensor tensor = Tensor::zeros({4}, DType::F32, accelerator.device());
  Graph graph = accelerator.create_graph();
  const Stream side = accelerator.Stream();
  {
    auto capture = accelerator.capture_to_graph(graph, {}, side);
    EXPECT_TRUE(accelerator.is_current_stream_capturing());
    tensor.fill(1);
    const auto other = accelerator.stream(accelerator.default_stream());
    EXPECT_FALSE(accelerator.is_current_stream_capturing());
  }
  EXPECT_FALSE(accelerator.is_current_stream_capturing());
  accelerator.replay_graph(graph);
  EXPECT_EQ(tensor.to_vector<float>(), (Floats{1, 1, 1, 1}));
}

// Work of one stream waits for another's, whichever way it is said.
TEST_F(Members, StreamsWaitForEachOther) {
  const int64_t n = 1 << 20;
  const Stream first = accelerator.Stream();
  const Stream second = accelerator.Stream();
  const Tensor source = Tensor::zeros({n}, DType::F32, accelerator.device());
  const Tensor middle = Tensor::zeros({n}, DType::F32, accelerator.device());
  const Tensor target = Tensor::zeros({n}, DType::F32, accelerator.device());
  accelerator.synchronize();
  for (int way = 0; way < 4; ++way) {
    const auto value = static_cast<float>(way + 1);
    {
      const auto current = accelerator.stream(first);
      source.fill(value);
      middle.copy_from(source);
    }
    if (way == 0) second.wait_stream(first);
    if (way == 1) second.wait_event(first.record_event());
    if (way == 2) {
      const Event event = accelerator.Event();
      first.record_event(event).wait(second);
    }
    const auto current = accelerator.stream(second);
    if (way == 3) {
      Event event = accelerator.Event();
      event.record(first);
      event.wait();  // the current stream
    }
    target.copy_from(middle);
    Event done = accelerator.Event();
    done.record();
    done.synchronize();
    EXPECT_EQ(target.select(0, n - 1).item<float>(), value) << way;
    first.wait_stream(second);
    first.wait_stream(first);
  }
}

TEST_F(Members, PinnedMemoryIsMadeAndGivenBack) {
  const Tensor source = Tensor::from_host(Floats{1, 2, 3, 4, 5, 6}.data(), {2, 3}, DType::F32).transpose(0, 1);
  if (!has_pinned_memory()) {
    const Tensor ordinary = accelerator.pin_memory(source);
    EXPECT_EQ(ordinary.to_vector<float>(), source.to_vector<float>());
    EXPECT_FALSE(accelerator.is_pinned(ordinary));
    EXPECT_FALSE(accelerator.is_pinned(accelerator.pin_empty({2}, DType::F32)));
    return;
  }
  const Tensor pinned = accelerator.pin_memory(source);
  EXPECT_EQ(pinned.shape(), (Shape{3, 2}));
  const Tensor flat = accelerator.pin_memory(source, /*make_copy=*/true, /*match_shape=*/false);
  EXPECT_EQ(flat.shape(), (Shape{6}));
  EXPECT_EQ(flat.to_vector<float>(), (Floats{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(accelerator.pin_memory(source, false, false).shape(), (Shape{6}));
  const Tensor fresh = accelerator.pin_empty({2, 2}, DType::BF16);
  EXPECT_EQ(fresh.dtype(), DType::BF16);
  const Tensor like = accelerator.pin_empty_like(source);
  EXPECT_EQ(like.shape(), source.shape());
  EXPECT_EQ(like.dtype(), DType::F32);
  EXPECT_EQ(accelerator.pin_empty_like(source, DType::I64).dtype(), DType::I64);
  for (const Tensor& tensor : {pinned, flat, fresh, like}) {
    EXPECT_TRUE(accelerator.is_pinned(tensor));
    EXPECT_TRUE(tensor.is_contiguous());
  }
  EXPECT_THROW(accelerator.pin_empty_like(Tensor()), InvalidArgument);

  // In place: the tensor itself, and every other on its memory, is no longer pinned and keeps its values.
  const Tensor view = flat.slice(0, 2, 6);
  const Tensor device = flat.to(accelerator.device());  // may be under way still
  EXPECT_TRUE(accelerator.unpin_memory(view));
  EXPECT_FALSE(accelerator.is_pinned(flat));
  EXPECT_FALSE(accelerator.is_pinned(view));
  EXPECT_EQ(flat.to_vector<float>(), (Floats{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(view.to_vector<float>(), (Floats{2, 5, 3, 6}));
  EXPECT_EQ(device.to_vector<float>(), (Floats{1, 4, 2, 5, 3, 6}));
  flat.fill(9);
  EXPECT_EQ(view.to(accelerator.device()).to_vector<float>(), (Floats{9, 9, 9, 9}));
  EXPECT_FALSE(accelerator.unpin_memory(flat));
  EXPECT_TRUE(accelerator.is_pinned(pinned));
  // Memory that was never pinned.
  EXPECT_FALSE(accelerator.unpin_memory(source));
  EXPECT_FALSE(accelerator.unpin_memory(device));
  EXPECT_THROW(accelerator.unpin_memory(Tensor()), InvalidArgument);
}

TEST_F(Members, UnpinnedMemoryIsNoLongerLocked) {
  if (accelerator.name() != "cpu") GTEST_SKIP() << "other accelerators lock memory in the vendor's way";
  const auto locked = [] {
    std::FILE* file = std::fopen("/proc/self/status", "r");
    char line[256];
    long kilobytes = -1;
    while (std::fgets(line, sizeof(line), file)) std::sscanf(line, "VmLck: %ld", &kilobytes);
    std::fclose(file);
    return kilobytes;
  };
  const long before = locked();
  const Tensor pinned = accelerator.pin_empty({1 << 14}, DType::F32);
  const bool locks = test::sanitizer() == test::Sanitizer::none;  // with others mlock does nothing
  EXPECT_EQ(locked(), before + (locks ? 64 : 0));
  EXPECT_TRUE(accelerator.unpin_memory(pinned));
  EXPECT_EQ(locked(), before);
}

TEST_F(Members, HostMemoryIsRegistered) {
  Pages pages(4);
  const Tensor inside = Tensor::from_blob(pages.memory, {8}, DType::F32, nullptr);
  inside.fill(2);
  if (!accelerator.register_host_memory(pages.memory, pages.bytes)) {
    // The defined answer of an accelerator that has no such thing.
    EXPECT_EQ(accelerator.pin_memory_alignment(), 1u);
    accelerator.unregister_host_memory(pages.memory);
    EXPECT_FALSE(accelerator.is_pinned(inside));
    return;
  }
  EXPECT_EQ(accelerator.pin_memory_alignment(), static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  EXPECT_TRUE(accelerator.is_pinned(inside));
  const auto expect_code = [](aa_code code, const std::function<void()>& body) {
    try {
      body();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
    }
  };
  char* const first = static_cast<char*>(pages.memory);
  const size_t page = pages.bytes / 4;
  expect_code(AA_ALREADY_EXISTS, [&] { accelerator.register_host_memory(first, pages.bytes); });
  expect_code(AA_ALREADY_EXISTS, [&] { accelerator.register_host_memory(first + page, page); });
  expect_code(AA_INVALID_ARGUMENT, [&] { accelerator.register_host_memory(first, SIZE_MAX); });
  const Tensor there = inside.to(accelerator.device());
  EXPECT_EQ(there.to_vector<float>(), Floats(8, 2));
  EXPECT_FALSE(accelerator.unpin_memory(inside)) << "the program's own memory is the program's";
  if (accelerator.device_count() > 1) accelerator.set_device(1);
  accelerator.unregister_host_memory(pages.memory);
  accelerator.set_device(0);
  EXPECT_FALSE(accelerator.is_pinned(inside));
  expect_code(AA_NOT_FOUND, [&] { accelerator.unregister_host_memory(pages.memory); });
  EXPECT_THROW(accelerator.register_host_memory(nullptr, 16), InvalidArgument);
  EXPECT_THROW(accelerator.register_host_memory(pages.memory, 0), InvalidArgument);
  EXPECT_TRUE(accelerator.register_host_memory(pages.memory, pages.bytes));
  accelerator.unregister_host_memory(pages.memory);
  // Not what pin_memory() made.
  const Tensor pinned = accelerator.pin_empty({16}, DType::F32);
  EXPECT_THROW(accelerator.unregister_host_memory(pinned.data()), InvalidArgument);
  EXPECT_TRUE(accelerator.is_pinned(pinned));
}

// An accelerator that derives from Accelerator and defines only the pure virtual functions has useful defaults.
TEST_F(Members, DefaultsOfTheInterface) {
  char memory[64];
  EXPECT_FALSE(accelerator.Accelerator::is_current_stream_capturing());
  EXPECT_FALSE(accelerator.Accelerator::register_host_memory(memory, sizeof(memory)));
  EXPECT_NO_THROW(accelerator.Accelerator::unregister_host_memory(memory));
  EXPECT_EQ(accelerator.Accelerator::pin_memory_alignment(), 1u);
  EXPECT_FALSE(accelerator.Accelerator::prefer_triton_grouped_mm());
  EXPECT_EQ(accelerator.Accelerator::mem_get_info().second, accelerator.total_memory());
}

// A stream of such a program, without events.
class PlainStream final : public detail::StreamState {
 public:
  explicit PlainStream(int& waits) : waits_(waits) {}
  int device_index() const noexcept override { return 0; }
  bool query() const override { return true; }
  void synchronize() const override { ++waits_; }
  void wait_event(const detail::EventState&) override { throw NotImplementedError("no events"); }
  void host_call(std::function<void()>) override {}
  void* native_handle() const override { return nullptr; }

 private:
  int& waits_;
};

TEST(StreamsWithoutEvents, WaitOnTheHost) {
  int waits = 0, others = 0;
  const Stream stream(std::make_shared<PlainStream>(waits));
  const Stream other(std::make_shared<PlainStream>(others));
  EXPECT_THROW(stream.record_event(), NotImplementedError);
  stream.wait_stream(other);
  EXPECT_EQ(others, 1);
  EXPECT_EQ(waits, 0);
}

// The minimal plugin: no events, no page-locked or registered memory, no graphs.
TEST(MembersOfAPlugin, HaveDefinedAnswers) {
  const LoadedDriver plugin = load_plugin(test::built("tests/plugins/minimal.so"));
  DriverAccelerator accelerator(plugin.table, plugin.origin);
  char memory[64];
  EXPECT_FALSE(accelerator.is_current_stream_capturing());
  EXPECT_FALSE(accelerator.register_host_memory(memory, sizeof(memory)));
  EXPECT_NO_THROW(accelerator.unregister_host_memory(memory));
  EXPECT_EQ(accelerator.pin_memory_alignment(), 1u);
  EXPECT_EQ(accelerator.compute_capability(), std::make_pair(0, 0));
  EXPECT_FALSE(accelerator.prefer_triton_grouped_mm());
  EXPECT_EQ(accelerator.mem_get_info(), std::make_pair(int64_t{1} << 32, int64_t{1} << 32));
  EXPECT_FALSE(accelerator.is_pinned(accelerator.pin_empty({4}, DType::F32)));
  const Stream first = accelerator.Stream();
  const Stream second = accelerator.Stream();
  EXPECT_TRUE(first.record_event().query());
  second.wait_stream(first);
}

}  // namespace
}  // namespace anyaccel
