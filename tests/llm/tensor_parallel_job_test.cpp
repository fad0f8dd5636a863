// Every reference model over the ranks of a job, which are processes: run by `anyaccel launch` on accelerators whose runtimes
// do not take several ranks as threads of one process. Alone it is a job of one rank. Greedy tokens in fp32 are those that
// transformers computed, on every rank.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/comm/process_group.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/session.h"
#include "llm/model_fixtures.h"

namespace anyaccel::llm {
namespace {

using anyaccel::testing::load_reference_model;
using anyaccel::testing::ReferenceModel;

class JobReferenceModels : public ::testing::TestWithParam<std::string> {};

TEST_P(JobReferenceModels, GreedyTokens) {
  const ReferenceModel reference = load_reference_model(GetParam());
  std::vector<std::vector<int32_t>> prompts = {reference.run.prompt_ids}, expected = {reference.run.greedy_ids};
  for (const auto& run : reference.batch) {
    prompts.push_back(run.prompt_ids);
    expected.push_back(run.greedy_ids);
  }
  LoadOptions options;
  options.dtype = DType::F32;
  options.group = comm::world();
  Session session(Model::load(reference.directory, options),
                  {.sequences = static_cast<int64_t>(prompts.size()), .context = 96, .chunk = 9});
  std::vector<std::vector<int32_t>> found(prompts.size());
  session.start(prompts, {}, 7);
  for (size_t n = 0;; ++n) {
    const std::span<const int32_t> tokens = session.tokens();
    for (size_t i = 0; i < tokens.size(); ++i) found[i].push_back(tokens[i]);
    if (n + 1 == expected[0].size()) break;
    session.step();
  }
  EXPECT_EQ(found, expected);
}

INSTANTIATE_TEST_SUITE_P(All, JobReferenceModels, ::testing::ValuesIn(anyaccel::testing::reference_model_names()),
                         [](const auto& test_info) { return test_info.param; });

}  // namespace
}  // namespace anyaccel::llm

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    const auto group = anyaccel::comm::init_process_group();
    std::printf("rank %d of %d on %s\n", group->rank(), group->size(), anyaccel::get_accelerator()->name().c_str());
    const int code = RUN_ALL_TESTS();
    // A rank that fails leaves the others waiting.
    if (code != 0) anyaccel::comm::abort_process_group("a test failed");
    anyaccel::comm::destroy_process_group();
    return code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
