// Turns a conversation into the prompt that a chat model was trained on, with the template of the model's directory.
//
// Templates are written in Jinja. They may use everything that transformers' apply_chat_template offers them, and give
// the same text (docs/chat.md lists the differences, which are errors). A template is untrusted data: it cannot read
// files, and its steps, depth and output are limited.
#pragma once

#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace anyaccel::llm {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", or another one that the template knows
  std::string content;
};

struct ChatOptions {
  // End the prompt with the text that begins an answer of the assistant.
  bool add_generation_prompt = true;
  // A JSON array of the functions that the assistant may call, as in OpenAI's API; empty: none.
  std::string tools_json;
  // A JSON object of further variables for the template, such as {"enable_thinking": false}.
  std::string variables_json;
  // The name of the template, for models with several; empty: "tool_use" if there are tools and such a template, else
  // "default".
  std::string name;
  // The time that strftime_now() of a template formats, in the local time zone; empty: now.
  std::optional<std::time_t> now;
};

// Loaded once and never changed: any number of threads may use it at once.
class ChatTemplate {
 public:
  // Reads chat_template.jinja, additional_chat_templates/*.jinja and the chat_template of tokenizer_config.json, or the
  // key tokenizer.chat_template of a GGUF file; also the special tokens (bos_token and so on) that templates use.
  // Returns nothing if there is no template. Throws CheckpointError, with file and line, for a damaged file, or a
  // template that is not Jinja or uses an unsupported feature.
  static std::optional<ChatTemplate> load(const std::filesystem::path& dir);
  // Makes it from the text of a template; errors use `source` as its name. `special_tokens` are names and texts.
  static ChatTemplate parse(std::string_view text, std::string_view source,
                            std::vector<std::pair<std::string, std::string>> special_tokens = {});

  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // Returns the prompt of the conversation. It contains the beginning-of-text token if the model expects one: encode it
  // with add_special = false. Throws InvalidArgument if the template rejects the conversation (with its message), for
  // JSON that is not as described, or for a name that no template has; CheckpointError for an error in the template,
  // with the line.
  std::string render(std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;
  // The same for messages with further fields (tool_calls, reasoning_content, content in parts): a JSON array of
  // objects.
  std::string render_json(std::string_view messages_json, const ChatOptions& options = {}) const;

  // Returns the names of the templates: usually only "default".
  std::vector<std::string> names() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace anyaccel::llm
