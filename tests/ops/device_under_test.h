// The op tests on an accelerator: with ANYACCEL_TEST_ACCELERATOR=xpu (any known name) they compare that accelerator, its own
// ops or the portable kernels, with the CPU's reference, instead of the CPU's fast versions. A machine that lacks it skips
// the whole test program (exit code 77). With ANYACCEL_TEST_SPIRV set as well, xpu's kernels go through SPIR-V (see
// xpu/spirv_on_opencl.h).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/dtype.h"
#include "anyaccel/error.h"
#include "xpu/spirv_on_opencl.h"

namespace anyaccel::testing {

// Null: the variable is not set.
inline DriverAccelerator* device_under_test() {
  static const std::unique_ptr<Accelerator> accelerator = []() -> std::unique_ptr<Accelerator> {
    const char* name = std::getenv("ANYACCEL_TEST_ACCELERATOR");
    if (!name) return nullptr;
    try {
      auto made = make_accelerator(name);
      made->device_properties(0);
      if (std::getenv("ANYACCEL_TEST_SPIRV")) {
        // Kept for good: the other one calls its driver.
        static const std::unique_ptr<Accelerator> opencl = std::move(made);
        return spirv_on_opencl(dynamic_cast<DriverAccelerator&>(*opencl));
      }
      return made;
    } catch (const UnavailableError& error) {
      std::printf("skipped: %s\n", error.what());
      std::fflush(stdout);
      std::_Exit(77);
    }
  }();
  return dynamic_cast<DriverAccelerator*>(accelerator.get());
}

namespace detail {

// Host bytes that some tensors of a call lie in, and their copy on the device with guards around it.
struct StagedRange {
  static constexpr size_t guard = 256;  // bytes of 0xff before and after
  char* low;
  char* high;
  std::shared_ptr<Storage> storage;

  char* on_device(void* host) const {
    return static_cast<char*>(storage->data()) + guard + (static_cast<char*>(host) - low);
  }
};

inline void extent_of(const aa_tensor& tensor, char*& low, char*& high) {
  const auto item = static_cast<int64_t>(dtype_size(static_cast<DType>(tensor.dtype)));
  int64_t first = 0, last = 0;
  for (int d = 0; d < tensor.ndim; ++d) {
    if (tensor.shape[d] == 0) {
      low = high = static_cast<char*>(tensor.data);
      return;
    }
    (tensor.strides[d] < 0 ? first : last) += (tensor.shape[d] - 1) * tensor.strides[d];
  }
  low = static_cast<char*>(tensor.data) + first * item;
  high = static_cast<char*>(tensor.data) + (last + 1) * item;
}

// Returns whether calls that the accelerator rejects are left to the CPU: ANYACCEL_TEST_PARTIAL, for an accelerator
// that has some calls of an op. One that took none fails the test.
inline bool took(bool taken) {
  static const bool partial = std::getenv("ANYACCEL_TEST_PARTIAL") != nullptr;
  static int calls = 0, refused = 0;
  static const bool counted =
      partial && std::atexit([] {
                   std::printf("the accelerator took %d calls and refused %d\n", calls, refused);
                   std::fflush(stdout);
                   if (calls == 0) std::_Exit(1);
                 }) == 0;
  ++(taken ? calls : refused);
  return counted;
}

inline void run_on_cpu(const char* op, aa_op_call call) {
  static const std::unique_ptr<Accelerator> made = make_accelerator("cpu");
  auto& cpu = dynamic_cast<DriverAccelerator&>(*made);
  call.op = cpu.find_op(op);
  const OpHandle handle = cpu.resolve_op(call, 0);
  try {
    cpu.enqueue_op(handle, call, 0);
  } catch (const Error& error) {
    if (error.code() != AA_OUT_OF_RANGE) throw;  // an accelerator that works later could not tell
  }
}

}  // namespace detail

// Runs a call whose tensors lie in host memory on the device: everything the tensors span is copied there and, when the op
// is complete, back. Adds a failure when bytes around them were written. Throws NotImplementedError when the accelerator
// does not support the call.
inline void run_on_device(DriverAccelerator& accelerator, const char* op, aa_op_call call) {
  using detail::StagedRange;
  const aa_tensor* const given = call.tensors;
  std::vector<aa_tensor> tensors(call.tensors, call.tensors + call.tensor_count);
  std::vector<StagedRange> ranges;
  for (const aa_tensor& tensor : tensors) {
    if (tensor.dtype == AA_DTYPE_NONE) continue;
    StagedRange range{};
    detail::extent_of(tensor, range.low, range.high);
    ranges.push_back(range);
  }
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.low < b.low; });
  std::vector<StagedRange> merged;
  for (const StagedRange& range : ranges) {
    if (!merged.empty() && range.low < merged.back().high) {
      merged.back().high = std::max(merged.back().high, range.high);
    } else {
      merged.push_back(range);
    }
  }
  std::vector<unsigned char> bytes;
  for (StagedRange& range : merged) {
    const auto size = static_cast<size_t>(range.high - range.low);
    bytes.assign(size + 2 * StagedRange::guard, 0xff);
    if (size) std::memcpy(bytes.data() + StagedRange::guard, range.low, size);
    range.storage = accelerator.allocate(bytes.size(), 0);
    accelerator.copy(range.storage->data(), bytes.data(), bytes.size(), AA_COPY_HOST_TO_DEVICE, 0);
    accelerator.synchronize(0);
  }
  for (aa_tensor& tensor : tensors) {
    if (tensor.dtype == AA_DTYPE_NONE) continue;
    char *low = nullptr, *high = nullptr;
    detail::extent_of(tensor, low, high);
    const auto range = std::find_if(merged.begin(), merged.end(),
                                    [&](const StagedRange& r) { return r.low <= low && high <= r.high; });
    tensor.data = range->on_device(tensor.data);
  }
  call.tensors = tensors.data();
  call.op = accelerator.find_op(op);
  const OpHandle handle = call.op < 0 ? OpHandle{} : accelerator.resolve_op(call, 0);
  if (detail::took(static_cast<bool>(handle)) && !handle) {
    call.tensors = given;
    detail::run_on_cpu(op, call);
    return;
  }
  if (!handle) {
    throw NotImplementedError(accelerator.name() + " does not run this call of \"" + op + "\"");
  }
  accelerator.enqueue_op(handle, call, 0);
  accelerator.synchronize(0);
  for (const StagedRange& range : merged) {
    const auto size = static_cast<size_t>(range.high - range.low);
    bytes.resize(size + 2 * StagedRange::guard);
    accelerator.copy(bytes.data(), range.storage->data(), bytes.size(), AA_COPY_DEVICE_TO_HOST, 0);
    accelerator.synchronize(0);
    if (size) std::memcpy(range.low, bytes.data() + StagedRange::guard, size);
    const auto clean = [](unsigned char byte) { return byte == 0xff; };
    const auto end = bytes.begin() + static_cast<std::ptrdiff_t>(StagedRange::guard + size);
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.begin() + StagedRange::guard, clean) &&
                std::all_of(end, bytes.end(), clean))
        << op << " wrote outside its tensors";
  }
}

}  // namespace anyaccel::testing
