// Models over several ranks (threads of this process) against the tokens and logits that transformers computed and against
// one rank: every reference model in fp32, both compile backends, batches, sampling; what each rank loads; ends and failures.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/make_model.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/session.h"
#include "anyaccel/llm/text_generation.h"
#include "llm/decoding.h"
#include "llm/model_fixtures.h"
#include "llm/thread_ranks.h"
#include "temporary_folder.h"
#include "test_paths.h"

namespace anyaccel::llm {
namespace {

using anyaccel::testing::BackendGuard;
using anyaccel::testing::Between;
using anyaccel::testing::decode;
using anyaccel::testing::gathers;
using anyaccel::testing::load_reference_model;
using anyaccel::testing::ReferenceModel;
using anyaccel::testing::ReferenceRun;
using anyaccel::testing::run_ranks;
using Group = std::shared_ptr<comm::ProcessGroup>;

using Tokens = std::vector<std::vector<int32_t>>;

std::shared_ptr<const Model> load(const std::string& directory, const Group& group, DType dtype = DType::F32) {
  LoadOptions options;
  options.dtype = dtype;
  options.group = group;
  return Model::load(directory, options);
}

// The first new tokens of each prompt on `ranks` ranks, which must all see the same ones.
Tokens decode_on(int ranks, const std::function<std::shared_ptr<const Model>(const Group&)>& make,
                 const Tokens& prompts, size_t count, const Sampling& sampling = {},
                 Between between = Between::SharedMemory) {
  std::vector<Tokens> results(static_cast<size_t>(ranks));
  const bool graphs = get_accelerator()->get_compile_backend() == "graph" && get_accelerator()->supports_graphs();
  const auto body = [&](const Group& group) {
    Session session(make(group), {.sequences = static_cast<int64_t>(prompts.size()), .context = 96, .chunk = 9});
    results[static_cast<size_t>(group->rank())] = decode(session, prompts, count, sampling);
    EXPECT_EQ(session.replayed_steps() > 0, graphs);
  };
  run_ranks(ranks, body, between);
  for (const Tokens& result : results) EXPECT_EQ(result, results[0]);
  return results[0];
}

class RanksOfReferenceModels : public ::testing::TestWithParam<std::string> {};

TEST_P(RanksOfReferenceModels, GreedyTokensAreThoseOfOneRank) {
  const ReferenceModel reference = load_reference_model(GetParam());
  Tokens prompts = {reference.run.prompt_ids};
  Tokens expected = {reference.run.greedy_ids};
  for (const ReferenceRun& run : reference.batch) {
    prompts.push_back(run.prompt_ids);
    expected.push_back(run.greedy_ids);
  }
  const auto make = [&](const Group& group) { return load(reference.directory, group); };
  // Each model with both backends and an even and an odd number of ranks; one of them with all pairs.
  std::vector<std::pair<int, const char*>> cases = {{2, "graph"}, {3, "eager"}};
  if (GetParam() == "llama_gqa") cases.insert(cases.end(), {{2, "eager"}, {3, "graph"}, {4, "eager"}, {4, "graph"}});
  for (const auto& [ranks, backend] : cases) {
    const BackendGuard guard(backend);
    EXPECT_EQ(decode_on(ranks, make, prompts, expected[0].size()), expected) << ranks << " ranks, " << backend;
  }
  // Without common memory the results of attention's and the feed-forward block's last products are sums.
  for (const int ranks : {2, 3}) {
    EXPECT_EQ(decode_on(ranks, make, prompts, expected[0].size(), {}, Between::Messages), expected)
        << ranks << " ranks";
  }
}

TEST_P(RanksOfReferenceModels, LogitsAreWholeOnEveryRank) {
  const ReferenceModel reference = load_reference_model(GetParam());
  const std::vector<int32_t>& ids = reference.run.prompt_ids;
  std::vector<int32_t> sequence(ids.size(), 0), positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  for (const int ranks : {2, 3, 4}) {
    std::vector<std::vector<float>> logits(static_cast<size_t>(ranks));
    run_ranks(ranks, [&](const Group& group) {
      Session session(load(reference.directory, group), {.sequences = 1, .context = 64});
      logits[static_cast<size_t>(group->rank())] =
          session.forward({ids, sequence, positions}, positions).to_vector<float>();
    });
    for (const std::vector<float>& found : logits) {
      EXPECT_EQ(found, logits[0]);
      ASSERT_EQ(found.size(), reference.prompt_logits.size());
      float largest = 0;
      float difference = 0;
      for (size_t i = 0; i < found.size(); ++i) {
        largest = std::max(largest, std::abs(reference.prompt_logits[i]));
        difference = std::max(difference, std::abs(found[i] - reference.prompt_logits[i]));
      }
      EXPECT_LE(difference / largest, 1e-4f);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RanksOfReferenceModels, ::testing::ValuesIn(anyaccel::testing::reference_model_names()),
                         [](const auto& test_info) { return test_info.param; });

ModelShape small_shape(int64_t heads, int64_t kv_heads) {
  ModelShape shape = find_model_shape("tiny");
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  return shape;
}

std::vector<float> logits_of(const std::shared_ptr<const Model>& model) {
  const std::vector<int32_t> ids = {1, 20, 3, 40, 5, 60, 7};
  std::vector<int32_t> sequence(ids.size(), 0), positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  Session session(model, {.sequences = 1, .context = 32});
  return session.forward({ids, sequence, positions}, positions).to_vector<float>();
}

// Ranks that share memory split every product by its outputs, so that all sums have the order that they have in one process.
TEST(TensorParallelModel, RanksThatShareMemoryRoundAsOneProcess) {
  if (!gathers(Between::SharedMemory)) GTEST_SKIP() << "the ranks sum parts on an accelerator of its own memory";
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const ModelShape shape = small_shape(6, 3);
    const std::vector<float> expected = logits_of(Model::random(*get_accelerator(), shape, dtype, 5));
    for (const int ranks : {2, 3, 5}) {
      run_ranks(ranks, [&](const Group& group) {
        EXPECT_EQ(logits_of(Model::random(*get_accelerator(), shape, dtype, 5, group)), expected)
            << dtype_name(dtype) << ", " << ranks << " ranks";
      });
    }
  }
}

TEST(TensorParallelModel, MoreRanksThanHeads) {
  // Ranks 1 and 3 of 4 hold no heads; one feed-forward block of 3 elements leaves rank 3 without one.
  ModelShape shape = small_shape(2, 2);
  const Tokens prompts = {{1, 2, 3, 4, 5}};
  for (const int64_t intermediate : {shape.intermediate_size, int64_t{3}}) {
    shape.intermediate_size = intermediate;
    const auto make = [&](const Group& group) {
      return Model::random(*get_accelerator(), shape, DType::F32, 3, group);
    };
    const Tokens expected = decode_on(1, make, prompts, 20);
    for (const int ranks : {3, 4}) {
      for (const Between between : {Between::SharedMemory, Between::Messages}) {
        EXPECT_EQ(decode_on(ranks, make, prompts, 20, {}, between), expected) << ranks << " ranks";
      }
    }
  }
  for (const Between between : {Between::SharedMemory, Between::Messages}) {
    const auto body = [&](const Group& group) {
      const auto model = Model::random(*get_accelerator(), shape, DType::F32, 3, group);
      ASSERT_EQ(model->notes().size(), 2u);
      EXPECT_NE(model->notes()[0].find("rank 1, 3 holds no attention heads"), std::string::npos) << model->notes()[0];
      EXPECT_EQ(static_cast<bool>(model->weights().layers[0].q), group->rank() % 2 == 0);
      EXPECT_EQ(static_cast<bool>(model->weights().layers[0].up), group->rank() != 3);
      EXPECT_EQ(static_cast<bool>(model->weights().layers[0].down), gathers(between) || group->rank() != 3);
    };
    run_ranks(4, body, between);
  }
}

TEST(TensorParallelModel, SampledTokensAreThoseOfOneRank) {
  const ReferenceModel reference = load_reference_model("llama_gqa");
  const auto make = [&](const Group& group) { return load(reference.directory, group); };
  const Tokens prompts = {reference.run.prompt_ids, {1, 2, 3}};
  for (const Sampling& sampling :
       {Sampling{0.8f, 40, 0.95f, 1.0f}, Sampling{0.0f, 0, 1.0f, 1.3f}, Sampling{1.0f, 0, 0.9f, 1.1f}}) {
    const Tokens expected = decode_on(1, make, prompts, 24, sampling);
    for (const int ranks : {2, 3}) EXPECT_EQ(decode_on(ranks, make, prompts, 24, sampling), expected) << ranks;
  }
}

// Values of a rank's tensor against the slice of the whole one.
void expect_slice(const Tensor& part, const Tensor& whole, int dim, const Slice& held, const char* name) {
  ASSERT_EQ(static_cast<bool>(part), held.size() > 0) << name;
  if (!part) return;
  const Tensor expected = whole.slice(dim, held.begin, held.end);
  ASSERT_EQ(part.shape(), expected.shape()) << name;
  EXPECT_EQ(part.stride(part.ndim() - 1), 1) << name;
  EXPECT_EQ(part.to_vector<float>(), expected.to_vector<float>()) << name;
}

void expect_slices(const Model& part, const Model& whole) {
  const ModelShard& shard = part.shard();
  const int64_t dim = whole.config().head_dim;
  const Slice query = {shard.query_heads.begin * dim, shard.query_heads.end * dim};
  const Slice kv = {shard.kv_heads.begin * dim, shard.kv_heads.end * dim};
  const bool by_rows = shard.hidden.size() > 0;  // o and down
  expect_slice(part.weights().embedding, whole.weights().embedding, 0, shard.vocabulary, "embedding");
  expect_slice(part.weights().lm_head, whole.weights().lm_head, 0, shard.vocabulary, "lm_head");
  for (size_t i = 0; i < whole.weights().layers.size(); ++i) {
    const LayerWeights& found = part.weights().layers[i];
    const LayerWeights& all = whole.weights().layers[i];
    expect_slice(found.q, all.q, 0, query, "q");
    expect_slice(found.k, all.k, 0, kv, "k");
    expect_slice(found.v, all.v, 0, kv, "v");
    expect_slice(found.o, all.o, by_rows ? 0 : 1, by_rows ? shard.hidden : query, "o");
    expect_slice(found.gate, all.gate, 0, shard.intermediate, "gate");
    expect_slice(found.up, all.up, 0, shard.intermediate, "up");
    expect_slice(found.down, all.down, by_rows ? 0 : 1, by_rows ? shard.hidden : shard.intermediate, "down");
    if (all.q_bias) expect_slice(found.q_bias, all.q_bias, 0, query, "q_bias");
    if (all.gate_bias) expect_slice(found.gate_bias, all.gate_bias, 0, shard.intermediate, "gate_bias");
    const Slice last = by_rows ? shard.hidden : Slice{0, shard.rank == 0 ? whole.config().hidden_size : 0};
    if (all.o_bias) expect_slice(found.o_bias, all.o_bias, 0, last, "o_bias");
    if (all.down_bias) expect_slice(found.down_bias, all.down_bias, 0, last, "down_bias");
    EXPECT_EQ(found.input_norm.to_vector<float>(), all.input_norm.to_vector<float>());
  }
}

TEST(TensorParallelModel, RanksLoadTheirSlices) {
  for (const char* name : {"llama_bias", "llama_tied", "llama_yarn"}) {
    const std::string directory = anyaccel::testing::models_directory() + "/" + name;
    for (const DType dtype : {DType::F32, DType::BF16}) {
      if (dtype == DType::BF16 && !get_accelerator()->is_bf16_supported()) continue;
      const auto whole = load(directory, {}, dtype);
      for (const auto& [ranks, between] :
           {std::pair{2, Between::SharedMemory}, {3, Between::SharedMemory}, {3, Between::Messages}}) {
        const auto body = [&, between = between](const Group& group) {
          const auto part = load(directory, group, dtype);
          EXPECT_EQ(part->shard().hidden.size() > 0, gathers(between));
          expect_slices(*part, *whole);
          EXPECT_EQ(part->config().num_attention_heads, whole->config().num_attention_heads);
          EXPECT_LT(part->weight_bytes(), whole->weight_bytes());
          if (dtype == DType::BF16 && whole->mapped_bytes() > 0) {
            EXPECT_GT(part->mapped_bytes(), 0u);
            // Only norms and biases, which are fp32, are copied, and columns of o and down, which the ranks have elsewhere.
            if (get_accelerator()->name() == "cpu" && between == Between::SharedMemory) {
              EXPECT_LE(part->weight_bytes() - part->mapped_bytes(), whole->weight_bytes() - whole->mapped_bytes());
            }
          }
          if (dtype == DType::F32) {
            EXPECT_EQ(part->mapped_bytes(), 0u);
          }
        };
        run_ranks(ranks, body, between);
      }
    }
  }
}

// Slices of rows and of columns, in the file's dtype and converted.
TEST(TensorParallelModel, RanksReadTheirSlicesWithoutAMapping) {
  const ReferenceModel reference = load_reference_model("llama_gqa");
  for (const DType dtype : {DType::None, DType::F32}) {
    const auto decoded = [&](bool map_files, Between between) {
      const auto make = [&](const Group& group) {
        LoadOptions options;
        options.dtype = dtype;
        options.group = group;
        options.map_files = map_files;
        return Model::load(reference.directory, options);
      };
      return decode_on(3, make, {reference.run.prompt_ids}, 12, {}, between);
    };
    for (const Between between : {Between::SharedMemory, Between::Messages}) {
      EXPECT_EQ(decoded(false, between), decoded(true, between)) << dtype_name(dtype);
    }
  }
}

TEST(TensorParallelModel, RandomModelsAreSlicesOfTheWhole) {
  for (const bool tied : {false, true}) {
    ModelShape shape = small_shape(6, 3);
    shape.tied = tied;
    const auto whole = Model::random(*get_accelerator(), shape, DType::F32, 11);
    for (const Between between : {Between::SharedMemory, Between::Messages}) {
      const auto body = [&](const Group& group) {
        expect_slices(*Model::random(*get_accelerator(), shape, DType::F32, 11, group), *whole);
      };
      run_ranks(4, body, between);
    }
  }
}

// One path may hold another model on another host: the text would be that of neither.
TEST(TensorParallelModel, RanksRefuseToMixModels) {
  namespace fs = std::filesystem;
  const test::TemporaryFolder folder;
  const fs::path first = folder.path() / "first";
  make_model(find_model_shape("tiny"), first.string());
  const auto f32 = [] {
    LoadOptions options;
    options.dtype = DType::F32;
    return options;
  };
  // Loads `first` on rank 0 and `second` on rank 1; returns the error, which both must have.
  const auto error_between = [&](const LoadOptions& options_of_first, const fs::path& second,
                                 const LoadOptions& options_of_second) {
    std::string errors[2];
    run_ranks(2, [&](const Group& group) {
      LoadOptions options = group->rank() == 0 ? options_of_first : options_of_second;
      options.group = group;
      const auto model = Model::load(group->rank() == 0 ? first : second, options);
      try {
        Session session(model, {.sequences = 1, .context = 16});
      } catch (const InvalidArgument& error) {
        errors[group->rank()] = error.what();
      }
    });
    EXPECT_EQ(errors[0], errors[1]);
    return errors[0];
  };
  const auto error_of = [&](const fs::path& second) { return error_between(f32(), second, f32()); };
  const auto changed = [&](const char* name, const std::function<void(const fs::path&)>& change) {
    fs::copy(first, folder.path() / name);
    change(folder.path() / name);
    return folder.path() / name;
  };
  const auto add_unread_files = [](const fs::path& copy) {
    for (const char* file : {"README.md", "results.json", "requirements.txt"}) std::ofstream(copy / file) << "text";
    fs::create_directory(copy / "folder.json");
    fs::create_directory(copy / "chat_template.jinja");
    fs::create_symlink("nowhere", copy / "added_tokens.json");
  };
  EXPECT_EQ(error_of(changed("copy", add_unread_files)), "");

  const auto expect_difference = [](const std::string& error, const std::string& part) {
    EXPECT_EQ(error.find("model: rank 1 on "), 0U) << error;
    EXPECT_NE(error.find("; what differs: " + part + "; expected"), std::string::npos) << error;
  };
  const auto other_weights = [](const fs::path& copy) {
    const fs::path made = copy.string() + " made";
    MakeModelOptions options;
    options.seed = 1;
    make_model(find_model_shape("tiny"), made.string(), options);
    fs::copy_file(made / "model.safetensors", copy / "model.safetensors", fs::copy_options::overwrite_existing);
  };
  expect_difference(error_of(changed("weights", other_weights)), "weights or the headers of their files");
  for (const auto& [file, part] : {std::pair{"config.json", "configuration"},
                                   {"generation_config.json", "configuration"},
                                   {"tokenizer.json", "tokenizer or chat template"},
                                   {"chat_template.jinja", "tokenizer or chat template"}}) {
    const auto append = [name = file](const fs::path& copy) { std::ofstream(copy / name, std::ios::app) << "\n"; };
    expect_difference(error_of(changed(file, append)), part);
  }

  const std::string loading = "options of loading (dtype, quantization, activations)";
  LoadOptions bf16;
  bf16.dtype = DType::BF16;
  expect_difference(error_between(f32(), first, bf16), loading);
  LoadOptions exact = bf16;
  exact.activations = Activations::F32;
  expect_difference(error_between(bf16, first, exact), loading);
  LoadOptions int8, int4;
  int8.quantize = "int8";
  int4.quantize = "int4";
  expect_difference(error_between(int8, first, int4), loading);
}

TEST(TensorParallelModel, AGroupOfOneIsNoGroup) {
  run_ranks(1, [&](const Group& group) {
    const auto model = load(anyaccel::testing::models_directory() + "/llama_gqa", group);
    EXPECT_EQ(model->group(), nullptr);
    EXPECT_EQ(model->shard().vocabulary, (Slice{0, model->config().vocab_size}));
  });
}

const std::string bundled_stories = std::string(ANYACCEL_SOURCE_DIR) + "/models/stories";

GenerateResult tell(const Group& group, int64_t tokens, const TextCallback& callback = {}) {
  LoadOptions load_options;
  load_options.dtype = DType::F32;
  load_options.group = group;
  TextGenerator generator = TextGenerator::load(bundled_stories, load_options);
  GenerateOptions options;
  options.max_new_tokens = tokens;
  options.ignore_eos = true;
  const std::vector<std::string> prompts = {"Once upon a time", "The dog"};
  return generator.generate(prompts, options, callback);
}

TEST(TensorParallelModel, TheBundledModelTellsTheSameStory) {
  const GenerateResult expected = tell({}, 100);
  for (const int ranks : {2, 3, 4}) {
    run_ranks(ranks, [&](const Group& group) {
      const GenerateResult result = tell(group, 100);
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(result.completions[i].text, expected.completions[i].text) << "rank " << group->rank();
      }
    });
  }
}

TEST(TensorParallelModel, RankZerosListenerEndsAPromptForAll) {
  run_ranks(2, [&](const Group& group) {
    int pieces = 0;
    TextCallback callback;
    if (group->rank() == 0) callback = [&](size_t prompt, std::string_view) { return prompt == 1 || ++pieces < 5; };
    const GenerateResult result = tell(group, 40, callback);
    EXPECT_LT(result.completions[0].token_ids.size(), 30u) << "rank " << group->rank();
    EXPECT_EQ(result.completions[1].token_ids.size(), 40u) << "rank " << group->rank();
  });
}

TEST(TensorParallelModel, ARankThatFailsEndsTheOthers) {
  std::atomic<int> lost{0};
  const auto tell_until_a_failure = [&](const Group& group) {
    TextCallback callback;
    if (group->rank() == 0) callback = [](size_t, std::string_view) -> bool { throw std::runtime_error("no more"); };
    try {
      tell(group, 40, callback);
    } catch (const CommunicationError&) {
      ++lost;
      throw;
    }
  };
  EXPECT_THROW(run_ranks(3, tell_until_a_failure), std::runtime_error);
  EXPECT_EQ(lost, 2);
}

}  // namespace
}  // namespace anyaccel::llm
