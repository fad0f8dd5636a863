// Loads the chat templates of a model directory or GGUF file and renders conversations with them.
#include "anyaccel/llm/chat_template.h"

#include <algorithm>
#include <array>
#include <map>

#include "anyaccel/error.h"
#include "base/files/open_file.h"
#include "base/text/json.h"
#include "base/text/utf8.h"
#include "llm/chat/jinja_interpreter.h"
#include "llm/chat/jinja_syntax.h"
#include "llm/checkpoint/gguf.h"
#include "llm/tokenizer/directory.h"

namespace anyaccel::llm {

namespace {

constexpr size_t max_template_bytes = 1 << 20;
constexpr std::string_view default_name = "default";

struct ParsedTemplate {
  std::string source;
  jinja::Body body;
};

using Templates = std::map<std::string, ParsedTemplate>;
using SpecialTokens = std::vector<std::pair<std::string, std::string>>;

void add_template(Templates& templates, const std::string& name, std::string_view text, const std::string& source) {
  if (text.size() > max_template_bytes) {
    throw CheckpointError(source + ": the chat template has " + std::to_string(text.size()) +
                          " bytes; at most 1 MiB is read");
  }
  try {
    templates[name] = {source, jinja::parse(text)};
  } catch (const jinja::TemplateError& error) {
    throw CheckpointError(source + ": the chat template cannot be used: " + error.what());
  }
}

// Adds the value of "chat_template": a string, or a list of objects with a name and a template.
void add_config_templates(Templates& templates, const JsonRef& value, const std::string& source) {
  if (value.is_string()) {
    add_template(templates, std::string(default_name), value.string(), source + ": chat_template");
    return;
  }
  if (!value.is_array()) value.fail("a template, or a list of objects with a name and a template");
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string& name = value[i].at("name").string();
    add_template(templates, name, value[i].at("template").string(), source + ": chat_template " + quote_text(name));
  }
}

void add_file(Templates& templates, const std::string& name, const std::filesystem::path& path) {
  add_template(templates, name, read_whole_file(path, max_template_bytes), path.string());
}

SpecialTokens gguf_tokens(const GgufMetadata& metadata) {
  SpecialTokens tokens;
  const std::vector<std::string>* texts = metadata.texts("tokenizer.ggml.tokens");
  if (texts == nullptr) return tokens;
  constexpr std::array keys{std::pair{"bos", "bos"},       std::pair{"eos", "eos"}, std::pair{"unknown", "unk"},
                            std::pair{"seperator", "sep"},  // as GGUF spells it
                            std::pair{"padding", "pad"},   std::pair{"cls", "cls"}, std::pair{"mask", "mask"}};
  for (const auto& [key, name] : keys) {
    const auto id =
        metadata.whole(std::string("tokenizer.ggml.") + key + "_token_id", 0, static_cast<int64_t>(texts->size()) - 1);
    if (id) tokens.emplace_back(std::string(name) + "_token", (*texts)[static_cast<size_t>(*id)]);
  }
  return tokens;
}

// Calls strftime() for formats of the length that templates use.
std::string format_time(const std::string& format, std::time_t time) {
  std::tm local{};
  if (localtime_r(&time, &local) == nullptr || format.size() > 200) {
    throw jinja::TemplateError("strftime_now: the format is longer than 200 characters");
  }
  // A marker in front distinguishes an empty result from one that does not fit.
  char buffer[2048];
  const size_t length = std::strftime(buffer, sizeof buffer, ("x" + format).c_str(), &local);
  if (length == 0) throw jinja::TemplateError("strftime_now: the result is too long");
  return std::string(buffer + 1, length - 1);
}

jinja::Value json_value(std::string_view text, std::string_view what, bool want_array) {
  try {
    const JsonDocument document = JsonDocument::parse(text, what);
    const JsonRef root = document.root();
    if (want_array ? !root.is_array() : !root.is_object()) {
      throw InvalidArgument(std::string(what) + ": expected a JSON " + (want_array ? "array" : "object") + ", found " +
                            quote_text(text.substr(0, 40)));
    }
    return jinja::Value::from_json(root.value());
  } catch (const CheckpointError& error) {
    throw InvalidArgument(error.what());
  } catch (const jinja::TemplateError& error) {
    throw InvalidArgument(std::string(what) + ": " + error.what());
  }
}

// Messages have several names for the reasoning; templates read the first two. The rules are those of transformers
// 5.23.
void alias_reasoning(jinja::Dict& message) {
  constexpr std::array names{"reasoning_content", "thinking", "reasoning"};
  for (const char* name : names) {
    const jinja::Value* found = message.member(name);
    if (found == nullptr || found->is_none()) continue;
    const jinja::Value reasoning = *found;
    if (message.member("thinking") == nullptr) {
      message.members.insert(message.members.begin(), {jinja::Value("thinking"), reasoning});
    }
    message.set("reasoning_content", reasoning);
    return;
  }
}

jinja::Value with_reasoning_names(const jinja::Value& messages) {
  jinja::List list;
  for (const jinja::Value& message : *messages.list()) {
    if (message.dict() == nullptr) {
      list.push_back(message);
      continue;
    }
    jinja::Dict named = *message.dict();
    alias_reasoning(named);
    list.emplace_back(std::move(named));
  }
  return list;
}

}  // namespace

struct ChatTemplate::Impl {
  Templates templates;
  SpecialTokens special_tokens;

