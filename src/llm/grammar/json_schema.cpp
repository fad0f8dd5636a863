// Turns a JSON Schema (the subset that structured outputs use) into the rules of JSON texts that are valid under it.
// Where the schema would allow more, such as any order of properties, the rules allow one form; a keyword that would
// change the meaning and has no rules is refused.
#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "anyaccel/error.h"
#include "base/text/json.h"
#include "llm/grammar/grammar_rules.h"
#include "llm/grammar/json_reference.h"
#include "llm/grammar/json_rules.h"
#include "llm/grammar/json_text_rules.h"

namespace anyaccel::llm {

namespace {

// Keywords that say nothing about which values are valid.
constexpr std::string_view annotations[] = {
    "$schema",  "$id",         "$comment",         "$anchor",         "$defs",    "definitions",
    "title",    "description", "default",          "deprecated",      "examples", "example",
    "readOnly", "writeOnly",   "contentMediaType", "contentEncoding", "id"};

struct Group {
  std::string_view type;
  std::vector<std::string_view> keywords;
};
const std::vector<Group>& groups() {
  static const std::vector<Group> all = {{"string", {"minLength", "maxLength", "pattern", "format"}},
                                         {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}},
                                         {"array", {"items", "prefixItems", "minItems", "maxItems", "additionalItems"}},
                                         {"object", {"properties", "required", "additionalProperties"}}};
  return all;
}

constexpr std::string_view day =
    "(02-(0[1-9]|1[0-9]|2[0-8])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01]))";
constexpr std::string_view clock =
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";

// Returns the pattern of a format of strings; empty if there is none. Every text of the pattern has the format.
std::string format_pattern(std::string_view name) {
  const std::string date = "[0-9]{4}-" + std::string(day);
  const std::string byte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  if (name == "date") return "^" + date + "$";
  if (name == "time") return "^" + std::string(clock) + "$";
  if (name == "date-time") return "^" + date + "T" + std::string(clock) + "$";
  if (name == "uuid") return "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$";
  if (name == "ipv4") return "^" + byte + "(\\." + byte + "){3}$";
  if (name == "email") {
    return "^[a-zA-Z0-9_+-]{1,32}(\\.[a-zA-Z0-9_+-]{1,32})?@([a-zA-Z0-9]([a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?\\.){1,3}[a-zA-"
           "Z]{2,10}$";
  }
  return {};
}

class SchemaReader {
 public:
  SchemaReader(std::string_view text, std::string_view source)
      : document_(JsonDocument::parse(text, source)), rules_(source) {
    find_embedded(document_.root().value(), /*root=*/true, /*inside=*/false);
  }

  GrammarRules read() {
    const uint32_t root = rule_of(document_.root());
    // Schemas that $ref names are read one after the other, so that chains of them do not nest.
    while (!open_.empty()) {
      const auto [rule, schema] = open_.front();
      open_.pop_front();
      Expression body = read_schema(schema);
      rules_.define(rule, std::move(body));
    }
    return rules_.finish(root);
  }

 private:
  // Finds what lies in a schema with an identifier of its own: there "#" means that schema, not the file.
  void find_embedded(const JsonValue& value, bool root, bool inside) {
    for (const JsonValue& element : value.elements()) find_embedded(element, false, inside);
    const auto* members = std::get_if<JsonMembers>(&value.data);
    if (members == nullptr) return;
    for (const std::string_view key : {"$id", "id"}) {
      const JsonValue* id = root ? nullptr : value.find(key);
      const auto* text = id == nullptr ? nullptr : std::get_if<std::string>(&id->data);
      // With a number sign it is the anchor of older drafts.
      if (text != nullptr && !text->starts_with('#')) inside = true;
    }
    if (inside) embedded_.insert(&value);
    for (const JsonMember& member : *members) find_embedded(member.value, false, inside);
  }

  // Returns the rule of a schema, which is read later.
  uint32_t rule_of(const JsonRef& schema) {
    const auto [at, added] = of_schema_.try_emplace(&schema.value(), 0);
    if (added) {
      // Finding the path takes as long as the document, so only small ones name their rules for error messages.
      const std::string path = of_schema_.size() < 1000 ? schema.path() : std::string();
      at->second = rules_.add(path.empty() ? "schema" : path);
      open_.emplace_back(at->second, schema);
    }
    return at->second;
  }

