// config.json field by field against what transformers did with each (tests/data/config_fields, made by
// tools/config_fixtures.py), and the loader's list of fields against transformers' classes and against
// docs/model_files.md.
#include "llm/config/config_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/safetensors.h"
#include "anyaccel/llm/session.h"
#include "llm/decoding.h"
#include "llm/test_directory.h"
#include "test_paths.h"

namespace anyaccel::llm {
namespace {

using testing::expect_contains;
using testing::TestDirectory;
using Json = nlohmann::json;

const std::filesystem::path data = std::filesystem::path(anyaccel::testing::test_data()) / "config_fields";

const Json& facts() {
  static const Json json = Json::parse(std::ifstream(data / "fields.json"));
  return json;
}

Family family_of(const std::string& name) {
  for (const Family family : {Family::Llama, Family::Mistral, Family::Qwen2, Family::Qwen3}) {
    if (family_name(family) == name) return family;
  }
  throw Error("no family " + name);
}

Json config_of(const Json& family, const Json& trial) {
  Json config = family.at("base");
  config.update(trial.at("set"));
  if (trial.contains("absent")) {
    for (const Json& field : trial["absent"]) config.erase(field.get<std::string>());
  }
  return config;
}

// A directory with this config.json and the weights of the trials.
class ModelDirectory {
 public:
  ModelDirectory(const Json& config, const Json& without) {
    directory_.write("config.json", config.dump());
    const std::filesystem::path weights = data / "model.safetensors";
    if (without.empty()) {
      std::filesystem::create_symlink(weights, directory_.path() / "model.safetensors");
      return;
    }
    const auto file = SafetensorsFile::open(weights);
    std::vector<TensorSpec> specs;
    std::vector<std::span<const std::byte>> bytes;
    for (const TensorInfo& tensor : file->tensors()) {
      if (std::find(without.begin(), without.end(), tensor.name) != without.end()) continue;
      specs.push_back({tensor.name, tensor.dtype, tensor.shape});
      bytes.emplace_back(file->data(tensor), tensor.bytes);
    }
    write_safetensors(directory_.path() / "model.safetensors", specs, bytes);
  }
  std::shared_ptr<const Model> load() const {
    LoadOptions options;
    options.dtype = DType::F32;
    return Model::load(directory_.path().string(), options);
  }

