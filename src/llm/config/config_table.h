// The one list of config.json's fields: what a field means to each family, and what is done with it.
// docs/model_files.md explains the same list to people; config_table_test holds both to it, and to transformers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/llm/model_config.h"
#include "base/json.h"

namespace anyaccel::llm {

enum class FieldUse {
  Read,        // honoured, or refused by the code that reads it
  NoEffect,    // changes nothing that a text is computed from
  Refused,     // only a value that means "not there" is accepted
  Generation,  // a setting of generation that transformers 5 does not take from config.json
};

// A set of families: 1 << Family.
using FamilySet = uint8_t;
inline constexpr FamilySet llama_set = 1 << static_cast<int>(Family::Llama);
inline constexpr FamilySet mistral_set = 1 << static_cast<int>(Family::Mistral);
inline constexpr FamilySet qwen2_set = 1 << static_cast<int>(Family::Qwen2);
inline constexpr FamilySet qwen3_set = 1 << static_cast<int>(Family::Qwen3);
inline constexpr FamilySet every_family = llama_set | mistral_set | qwen2_set | qwen3_set;

struct ConfigField {
  std::string_view name;
  FamilySet families = every_family;  // of which this entry speaks; a family has at most one entry of a name
  FieldUse use = FieldUse::Read;
  // Refused: what is accepted and why ("false: text is generated from left to right"). Generation: the default.
  std::string_view text = {};
};

std::span<const ConfigField> config_fields();
// Null for a field that no version of the family's class knows.
const ConfigField* find_config_field(std::string_view name, Family family);

// Keys of rope_parameters (rope_scaling) that this type of rope uses.
std::span<const std::string_view> rope_keys(RopeType type);

// Goes through the fields of config.json. Throws CheckpointError for a refused one; adds a note for each kind of field
// that is left aside although someone meant something by it.
void check_config_fields(const JsonRef& root, Family family, std::vector<std::string>& notes);

}  // namespace anyaccel::llm