  static bool is_annotation(std::string_view key) {
    return std::find(std::begin(annotations), std::end(annotations), key) != std::end(annotations) ||
           key.starts_with("x-");
  }
  static const Group* group_of(std::string_view key) {
    for (const Group& group : groups()) {
      if (std::find(group.keywords.begin(), group.keywords.end(), key) != group.keywords.end()) return &group;
    }
    return nullptr;
  }
  // Refuses keywords beside `main` that say something about the value.
  static void refuse_beside(const JsonRef& schema, std::string_view main,
                            std::initializer_list<std::string_view> known = {}) {
    for (size_t i = 0; i < schema.size(); ++i) {
      const std::string& key = schema.key(i);
      if (key == main || is_annotation(key) || std::find(known.begin(), known.end(), key) != known.end()) continue;
      schema.member(i).error(quote_text(key) + " beside " + quote_text(main) +
                             " is not supported; expected one of them alone");
    }
  }

  Expression read_schema(const JsonRef& schema) {
    if (schema.is_bool()) {
      if (!schema.boolean()) schema.error("false allows no value; expected a schema that allows one");
      return rules_.any_value();
    }
    if (!schema.is_object()) schema.fail("a schema: an object, true or false");
    if (schema.has("$ref")) {
      refuse_beside(schema, "$ref");
      if (embedded_.contains(&schema.value())) {
        schema.at("$ref").error(
            "a reference in a schema with an identifier of its own ($id or id) is not supported, because it would be "
            "one within that schema; remove the identifier and write the reference from the file's root");
      }
      return Expression::reference(rule_of(json_referenced(document_.root(), schema.at("$ref"))));
    }
    if (schema.has("const")) {
      refuse_beside(schema, "const", {"type"});
      return values(schema, schema.at("const"), /*several=*/false);
    }
    if (schema.has("enum")) {
      refuse_beside(schema, "enum", {"type"});
      return values(schema, schema.at("enum"), /*several=*/true);
    }
    if (schema.has("anyOf")) return alternatives(schema, "anyOf");
    if (schema.has("oneOf")) return alternatives(schema, "oneOf");
    if (schema.has("allOf")) {
      refuse_beside(schema, "allOf");
      const JsonRef parts = schema.at("allOf");
      if (!parts.is_array() || parts.size() != 1) parts.error("allOf is supported with one schema only");
      return Expression::reference(rule_of(parts[0]));
    }
    for (size_t i = 0; i < schema.size(); ++i) {
      const std::string& key = schema.key(i);
      if (key == "type" || is_annotation(key) || group_of(key) != nullptr) continue;
      schema.member(i).error("the keyword " + quote_text(key) +
                             " is not supported; docs/generation.md lists those that are. Remove it if the answer may "
                             "break it");
    }
    std::vector<Expression> ways;
    for (const std::string& type : types(schema)) ways.push_back(read_type(schema, type));
    if (ways.empty()) return rules_.any_value();
    return Expression::choice(std::move(ways));
  }

  // Returns the types that the schema names, or else those that its keywords are about; none: any.
  static std::vector<std::string> types(const JsonRef& schema) {
    std::vector<std::string> names;
    const auto add = [&](const std::string& name) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    };
    if (schema.has("type")) {
      const JsonRef type = schema.at("type");
      const auto read = [&](const JsonRef& name) {
        if (std::find(std::begin(json_type_names), std::end(json_type_names), name.string()) ==
            std::end(json_type_names)) {
          name.fail("null, boolean, integer, number, string, array or object");
        }
        add(name.string());
      };
      if (!type.is_array()) {
        read(type);
      } else if (type.size() == 0) {
        type.fail("at least one type");
      } else {
        for (size_t i = 0; i < type.size(); ++i) read(type[i]);
      }
      return names;
    }
    for (size_t i = 0; i < schema.size(); ++i) {
      if (const Group* group = group_of(schema.key(i))) add(std::string(group->type));
    }
    return names;
  }