 private:
  TestDirectory directory_;
};

// The logits that the trials keep: of a prompt, then of single tokens after it.
std::vector<float> kept_logits(const std::shared_ptr<const Model>& model) {
  const auto prompt = facts().at("prompt").get<std::vector<int32_t>>();
  const auto steps = facts().at("steps").get<std::vector<int32_t>>();
  SessionOptions options;
  options.sequences = 1;
  options.context = static_cast<int64_t>(prompt.size() + steps.size());
  Session session(model, options);
  std::vector<int32_t> sequence(prompt.size(), 0), positions(prompt.size());
  for (size_t i = 0; i < prompt.size(); ++i) positions[i] = static_cast<int32_t>(i);
  std::vector<float> rows = session.forward({prompt, sequence, positions}, positions).to_vector<float>();
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::vector<int32_t> id = {steps[i]}, zero = {0}, position = {static_cast<int32_t>(prompt.size() + i)};
    const std::vector<float> row = session.forward({id, zero, position}, zero).to_vector<float>();
    rows.insert(rows.end(), row.begin(), row.end());
  }
  const auto vocab = static_cast<size_t>(model->config().vocab_size);
  std::vector<float> kept;
  for (const size_t row : facts().at("rows").get<std::vector<size_t>>()) {
    for (const size_t column : facts().at("columns").get<std::vector<size_t>>()) {
      if (column < vocab) kept.push_back(rows[row * vocab + column]);
    }
  }
  return kept;
}

double worst_difference(const std::vector<float>& found, const Json& expected) {
  if (found.size() != expected.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double gap = std::abs(static_cast<double>(found[i]) - expected[i].get<double>());
    worst = std::isnan(gap) ? INFINITY : std::max(worst, gap);
  }
  return worst;
}

bool sets(const Json& trial, const char* field) { return trial.at("set").contains(field); }

// Values that transformers accepts and we reject, because it is another model than the file says, or would be for
// another release of transformers.
bool refused_on_purpose(const std::string& family, const Json& trial) {
  const Json& set = trial.at("set");
  for (const char* field : {"add_cross_attention", "attention_chunk_size", "cross_attention_hidden_size", "is_causal",
                            "is_encoder_decoder", "partial_rotary_factor", "pruned_heads", "tie_encoder_decoder",
                            "transformers_weights", "use_bidirectional_attention"}) {
    if (set.contains(field)) return true;
  }
  // Activations that no accelerator has.
  for (const char* name : {"relu2", "quick_gelu", "mish", "tanh", "sigmoid", "gelu_10", "linear"}) {
    if (sets(trial, "hidden_act") && set["hidden_act"] == name) return true;
  }
  // Biases in a family that has none.
  if (set.value("attention_bias", false) && family == "mistral") return true;
  if (set.value("mlp_bias", false) && family != "llama") return true;
  // A window in Llama, which transformers applies to what is generated but not to the prompt.
  if (family == "llama" && sets(trial, "sliding_window")) return true;
  if (!sets(trial, "rope_parameters")) return false;
  const Json& rope = set["rope_parameters"];
  if (!rope.is_object() || rope.value("rope_type", "") == "proportional") return false;
  return rope.contains("mrope_section") || rope.contains("full_attention") || rope.contains("partial_rotary_factor");
}

// Configurations at which transformers fails although their meaning is plain.
bool accepted_on_purpose(const std::string& family, const Json& trial) {
  const Json& set = trial.at("set");
  // Null for a field that has a default, and fields about Python objects.
  for (const char* field : {"hidden_act", "tie_word_embeddings", "head_dim", "return_dict"}) {
    if (set.contains(field) && (set[field].is_null() || set[field] == false)) return true;
  }
  // transformers wants a window even when no layer has one.
  return family == "mistral" && sets(trial, "layer_types") && set.value("sliding_window", Json()).is_null();
}

class ConfigTrials : public ::testing::TestWithParam<std::string> {};

TEST_P(ConfigTrials, GiveTransformersLogitsOrAnError) {
  const std::string& name = GetParam();
  const Json& family = facts().at("families").at(name);
  ASSERT_LE(worst_difference(kept_logits(ModelDirectory(family.at("base"), Json::array()).load()), family.at("logits")),
            1e-3);
  int compared = 0;
  for (const Json& trial : family.at("trials")) {
    SCOPED_TRACE(trial.dump().substr(0, 300));
    const std::string effect = trial.at("effect");
    std::vector<float> found;
    try {
      found = kept_logits(ModelDirectory(config_of(family, trial), trial.value("without", Json::array())).load());
    } catch (const CheckpointError& error) {
      if (effect != "fails") {
        EXPECT_TRUE(refused_on_purpose(name, trial)) << error.what();
      }
      continue;
    }
    if (effect == "fails") {
      EXPECT_TRUE(accepted_on_purpose(name, trial)) << "transformers raises " << trial.at("error");
      continue;
    }
    // Logits reach about 6; the file has them to 5 places.
    EXPECT_LE(worst_difference(found, effect == "none" ? family.at("logits") : trial.at("logits")), 1e-3);
    compared += effect == "changes" ? 1 : 0;
  }
  EXPECT_GE(compared, 30);
}

// Steps of the decode loop, captured and not, against forward(), which the trials hold to transformers.
TEST(ConfigSteps, DecodingFollowsWindowsAndListsOfFactors) {
  Json longrope = facts().at("families").at("llama").at("base");
  longrope["rope_parameters"] = {{"rope_type", "longrope"},
                                 {"short_factor", {1.0, 1.0, 1.0, 1.0}},
                                 {"long_factor", {1.0, 1.5, 2.0, 4.0}},
                                 {"factor", 4.0},
                                 {"original_max_position_embeddings", 25}};
  Json windows = facts().at("families").at("mistral").at("base");
  windows["sliding_window"] = 6;
  windows["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
  const auto prompt = facts().at("prompt").get<std::vector<int32_t>>();
  const std::vector<std::vector<int32_t>> prompts = {prompt, {prompt.begin(), prompt.begin() + 3}};
  constexpr size_t steps = 24;  // the second prompt crosses the 25 tokens, too
  for (const Json& config : {longrope, windows}) {
    SCOPED_TRACE(config.dump());
    const auto model = ModelDirectory(config, Json::array()).load();
    SessionOptions options;
    options.sequences = 2;
    options.context = 64;
    options.chunk = 7;
    std::vector<std::vector<int32_t>> expected;
    for (const std::vector<int32_t>& tokens : prompts) {
      Session session(model, options);
      std::vector<int32_t> ids = tokens, sequence(tokens.size(), 0), positions(tokens.size());
      for (size_t i = 0; i < tokens.size(); ++i) positions[i] = static_cast<int32_t>(i);
      std::vector<int32_t> chosen;
      while (chosen.size() < steps) {
        const std::vector<int32_t> last = {static_cast<int32_t>(ids.size()) - 1};
        const std::vector<float> logits = session.forward({ids, sequence, positions}, last).to_vector<float>();
        chosen.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
        positions = {positions.back() + 1};
        ids = {chosen.back()};
        sequence = {0};
      }
      expected.push_back(chosen);
    }
    for (const char* backend : {"eager", "graph"}) {
      const anyaccel::testing::BackendGuard guard(backend);
      Session session(model, options);
      EXPECT_EQ(anyaccel::testing::decode(session, prompts, steps), expected) << backend;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ConfigTrials, ::testing::Values("llama", "mistral", "qwen2", "qwen3"),
                         [](const auto& test_info) { return test_info.param; });

TEST(ConfigTable, KnowsEveryFieldOfTransformersClasses) {
  for (const auto& [name, family] : facts().at("families").items()) {
    SCOPED_TRACE(name);
    for (const auto& [field, value] : family.at("fields").items()) {
      EXPECT_NE(find_config_field(field, family_of(name)), nullptr) << field;
      // A file that says what the class takes by default is neither refused nor remarked on.
      if (value.is_null() || family.at("base").contains(field)) continue;
      Json config = family.at("base");
      config[field] = value;
      EXPECT_TRUE(parse_model_config(config.dump(), "config.json").notes.empty()) << field;
    }
  }
  for (const auto& [field, value] : facts().at("generation").items()) {
    const ConfigField* known = find_config_field(field, Family::Llama);
    ASSERT_NE(known, nullptr) << field;
    EXPECT_TRUE(known->use == FieldUse::Generation || known->use == FieldUse::NoEffect) << field;
  }
}

TEST(ConfigTable, KnowsEveryKeyAndTypeOfRope) {
  std::set<std::string> types, keys = {"partial_rotary_factor", "mrope_section"};
  for (const RopeType type : {RopeType::Default, RopeType::Linear, RopeType::Dynamic, RopeType::Llama3, RopeType::Yarn,
                              RopeType::Longrope, RopeType::Proportional}) {
    types.emplace(rope_type_name(type));
    for (const std::string_view key : rope_keys(type)) keys.emplace(key);
  }
  for (const Json& type : facts().at("rope_types")) EXPECT_TRUE(types.contains(type)) << type;
  for (const Json& key : facts().at("rope_keys")) EXPECT_TRUE(keys.contains(key)) << key;
}

TEST(ConfigTable, HasOneEntryOfANameAndFamily) {
  std::map<std::string_view, int> seen;
  for (const ConfigField& field : config_fields()) {
    EXPECT_EQ(seen[field.name] & field.families, 0) << field.name;
    seen[field.name] |= field.families;
    EXPECT_EQ(field.text.empty(), field.use == FieldUse::Read || field.use == FieldUse::NoEffect) << field.name;
  }
}

// The values for which each of these fields must be refused.
const std::map<std::string, Json>& refused_values() {
  static const std::map<std::string, Json> values = {
      {"add_cross_attention", true},
      {"attention_bias", true},
      {"attention_chunk_size", 4},
      {"audio_config", {{"hidden_size", 4}}},
      {"compression_config", {{"format", "pack-quantized"}}},
      {"configuration_files", {"config.4.0.0.json"}},
      {"cross_attention_hidden_size", 16},
      {"decoder", {{"model_type", "llama"}}},
      {"generator", {{"model_type", "llama"}}},
      {"is_causal", false},
      {"is_encoder_decoder", true},
      {"kv_sharing_modes", {"store", "reuse", "reuse"}},
      {"mlp_bias", true},
      {"per_layer_config", {{"1", {{"intermediate_size", 32}}}}},
      {"pruned_heads", {{"0", {1}}}},
      {"text_config", {{"model_type", "llama"}}},
      {"text_encoder", {{"model_type", "llama"}}},
      {"tie_encoder_decoder", true},
      {"transformers_weights", "other.safetensors"},
      {"use_bidirectional_attention", true},
      {"use_mrope", true},
      {"vision_config", {{"hidden_size", 4}}},
  };
  return values;
}

TEST(ConfigTable, RefusesWhatItSays) {
  for (const ConfigField& field : config_fields()) {
    if (field.use != FieldUse::Refused) continue;
    const std::string key(field.name);
    ASSERT_TRUE(refused_values().contains(key)) << key << " needs a value in refused_values()";
    for (const auto& [name, family] : facts().at("families").items()) {
      if ((field.families >> static_cast<int>(family_of(name)) & 1) == 0) continue;
      SCOPED_TRACE(key + " in " + name);
      Json config = family.at("base");
      config[key] = refused_values().at(key);
      const std::string message = testing::checkpoint_error([&] { parse_model_config(config.dump(), "config.json"); });
      expect_contains(message, "config.json: field \"" + key + "\": expected " + std::string(field.text) + ", found ");
      config[key] = nullptr;
      EXPECT_TRUE(parse_model_config(config.dump(), "config.json").notes.empty());
    }
  }
}

TEST(ConfigTable, NamesWhatIsIgnoredOnce) {
  Json config = facts().at("families").at("mistral").at("base");
  config["no_such_field"] = 1;
  config["use_sliding_window"] = false;  // Qwen's
  config["temperature"] = 0.6;
  config["top_k"] = 50;  // the default
  config["auto_map"] = {{"AutoModelForCausalLM", "modeling.MyModel"}};
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}, {"beta_fast", 4}, {"alpha", 1}};
  const std::vector<std::string> notes = parse_model_config(config.dump(), "config.json").notes;
  ASSERT_EQ(notes.size(), 4u);
  EXPECT_EQ(notes[0],
            "config.json has fields that no mistral model of transformers knows, and that are ignored: "
            "\"no_such_field\", \"use_sliding_window\"");
  EXPECT_EQ(notes[1],
            "config.json has settings of generation, which are read from generation_config.json only: "
            "\"temperature\"");
  expect_contains(notes[2], "auto_map");
  EXPECT_EQ(notes[3],
            "rope_scaling in config.json has fields that rope of type \"linear\" does not use, and that are "
            "ignored: \"alpha\", \"beta_fast\"");
}

TEST(ConfigTable, NotesReachTheModel) {
  Json config = facts().at("families").at("llama").at("base");
  config["no_such_field"] = 1;
  const auto model = ModelDirectory(config, Json::array()).load();
  ASSERT_FALSE(model->notes().empty());
  expect_contains(model->notes()[0], "no_such_field");
}

TEST(ConfigTable, AModelThatSeesWhatFollowsIsRefused) {
  const TestDirectory directory;
  auto config = facts().at("families").at("llama").at("base");
  config["is_causal"] = false;
  directory.write("config.json", config.dump());
  expect_contains(testing::checkpoint_error([&] { load_model_config(directory.path()); }),
                  "expected true or null: text is generated from left to right");
}

TEST(ConfigTable, AnAdapterBesideTheModelIsRefused) {
  const TestDirectory directory;
  directory.write("config.json", facts().at("families").at("llama").at("base").dump());
  directory.write("adapter_config.json", "{}");
  const std::string message = testing::checkpoint_error([&] { load_model_config(directory.path()); });
  expect_contains(message, "adapter_config.json: an adapter");
  expect_contains(message, "--adapter");
}

TEST(ConfigTable, DifferentOutputMatrixOfATiedModelIsNamed) {
  Json config = facts().at("families").at("llama").at("base");
  config["tie_word_embeddings"] = true;
  const auto model = ModelDirectory(config, Json::array()).load();
  EXPECT_FALSE(model->config().tie_word_embeddings);
  bool named = false;
  for (const std::string& note : model->notes()) named |= note.find("lm_head.weight that differs") != std::string::npos;
  EXPECT_TRUE(named);
}

// The table of docs/model_files.md names every field, and no other, with what is done with it.
TEST(ConfigTable, IsTheOneInTheDocs) {
  std::ifstream page(std::filesystem::path(anyaccel::testing::source_directory()) / "docs/model_files.md");
  ASSERT_TRUE(page) << "docs/model_files.md";
  std::map<std::string, std::set<std::string>> documented;  // field: words of its "what we do" column
  std::string line;
  bool in_table = false;
  while (std::getline(page, line)) {
    if (line.starts_with("## ")) in_table = line == "## config.json";
    if (!in_table || !line.starts_with("| `")) continue;
    const size_t names_end = line.find('|', 1);
    const size_t families_end = line.find('|', names_end + 1);
    const std::string names = line.substr(1, names_end - 1);
    const std::string what =
        line.substr(families_end + 2, line.find_first_of(" |:,;", families_end + 2) - families_end - 2);
    for (size_t at = names.find('`'); at != std::string::npos; at = names.find('`', at)) {
      const size_t end = names.find('`', at + 1);
      documented[names.substr(at + 1, end - at - 1)].insert(what);
      at = end + 1;
    }
  }
  const std::map<FieldUse, std::string> words = {{FieldUse::Read, "read"},
                                                 {FieldUse::NoEffect, "ignored"},
                                                 {FieldUse::Refused, "refused"},
                                                 {FieldUse::Generation, "noted"}};
  for (const ConfigField& field : config_fields()) {
    EXPECT_TRUE(documented[std::string(field.name)].contains(words.at(field.use)))
        << field.name << " is " << words.at(field.use);
  }
  for (const auto& entry : documented) {
    const std::string& name = entry.first;  // clang 14 cannot capture a structured binding
    const bool known = std::any_of(config_fields().begin(), config_fields().end(),
                                   [&](const ConfigField& field) { return field.name == name; });
    EXPECT_TRUE(known) << name << " is in the docs only";
  }
}

}  // namespace
}  // namespace anyaccel::llm