  const ParsedTemplate& choose(const ChatOptions& options) const {
    std::string name = options.name;
    if (name.empty()) {
      name = !options.tools_json.empty() && templates.contains("tool_use") ? "tool_use" : std::string(default_name);
    }
    const auto found = templates.find(name);
    if (found != templates.end()) return found->second;
    std::string known;
    for (const auto& entry : templates) known += (known.empty() ? "" : ", ") + quote_text(entry.first);
    throw InvalidArgument("there is no chat template " + quote_text(name) + "; the model has " + known);
  }

  std::string render(jinja::Value messages, const ChatOptions& options) const {
    const ParsedTemplate& chosen = choose(options);
    jinja::Dict variables;
    for (const auto& [name, text] : special_tokens) variables.set(name, text);
    variables.set("documents", jinja::None{});
    if (!options.variables_json.empty()) {
      const jinja::Value more = json_value(options.variables_json, "variables of the chat template", false);
      for (const auto& [name, value] : more.dict()->members) variables.set(name, value);
    }
    variables.set("messages", std::move(messages));
    variables.set("tools", options.tools_json.empty() ? jinja::Value(jinja::None{})
                                                      : json_value(options.tools_json, "tools", true));
    variables.set("add_generation_prompt", options.add_generation_prompt);
    const std::time_t now = options.now.value_or(std::time(nullptr));
    auto strftime_now = std::make_shared<jinja::Function>();
    strftime_now->name = "strftime_now";
    strftime_now->call = [now](jinja::Interpreter&, const jinja::Arguments& arguments) {
      if (arguments.positional.size() != 1 || !arguments.positional[0].is_string()) {
        throw jinja::TemplateError("strftime_now() takes a format");
      }
      return jinja::Value(format_time(*arguments.positional[0].text(), now));
    };
    variables.set("strftime_now", jinja::Value(std::shared_ptr<const jinja::Function>(std::move(strftime_now))));
    try {
      jinja::Interpreter interpreter;
      return interpreter.run(chosen.body, variables);
    } catch (const jinja::RejectedByTemplate& rejection) {
      throw InvalidArgument(chosen.source + ": the chat template rejects the conversation: " + rejection.what());
    } catch (const jinja::TemplateError& error) {
      throw CheckpointError(chosen.source + ": the chat template failed: " + error.what());
    }
  }
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

ChatTemplate ChatTemplate::parse(std::string_view text, std::string_view source, SpecialTokens special_tokens) {
  auto impl = std::make_unique<Impl>();
  impl->special_tokens = std::move(special_tokens);
  add_template(impl->templates, std::string(default_name), text, std::string(source));
  return ChatTemplate(std::move(impl));
}

std::optional<ChatTemplate> ChatTemplate::load(const std::filesystem::path& dir) {
  auto impl = std::make_unique<Impl>();
  if (is_gguf(dir)) {
    const std::shared_ptr<const GgufModel> model = open_gguf(dir);
    const GgufMetadata& metadata = model->metadata();
    const auto text = metadata.text("tokenizer.chat_template");
    if (!text) return std::nullopt;
    impl->special_tokens = gguf_tokens(metadata);
    add_template(impl->templates, std::string(default_name), *text, dir.string() + ": tokenizer.chat_template");
    return ChatTemplate(std::move(impl));
  }
  const TokenizerFiles files = read_tokenizer_files(dir);
  const std::filesystem::path file = dir / "chat_template.jinja";
  const std::filesystem::path more = dir / "additional_chat_templates";
  std::error_code ignored;
  if (has_name(file)) {
    add_file(impl->templates, std::string(default_name), file);
  }
  if (std::filesystem::is_directory(more, ignored)) {
    for (const auto& entry : std::filesystem::directory_iterator(more)) {
      if (entry.path().extension() == ".jinja") add_file(impl->templates, entry.path().stem().string(), entry.path());
    }
  }
  // Template files take precedence over those in tokenizer_config.json.
  if (impl->templates.empty() && files.tokenizer_config) {
    const JsonDocument config = JsonDocument::parse(files.tokenizer_config->text, files.tokenizer_config->path);
    if (const auto value = config.root().find("chat_template")) {
      add_config_templates(impl->templates, *value, files.tokenizer_config->path);
    }
  }
  if (impl->templates.empty()) return std::nullopt;
  const TokenizerSettings settings = read_tokenizer_settings(files);
  for (const NamedToken& token : settings.named) impl->special_tokens.emplace_back(token.name, token.token.content);
  return ChatTemplate(std::move(impl));
}

std::string ChatTemplate::render(std::span<const ChatMessage> messages, const ChatOptions& options) const {
  jinja::List list;
  for (const ChatMessage& message : messages) {
    jinja::Dict dict;
    dict.set("role", repair_utf8(message.role));
    dict.set("content", repair_utf8(message.content));
    list.emplace_back(std::move(dict));
  }
  return impl_->render(std::move(list), options);
}

std::string ChatTemplate::render_json(std::string_view messages_json, const ChatOptions& options) const {
  return impl_->render(with_reasoning_names(json_value(messages_json, "messages", true)), options);
}

std::vector<std::string> ChatTemplate::names() const {
  std::vector<std::string> names;
  for (const auto& entry : impl_->templates) names.push_back(entry.first);
  return names;
}

}  // namespace anyaccel::llm
