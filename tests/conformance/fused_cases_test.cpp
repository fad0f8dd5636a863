// The conformance suite on a driver with fused ops: right ones pass, and each wrong one fails the case that is there for it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/suite.h"
#include "ops/fused_sequence.h"

namespace anyaccel {
namespace {

using testing::FusedDriver;

// The cases of the fused ops, which here ask for no scratch memory.
constexpr const char* filter = "op.norm_linear,op.norm_gated,op.norm_qkv,op.norm_quantized,!short_of_memory";

std::vector<conformance::CaseResult> run(const FusedDriver& driver) {
  return conformance::run_conformance(&driver.table(), host_services(), filter, {}, {.in_process = true}).cases;
}

TEST(FusedConformance, RightOnesPass) {
  const FusedDriver driver;
  const auto results = run(driver);
  // 11 cases, each dense, padded and spread, and one of tensors without elements for each of five ops, also without memory.
  ASSERT_EQ(results.size(), 53u);
  for (const auto& result : results) {
    EXPECT_EQ(result.outcome, conformance::Outcome::pass) << result.group << ": " << result.message;
    EXPECT_EQ(result.message.find("refused"), std::string::npos) << result.message;
  }
  EXPECT_GT(FusedDriver::calls(), 100);
}

TEST(FusedConformance, MissingOnesAreUnsupported) {
  const aa_driver* cpu = complete_table(
      anyaccel_cpu_driver_query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services()), "built in");
  for (const auto& result : conformance::run_conformance(cpu, host_services(), filter).cases) {
    EXPECT_EQ(result.outcome, conformance::Outcome::unsupported) << result.message;
  }
}

TEST(FusedConformance, RefusedOnesAreUnsupported) {
  const FusedDriver driver;
  FusedDriver::refuse(true);
  for (const auto& result : run(driver)) {
    EXPECT_EQ(result.outcome, conformance::Outcome::unsupported) << result.message;
  }
}

struct Mutation {
  const char* name;
  const char* op;
  void (*change)(std::vector<aa_tensor>& tensors);
};

const Mutation mutations[] = {
    {"LinearForgetsTheNormsWeight", "norm_linear", [](auto& t) { t[2] = {}; }},
    {"LinearForgetsItsBias", "norm_linear", [](auto& t) { t[4] = {}; }},
    {"GatedForgetsTheGatesBias", "norm_gated_linear", [](auto& t) { t[5] = {}; }},
    {"GatedSwapsGateAndUp", "norm_gated_linear", [](auto& t) { std::swap(t[3], t[4]); }},
    {"QuantizedGatedSwapsGateAndUp", "norm_quantized_gated_linear", [](auto& t) { std::swap(t[3], t[4]); }},
    {"QuantizedQkvSwapsKeysAndValues", "norm_quantized_qkv_rope", [](auto& t) { std::swap(t[7], t[9]); }},
    {"QkvForgetsABias", "norm_qkv_rope", [](auto& t) { t[8] = {}; }},
    {"QkvSwapsKeysAndValues", "norm_qkv_rope", [](auto& t) { std::swap(t[7], t[9]); }},
    {"QkvSwapsCosineAndSine", "norm_qkv_rope", [](auto& t) { std::swap(t[11], t[12]); }},
    {"QkvWritesTokensInReverse", "norm_qkv_rope",
     [](auto& t) {
       // All that is by token runs backwards: the same results, but for which token is last in a slot.
       for (const size_t i : {0u, 3u, 11u, 12u, 13u, 14u}) {
         const int64_t item = t[i].dtype == AA_DTYPE_F32 || t[i].dtype == AA_DTYPE_I32 ? 4 : 2;
         t[i].data = static_cast<char*>(t[i].data) + (t[i].shape[0] - 1) * t[i].strides[0] * item;
         t[i].strides[0] = -t[i].strides[0];
       }
     }},
};

class FusedMutations : public ::testing::TestWithParam<Mutation> {};

TEST_P(FusedMutations, AreNoticed) {
  const FusedDriver driver;
  const std::string wrong = GetParam().op;
  FusedDriver::change([&](const std::string& op, std::vector<aa_tensor>& tensors) {
    if (op == wrong) GetParam().change(tensors);
  });
  bool failed = false;
  for (const auto& result : run(driver)) {
    if (result.group == "op." + wrong) {
      failed = failed || result.outcome == conformance::Outcome::fail;
    } else {
      EXPECT_EQ(result.outcome, conformance::Outcome::pass) << result.group << ": " << result.message;
    }
  }
  EXPECT_TRUE(failed);
}

INSTANTIATE_TEST_SUITE_P(All, FusedMutations, ::testing::ValuesIn(mutations),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace anyaccel
