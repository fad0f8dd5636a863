// The single list of config.json's fields: the meaning of a field in each family, and how it is handled.
// docs/model_files.md documents the same list; config_table_test compares both with it, and with transformers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/llm/model_config.h"
#include "base/text/json.h"

namespace anyaccel::llm {

enum class FieldUse {
  Read,        // used, or rejected by the code that reads it
  NoEffect,    // has no effect on the text
  Refused,     // only a value that means "absent" is accepted
  Generation,  // a setting of generation that transformers 5 does not take from config.json
};

// A set of families: 1 << Family.
using FamilySet = uint64_t;
inline constexpr FamilySet llama_set = 1 << static_cast<int>(Family::Llama);
inline constexpr FamilySet mistral_set = 1 << static_cast<int>(Family::Mistral);
inline constexpr FamilySet qwen2_set = 1 << static_cast<int>(Family::Qwen2);
inline constexpr FamilySet qwen3_set = 1 << static_cast<int>(Family::Qwen3);
inline constexpr FamilySet first_families = llama_set | mistral_set | qwen2_set | qwen3_set;
// This includes the families in llm/families, which list the fields that they read themselves.
inline constexpr FamilySet every_family = ~FamilySet{0};

struct ConfigField {
  std::string_view name;
  FamilySet families = first_families;  // that this entry applies to; a family has at most one entry per name
  FieldUse use = FieldUse::Read;
  // For Refused, the accepted value and the reason ("false: text is generated from left to right"); for Generation, the
  // default.
  std::string_view text = {};
};

std::span<const ConfigField> config_fields();
// Returns null for a field that no version of the family's class has.
const ConfigField* find_config_field(std::string_view name, Family family);

// Returns the keys of rope_parameters (rope_scaling) that this type of rope uses.
std::span<const std::string_view> rope_keys(RopeType type);

// Checks the fields of config.json. Throws CheckpointError for a refused one; adds a note for each kind of field that
// is ignored although its author may have intended an effect.
void check_config_fields(const JsonRef& root, Family family, std::vector<std::string>& notes);

}  // namespace anyaccel::llm
