// Tests which ops a decoder step enqueues: the plain ones on an accelerator without fused ops, the fused ones where
// there are any; and that the text is the same.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/session.h"
#include "llm/model_fixtures.h"
#include "ops/fused_sequence.h"

namespace anyaccel::llm {
namespace {

using anyaccel::testing::FusedDriver;
using anyaccel::testing::load_reference_model;
using anyaccel::testing::ReferenceModel;

// Writes down the ops that are enqueued.
class Recording final : public DriverAccelerator {
 public:
  explicit Recording(const abi::DriverCalls& driver) : DriverAccelerator(&driver) {}

  int32_t find_op(const char* name) override {
    const int32_t op = DriverAccelerator::find_op(name);
    if (op >= 0) {
      if (names_.size() <= static_cast<size_t>(op)) names_.resize(static_cast<size_t>(op) + 1);
      names_[static_cast<size_t>(op)] = name;
    }
    return op;
  }
  void enqueue_op(OpHandle op, const aa_op_call& call, int index) override {
    ops.push_back(names_[static_cast<size_t>(call.op)]);
    DriverAccelerator::enqueue_op(op, call, index);
  }

  std::vector<std::string> ops;

 private:
  std::vector<std::string> names_;
};

class FusedStep : public ::testing::Test {
 protected:
  ~FusedStep() override { reset_accelerator(); }

  void use(const abi::DriverCalls& driver) {
    reset_accelerator();
    auto recording = std::make_unique<Recording>(driver);
    accelerator_ = recording.get();
    set_accelerator(std::move(recording));
  }
  static std::shared_ptr<const Model> load(const std::string& name, DType dtype = DType::F32) {
    LoadOptions options;
    options.dtype = dtype;
    if (dtype == DType::BF16) options.activations = Activations::BF16;
    return Model::load(load_reference_model(name).directory, options);
  }
  // The ops of one step of one token for each sequence.
  std::vector<std::string> one_step(const std::string& name, DType dtype = DType::F32, int64_t sequences = 1) {
    SessionOptions options;
    options.context = 16;
    options.sequences = sequences;
    Session session(load(name, dtype), options);
    const auto count = static_cast<size_t>(sequences);
    const std::vector<int32_t> ids(count, 3), positions(count, 0);
    std::vector<int32_t> rows(count);
    std::iota(rows.begin(), rows.end(), 0);
    accelerator_->ops.clear();
    session.forward({ids, rows, positions}, rows);
    return accelerator_->ops;
  }
  static std::vector<int32_t> greedy(const ReferenceModel& reference) {
    SessionOptions options;
    options.context = static_cast<int64_t>(reference.run.prompt_ids.size() + reference.run.greedy_ids.size());
    Session session(load(reference.name), options);
    const std::vector<std::vector<int32_t>> prompts{reference.run.prompt_ids};
    session.start(prompts, {}, 0);
    std::vector<int32_t> ids{session.tokens()[0]};
    while (ids.size() < reference.run.greedy_ids.size()) {
      session.step();
      ids.push_back(session.tokens()[0]);
    }
    return ids;
  }

  FusedDriver driver_;
  Recording* accelerator_ = nullptr;
};

using Names = std::vector<std::string>;

Names step_of(size_t layers, const Names& before_attention, const Names& after, const Names& end) {
  Names all = {"embedding", "rope_table"};
  for (size_t i = 0; i < layers; ++i) {
    all.insert(all.end(), before_attention.begin(), before_attention.end());
    all.insert(all.end(), {"attention", "linear"});
    all.insert(all.end(), after.begin(), after.end());
    all.emplace_back("linear");
  }
  all.insert(all.end(), end.begin(), end.end());
  return all;
}

size_t layers_of(const std::string& name) {
  LoadOptions options;
  return Model::load(load_reference_model(name).directory, options)->weights().layers.size();
}

TEST_F(FusedStep, PlainOpsWhereThereAreNoOthers) {
  const auto cpu = make_accelerator("cpu");
  use(dynamic_cast<DriverAccelerator&>(*cpu).driver());
  const size_t layers = layers_of("llama_gqa");
  EXPECT_EQ(one_step("llama_gqa"), step_of(layers, {"rms_norm", "linear_multi", "rope", "cache_write"},
                                           {"rms_norm", "gated_linear"}, {"rms_norm", "linear"}));
}

TEST_F(FusedStep, FusedOpsWhereThereAreAny) {
  use(driver_.table());
  const size_t layers = layers_of("llama_gqa");
  EXPECT_EQ(one_step("llama_gqa"), step_of(layers, {"norm_qkv_rope"}, {"norm_gated_linear"}, {"norm_linear"}));
  FusedDriver::refuse(true);
  EXPECT_EQ(one_step("llama_gqa"), step_of(layers, {"rms_norm", "linear_multi", "rope", "cache_write"},
                                           {"rms_norm", "gated_linear"}, {"rms_norm", "linear"}));
}

TEST_F(FusedStep, FusedOpsWhereActivationsAreRounded) {
  use(driver_.table());
  EXPECT_EQ(one_step("llama_gqa", DType::BF16),
            step_of(layers_of("llama_gqa"), {"norm_qkv_rope"}, {"norm_gated_linear"}, {"norm_linear"}));
}

// Norms of queries and keys stand between the products and the rotation.
TEST_F(FusedStep, NotAcrossTheNormsOfQwen3) {
  use(driver_.table());
  EXPECT_EQ(one_step("qwen3"),
            step_of(layers_of("qwen3"), {"rms_norm", "linear_multi", "rms_norm", "rms_norm", "rope", "cache_write"},
                    {"norm_gated_linear"}, {"norm_linear"}));
}

// What a step of many sequences reads does not grow with their number: each product of the model is one op for all of them.
TEST_F(FusedStep, ManySequencesTakeTheOpsOfOne) {
  const auto cpu = make_accelerator("cpu");
  use(dynamic_cast<DriverAccelerator&>(*cpu).driver());
  for (const std::string& name : anyaccel::testing::reference_model_names()) {
    SCOPED_TRACE(name);
    const auto ops = [&](int64_t sequences) {
      Names all = one_step(name, DType::F32, sequences);
      std::erase(all, "rope_table");  // one for each sequence where the frequencies follow its length
      return all;
    };
    const Names of_one = ops(1);
    for (const int64_t sequences : {2, 8, 31}) EXPECT_EQ(ops(sequences), of_one) << sequences;
  }
}

TEST_F(FusedStep, GivesTheSameText) {
  for (const std::string& name : anyaccel::testing::reference_model_names()) {
    SCOPED_TRACE(name);
    use(driver_.table());
    const ReferenceModel reference = load_reference_model(name);
    const int before = FusedDriver::calls();
    EXPECT_EQ(greedy(reference), reference.run.greedy_ids);
    EXPECT_GT(FusedDriver::calls(), before);
  }
}

}  // namespace
}  // namespace anyaccel::llm
