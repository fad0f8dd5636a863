// Makes every allocation of the host fail in turn, or all from it on, while streams, graphs and tensors are made, used and
// released: each failure is an exception, after which everything works again.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/ops/training.h"

// Of the linker: this program's own code.
extern "C" const char __executable_start;
extern "C" const char etext;

namespace {

thread_local long allocations_left = -1;  // before the first failure; -1: none fails
thread_local bool all_later_fail = false;
thread_local bool only_own = false;  // a vendor's library may not stand a failure

// `caller` allocates: code of this program, which the project's library is part of, or another library.
void* allocate(std::size_t bytes, std::size_t alignment, const void* caller) {
  const auto address = reinterpret_cast<std::uintptr_t>(caller);
  const bool own = address >= reinterpret_cast<std::uintptr_t>(&__executable_start) &&
                   address < reinterpret_cast<std::uintptr_t>(&etext);
  if (only_own && !own) {
    // It does not fail.
  } else if (allocations_left == 0) {
    if (!all_later_fail) allocations_left = -1;
    throw std::bad_alloc();
  } else if (allocations_left > 0) {
    --allocations_left;
  }
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes ? bytes : 1) != 0) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, 16, __builtin_return_address(0)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace anyaccel {
namespace {

float work() {
  Accelerator& accelerator = *get_accelerator();
  ops::Training ops(accelerator);
  const Stream stream = accelerator.Stream();
  const ScopeGuard current = accelerator.stream(stream);
  const Tensor x = accelerator.FloatTensor({8, 8}), sum = accelerator.FloatTensor({8, 8});
  x.fill(2);
  sum.fill(0);
  Graph graph = accelerator.create_graph();
  {
    const ScopeGuard capture = accelerator.capture_to_graph(graph);
    const Tensor square = accelerator.FloatTensor({8, 8});
    ops.multiply(square, x, x);
    ops.add(sum, sum, square);
    stream.host_call([] {});
  }
  accelerator.replay_graph(graph);
  accelerator.replay_graph(graph);
  Event event = accelerator.Event(true);
  event.record(stream);
  event.synchronize();
  return sum.to(DType::BF16).transpose(0, 1).contiguous().to_vector<float>()[5];
}

// Returns whether the work was done.
bool work_with_failure(long before, bool all_later) {
  allocations_left = before;
  all_later_fail = all_later;
  bool done = false;
  try {
    done = work() == 8;
    allocations_left = -1;
    EXPECT_TRUE(done) << "a wrong result after " << before << " allocations";
  } catch (const std::bad_alloc&) {
    allocations_left = -1;
  } catch (const Error& error) {
    allocations_left = -1;
    EXPECT_EQ(error.code(), AA_RESOURCE_EXHAUSTED) << error.what();
  }
  return done;
}

TEST(FailingNew, EachIsAnExceptionAfterWhichEverythingWorks) {
  ASSERT_EQ(work(), 8);
  const Stream& before = get_accelerator()->current_stream();
  for (const bool all_later : {false, true}) {
    // Some failures are recovered from, so that only a run without any means that all were tried.
    bool tried_all = false;
    for (long n = 0; n < 2000 && !tried_all; ++n) {
      work_with_failure(n, all_later);
      ASSERT_EQ(get_accelerator()->current_stream(), before) << n;
      ASSERT_EQ(work(), 8) << n;
      allocations_left = 1000000;
      work();
      tried_all = 1000000 - std::exchange(allocations_left, -1) <= n;
    }
    EXPECT_TRUE(tried_all) << "the work makes more allocations than this test makes fail";
  }
  EXPECT_EQ(get_accelerator()->memory_allocated(), 0);
}

// Returns false for a call that was refused.
template <class Call>
bool is_done(const Call& call) {
  try {
    call();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), AA_RESOURCE_EXHAUSTED) << error.what();
    return false;
  }
}

// The call that lacks memory is either refused, with nothing done, or made, once. There are more items than a driver keeps back.
TEST(FailingNew, AnItemIsDoneOnceOrRefused) {
  Accelerator& accelerator = *get_accelerator();
  ops::Training ops(accelerator);
  const Stream stream = accelerator.Stream(), other = accelerator.Stream();
  const ScopeGuard current = accelerator.stream(stream);
  const Tensor sum = accelerator.FloatTensor({4}), one = accelerator.FloatTensor({4});
  Event event = accelerator.Event(true), from_elsewhere = accelerator.Event();
  one.fill(1);
  bool tried_all = false;
  for (long before = -1; before < 5000 && !tried_all; ++before) {
    sum.fill(0);
    stream.synchronize();
    int calls_made = 0, calls_expected = 0, additions = 0;
    only_own = true;
    all_later_fail = false;
    allocations_left = before;
    for (int i = 0; i < 150; ++i) {
      additions += is_done([&] { ops.add(sum, sum, one); });
      if (i % 40 == 3) calls_expected += is_done([&] { stream.host_call([&calls_made] { ++calls_made; }); });
      if (i % 40 == 7) is_done([&] { event.record(stream); });
      if (i % 40 == 11) is_done([&] { from_elsewhere.record(other); });
      if (i % 40 == 11) is_done([&] { stream.wait_event(from_elsewhere); });
    }
    tried_all = before >= 0 && std::exchange(allocations_left, -1) >= 0;
    only_own = false;
    stream.synchronize();
    ASSERT_EQ(sum.to_vector<float>()[3], static_cast<float>(additions)) << "after " << before << " allocations";
    ASSERT_EQ(calls_made, calls_expected) << "after " << before << " allocations";
  }
  EXPECT_TRUE(tried_all) << "the work makes more allocations than this test makes fail";
}

}  // namespace
}  // namespace anyaccel