  Expression alternatives(const JsonRef& schema, std::string_view keyword) {
    refuse_beside(schema, keyword);
    const JsonRef parts = schema.at(keyword);
    if (!parts.is_array() || parts.size() == 0) parts.fail("a list of at least one schema");
    std::vector<Expression> ways;
    std::set<std::string> seen;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (keyword == "oneOf" && parts.size() > 1) {
        // A value is valid under exactly one of them if they have different types.
        std::vector<std::string> own;
        if (parts[i].is_object()) own = types(parts[i]);
        const bool open = own.empty() || !parts[i].has("type");
        for (const std::string& type : own) {
          const bool fresh = seen.insert(type).second && !(type == "integer" && seen.contains("number")) &&
                             !(type == "number" && seen.contains("integer"));
          if (open || fresh) continue;
          parts[i].error("oneOf is supported if each of its schemas has types that no other has; expected anyOf");
        }
        if (open) parts[i].error("oneOf is supported if each of its schemas has a \"type\" of its own; expected anyOf");
      }
      ways.push_back(Expression::reference(rule_of(parts[i])));
    }
    return Expression::choice(std::move(ways));
  }

  static bool has_type(const JsonRef& value, std::string_view type) {
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.is_bool();
    if (type == "string") return value.is_string();
    if (type == "array") return value.is_array();
    if (type == "object") return value.is_object();
    const auto* number = std::get_if<double>(&value.value().data);
    return value.is_number() &&
           (type == "number" || number == nullptr || *number == static_cast<double>(static_cast<int64_t>(*number)));
  }
  // Returns this very value, with the white space that is allowed everywhere.
  Expression constant(const JsonRef& value) {
    if (value.is_array()) {
      std::vector<Expression> elements;
      for (size_t i = 0; i < value.size(); ++i) elements.push_back(constant(value[i]));
      const auto count = static_cast<int64_t>(elements.size());
      return rules_.list(std::move(elements), std::nullopt, count, count);
    }
    if (value.is_object()) {
      std::vector<JsonProperty> properties;
      for (size_t i = 0; i < value.size(); ++i) {
        properties.push_back({{Expression::text(json_text(value.key(i))), constant(value.member(i))}, true});
      }
      return rules_.members(properties, std::nullopt);
    }
    return Expression::text(json_text(value.value()));
  }
  Expression values(const JsonRef& schema, const JsonRef& given, bool several) {
    if (several && (!given.is_array() || given.size() == 0)) given.fail("a list of at least one value");
    const std::vector<std::string> allowed = schema.has("type") ? types(schema) : std::vector<std::string>();
    std::vector<Expression> ways;
    const auto add = [&](const JsonRef& value) {
      const bool fits = allowed.empty() || std::any_of(allowed.begin(), allowed.end(),
                                                       [&](const std::string& type) { return has_type(value, type); });
      if (fits) ways.push_back(constant(value));
    };
    if (several) {
      for (size_t i = 0; i < given.size(); ++i) add(given[i]);
    } else {
      add(given);
    }
    if (ways.empty()) given.error("no value here has the schema's type");
    return Expression::choice(std::move(ways));
  }

  static int64_t count(const JsonRef& schema, std::string_view key, int64_t otherwise) {
    return schema.has(key) ? schema.at(key).integer(0, max_repetitions) : otherwise;
  }

  Expression read_type(const JsonRef& schema, const std::string& type) {
    if (type == "string") return read_string(schema);
    if (type == "integer" || type == "number") return read_number(schema, type == "integer");
    if (type == "array") return read_array(schema);
    if (type == "object") return read_object(schema);
    return rules_.any_of_type(type);
  }

  Expression read_string(const JsonRef& schema) {
    const bool limited = schema.has("minLength") || schema.has("maxLength");
    std::string pattern;
    if (schema.has("format")) {
      const JsonRef format = schema.at("format");
      pattern = format_pattern(format.string());
      if (pattern.empty()) format.fail("date, time, date-time, uuid, ipv4 or email; other formats are not supported");
      if (schema.has("pattern"))
        format.error("\"format\" beside \"pattern\" is not supported; expected one of them alone");
    } else if (schema.has("pattern")) {
      pattern = schema.at("pattern").string();
    }
    if (schema.has("format") || schema.has("pattern")) {
      const JsonRef field = schema.at(schema.has("format") ? "format" : "pattern");
      if (limited)
        field.error(
            "a pattern or format beside minLength or maxLength is not supported; write the length into the pattern");
      try {
        return json_quoted(json_pattern(pattern, rules_.character()));
      } catch (const InvalidArgument& error) {
        field.error(error.what());
      }
    }
    if (!limited) return rules_.any_string();
    const int64_t least = count(schema, "minLength", 0);
    const int64_t most = count(schema, "maxLength", -1);
    if (most >= 0 && most < least) schema.at("maxLength").error("maxLength is below minLength; no string is valid");
    return json_quoted(Expression::repeat(rules_.character(), least, most));
  }

  Expression read_number(const JsonRef& schema, bool integer) {
    NumberBounds bounds;
    const auto read = [&](const char* key, std::optional<NumberBounds::Bound>& bound, bool exclusive, bool is_low) {
      if (!schema.has(key)) return;
      const double value = schema.at(key).number(-1e300, 1e300);
      const bool tighter = !bound || (is_low ? value >= bound->value : value <= bound->value);
      if (tighter) bound = {value, exclusive};
    };
    read("minimum", bounds.low, false, true);
    read("exclusiveMinimum", bounds.low, true, true);
    read("maximum", bounds.high, false, false);
    read("exclusiveMaximum", bounds.high, true, false);
    if (!bounds.low && !bounds.high) return rules_.any_of_type(integer ? "integer" : "number");
    try {
      return integer ? json_integer(bounds) : json_number(bounds);
    } catch (const InvalidArgument& error) {
      schema.error(error.what());
    }
  }

  Expression read_array(const JsonRef& schema) {
    std::vector<Expression> first;
    std::optional<Expression> rest = rules_.any_value();
    const auto read_rest = [&](const JsonRef& value) {
      if (value.is_bool() && !value.boolean()) {
        rest.reset();
      } else {
        rest = Expression::reference(rule_of(value));
      }
    };
    const bool tuple = schema.has("items") && schema.at("items").is_array();  // the form before 2020-12
    if (schema.has("prefixItems") || tuple) {
      const JsonRef given = schema.at(tuple ? "items" : "prefixItems");
      if (!given.is_array()) given.fail("a list of schemas");
      for (size_t i = 0; i < given.size(); ++i) first.push_back(Expression::reference(rule_of(given[i])));
    }
    const char* const others = tuple ? "additionalItems" : "items";
    if (schema.has(others)) read_rest(schema.at(others));
    const int64_t least = count(schema, "minItems", 0);
    int64_t most = count(schema, "maxItems", -1);
    if (!rest)
      most = most < 0 ? static_cast<int64_t>(first.size()) : std::min(most, static_cast<int64_t>(first.size()));
    if (most >= 0 && most < least) schema.error("no array has as many elements as this schema asks for");
    return rules_.list(std::move(first), rest, least, most);
  }

  Expression read_object(const JsonRef& schema) {
    std::vector<std::string> required;
    if (schema.has("required")) {
      const JsonRef list = schema.at("required");
      if (!list.is_array()) list.fail("a list of names");
      for (size_t i = 0; i < list.size(); ++i) required.push_back(list[i].string());
    }
    // Without properties any are meant; beside properties others are left out, as in llama.cpp.
    const bool has_properties = schema.has("properties");
    std::optional<Expression> other_value;
    if (schema.has("additionalProperties")) {
      const JsonRef value = schema.at("additionalProperties");
      if (!value.is_bool() || value.boolean()) other_value = Expression::reference(rule_of(value));
    }
    const bool others_allowed = !schema.has("additionalProperties") || other_value.has_value();
    std::vector<JsonProperty> properties;
    std::vector<std::string> names;
    const auto add = [&](const std::string& name, Expression value, bool needed) {
      names.push_back(name);
      properties.push_back({{Expression::text(json_text(name)), std::move(value)}, needed});
    };
    if (has_properties) {
      const JsonRef given = schema.at("properties");
      if (!given.is_object()) given.fail("an object of schemas");
      for (size_t i = 0; i < given.size(); ++i) {
        const bool needed = std::find(required.begin(), required.end(), given.key(i)) != required.end();
        const JsonRef value = given.member(i);
        // A property that may have no value must be absent.
        if (value.is_bool() && !value.boolean() && !needed) {
          names.push_back(given.key(i));
          continue;
        }
        add(given.key(i), Expression::reference(rule_of(value)), needed);
      }
    }
    for (const std::string& name : required) {
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      if (!others_allowed) {
        schema.at("required")
            .error("the property " + quote_text(name) +
                   " is required, and additionalProperties is false and properties lacks it");
      }
      add(name, other_value ? *other_value : rules_.any_value(), true);
    }
    std::optional<JsonPair> others;
    if (!has_properties && !schema.has("additionalProperties")) other_value = rules_.any_value();
    if (other_value) {
      constexpr size_t longest = 64;
      for (const std::string& name : names) {
        if (name.size() <= longest) continue;
        schema.at("additionalProperties")
            .error("beside additionalProperties, names of properties have at most " + std::to_string(longest) +
                   " bytes; found " + quote_text(name));
      }
      others =
          JsonPair{json_quoted(names.empty() ? Expression::repeat(rules_.character(), 0, -1) : json_other_keys(names)),
                   *other_value};
    }
    return rules_.members(properties, others);
  }

  JsonDocument document_;
  JsonRules rules_;
  std::map<const JsonValue*, uint32_t> of_schema_;
  std::set<const JsonValue*> embedded_;
  std::deque<std::pair<uint32_t, JsonRef>> open_;
};

}  // namespace

GrammarRules read_json_schema(std::string_view text, std::string_view source) {
  try {
    return SchemaReader(text, source).read();
  } catch (const CheckpointError& error) {
    throw InvalidArgument(error.what());  // this is no file of a model
  }
}

}  // namespace anyaccel::llm
