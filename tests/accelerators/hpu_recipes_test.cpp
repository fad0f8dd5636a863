// Tests hpu's recipes on the simulated Synapse: more shapes than are kept, and a result that replaces an input.
#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "ops/op_build_support.h"
#include "this_build.h"

namespace anyaccel {
namespace {

const std::string library = test::built("simulators/habana");

class HpuRecipes : public testing::Test {
 protected:
  void SetUp() override {
    if (access((library + "/libSynapse.so").c_str(), R_OK) != 0) GTEST_SKIP() << library << " was not built";
    made_ = make_accelerator("hpu");
    hpu_ = dynamic_cast<DriverAccelerator*>(made_.get());
  }

  // A matrix on the device.
  struct Matrix {
    std::shared_ptr<Storage> storage;
    aa_tensor tensor{};
  };
  Matrix matrix(int64_t rows, int64_t columns, float first) const {
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i % 7);
    Matrix made{hpu_->allocate(values.size() * 4, 0)};
    made.tensor.dtype = AA_DTYPE_F32;
    made.tensor.ndim = 2;
    made.tensor.shape[0] = rows;
    made.tensor.shape[1] = made.tensor.strides[0] = columns;
    made.tensor.strides[1] = 1;
    made.tensor.data = made.storage->data();
    hpu_->copy(made.storage->data(), values.data(), values.size() * 4, AA_COPY_HOST_TO_DEVICE, 0);
    hpu_->synchronize(0);
    return made;
  }
  std::vector<float> values(const Matrix& of) const {
    std::vector<float> found(static_cast<size_t>(of.tensor.shape[0] * of.tensor.shape[1]));
    hpu_->synchronize(0);
    hpu_->copy(found.data(), of.storage->data(), found.size() * 4, AA_COPY_DEVICE_TO_HOST, 0);
    hpu_->synchronize(0);
    return found;
  }
  // out = x * transpose(w) + residual, which may be absent.
  void linear(const Matrix& out, const Matrix& x, const Matrix& w, const aa_tensor& residual) const {
    const aa_tensor tensors[] = {out.tensor, x.tensor, w.tensor, aa_tensor{}, residual};
    aa_op_call call{};
    call.struct_size = sizeof(call);
    call.op = hpu_->find_op("linear");
    call.tensors = tensors;
    call.tensor_count = 5;
    const OpHandle handle = hpu_->resolve_op(call, 0);
    ASSERT_TRUE(static_cast<bool>(handle));
    hpu_->enqueue_op(handle, call, 0);
  }
  static float dot(int64_t row, int64_t column, int64_t inner, float x, float w) {
    float sum = 0;
    for (int64_t i = 0; i < inner; ++i) {
      sum += (x + static_cast<float>((row * inner + i) % 7)) * (w + static_cast<float>((column * inner + i) % 7));
    }
    return sum;
  }

  DriverAccelerator* hpu_ = nullptr;

 private:
  const test::Variable path_{"ANYACCEL_HPU_LIBRARY_PATH", library};
  const test::Variable modules_{"HABANA_VISIBLE_MODULES", std::nullopt};
  const test::Variable strict_{"SIM_STRICT", "abort"};
  std::unique_ptr<Accelerator> made_;
};

// 512 recipes are kept; the next one makes the accelerator wait for the device and begin anew.
TEST_F(HpuRecipes, MoreShapesThanAreKept) {
  const Matrix w = matrix(3, 2, -2);
  for (int64_t rows = 1; rows <= 520; ++rows) {
    const Matrix x = matrix(rows, 2, 1), out = matrix(rows, 3, 0);
    linear(out, x, w, aa_tensor{});
    if (rows % 40 != 0 && rows < 510) continue;
    const std::vector<float> found = values(out);
    for (int64_t i = 0; i < rows * 3; ++i) {
      ASSERT_EQ(found[static_cast<size_t>(i)], dot(i / 3, i % 3, 2, 1, -2)) << rows << " rows, element " << i;
    }
  }
}

TEST_F(HpuRecipes, AResultMayReplaceItsResidual) {
  const Matrix x = matrix(4, 5, 1), w = matrix(3, 5, -2), out = matrix(4, 3, 7);
  for (int call = 1; call <= 2; ++call) {
    linear(out, x, w, out.tensor);
    const std::vector<float> found = values(out);
    for (int64_t i = 0; i < 12; ++i) {
      const float given = 7 + static_cast<float>(i % 7);
      EXPECT_EQ(found[static_cast<size_t>(i)], given + static_cast<float>(call) * dot(i / 3, i % 3, 5, 1, -2));
    }
  }
}

// The calls of a step are joined: a value passes from one to the next, memory that is written again keeps the last value, and what
// was there before is read first. The second time the recipe is there already. Copies, and calls that see a part of another's
// tensor, divide the step.
TEST_F(HpuRecipes, CallsOfAStep) {
  const auto run = [&](bool as_step, bool divided) {
    const Matrix x = matrix(4, 4, 1), w = matrix(4, 4, -2), out = matrix(4, 4, 7), other = matrix(4, 4, 3),
                 three = matrix(3, 4, 0), last = matrix(4, 4, -3);
    Matrix rows{out.storage};  // the first three rows of out
    rows.tensor = out.tensor;
    rows.tensor.shape[0] = 3;
    std::vector<float> found;
    for (int time = 1; time <= 2; ++time) {
      std::optional<ScopeGuard> step;
      if (as_step) step.emplace(hpu_->step(1));
      linear(out, x, w, out.tensor);
      linear(other, out, w, x.tensor);
      if (divided) linear(three, rows, w, aa_tensor{});
      linear(out, other, w, aa_tensor{});
      if (divided) {
        hpu_->copy(x.storage->data(), out.storage->data(), 64, AA_COPY_DEVICE_TO_DEVICE, 0);
        linear(other, x, w, other.tensor);
      }
      linear(x, x, last, aa_tensor{});
      step.reset();
      for (const Matrix* part : {&x, &out, &other, &three}) {
        for (const float value : values(*part)) found.push_back(value);
      }
    }
    return found;
  };
  for (const bool divided : {false, true}) EXPECT_EQ(run(true, divided), run(false, divided)) << divided;
}

// Work that a step has held back runs before anything waits for its stream, in whatever way.
TEST_F(HpuRecipes, WaitsReleaseWhatAStepHolds) {
  const Matrix x = matrix(4, 5, 1), w = matrix(3, 5, -2);
  const auto check = [&](const Matrix& out, const char* how) {
    std::vector<float> found(12);
    hpu_->copy(found.data(), out.storage->data(), 48, AA_COPY_DEVICE_TO_HOST, 0);
    hpu_->synchronize(0);
    for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(found[static_cast<size_t>(i)], dot(i / 3, i % 3, 5, 1, -2)) << how;
  };
  for (const char* how : {"synchronize", "event", "copy", "stream", "end"}) {
    const Matrix out = matrix(4, 3, 7);
    const std::string way = how;
    const ScopeGuard step = hpu_->step(2);
    linear(out, x, w, aa_tensor{});
    if (way == "synchronize") hpu_->synchronize(0);
    if (way == "event") {
      Event event = hpu_->Event();
      event.record(hpu_->current_stream(0));
      event.synchronize();
    }
    if (way == "stream") hpu_->current_stream(0).synchronize();
    check(out, how);
  }
}

}  // namespace
}  // namespace anyaccel
